// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/controller"
	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/internal/seal"
	"github.com/everynode/everynode/internal/uninstall"
)

// planted marks the scripts of the editor.
const planted = "echo planted"

// plantingEditor is a user who may write NodeJobs, and has no right to what they do on nodes. It tries all the time.
type plantingEditor struct {
	f      *freshServer
	client client.Client
	// tries counts all writes that it tried, and writes those that succeeded.
	tries, writes atomic.Int32
	// forbidden counts the refusals since the last write.
	forbidden atomic.Int32

	mu   sync.Mutex
	pods []string
}

func (f *freshServer) plantingEditor() *plantingEditor {
	f.T.Helper()
	user, err := f.env.AddUser(envtest.User{Name: "editor"}, nil)
	must(f.T, err)
	e := &plantingEditor{f: f}
	e.client, err = client.New(user.Config(), client.Options{Scheme: scheme})
	must(f.T, err)
	// Its role is not one of Everynode, and stays when Everynode is removed.
	must(
		f.T,
		f.admin.Create(
			f.Ctx,
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "editor"}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"nodejobs"}, Verbs: []string{"create", "patch"}},
			}},
		),
	)
	must(f.T, f.admin.Create(f.Ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "editor"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "editor"}, Subjects: subject("editor"),
	}))
	ctx, cancel := context.WithCancel(f.Ctx)
	f.T.Cleanup(cancel)
	pods, err := f.admin.Watch(ctx, &corev1.PodList{}, client.InNamespace(f.Namespace))
	must(f.T, err)
	go e.watchPods(pods)
	go e.plant(ctx)
	return e
}

// watchPods remembers each pod that was ever created.
func (e *plantingEditor) watchPods(pods watch.Interface) {
	for event := range pods.ResultChan() {
		if pod, is := event.Object.(*corev1.Pod); is && event.Type == watch.Added {
			e.mu.Lock()
			e.pods = append(e.pods, pod.Name)
			e.mu.Unlock()
		}
	}
}

// plant writes scripts into a new NodeJob, into that of another user, and into the rollback of one that is being deleted.
func (e *plantingEditor) plant(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: e.f.Namespace, Name: fmt.Sprintf("planted-%d", n)}}
		job.Spec.Nodes, job.Spec.Task.Script = allNodes(), planted
		if n%10 == 0 {
			e.wrote(e.client.Create(ctx, job))
		}
		theirs := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: e.f.Namespace, Name: "theirs"}}
		e.wrote(
			e.client.Patch(
				ctx,
				theirs,
				mergePatch(
					fmt.Sprintf(
						`{"spec":{"task":{"script":"%s %d"},"deletionPolicy":"Rollback","rollback":{"script":"%[1]s"}}}`,
						planted,
						n,
					),
				),
			),
		)
	}
}

func (e *plantingEditor) wrote(err error) {
	e.tries.Add(1)
	switch {
	case err == nil:
		e.writes.Add(1)
		e.forbidden.Store(0)
	case apierrors.IsForbidden(err):
		e.forbidden.Add(1)
	}
}

// awaits waits until a counter of the editor has grown by n.
func (e *plantingEditor) awaits(what string, counter *atomic.Int32, n int32) {
	e.f.T.Helper()
	before := counter.Load()
	e.f.Eventually("the editor "+what, func() error {
		if got := counter.Load() - before; got < n {
			return fmt.Errorf("%d times", got)
		}
		return nil
	})
}

func (e *plantingEditor) getsIn() {
	e.f.T.Helper()
	e.awaits("writes scripts", &e.writes, 6)
}

func (e *plantingEditor) isRefused() {
	e.f.T.Helper()
	e.f.Eventually("the editor is refused", func() error {
		if got := e.forbidden.Load(); got < 4 {
			return fmt.Errorf("%d refusals", got)
		}
		return nil
	})
}

// created are the names of the pods that were ever created.
func (e *plantingEditor) created() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.pods, " ")
}

// stalls waits until all NodeJobs that have a planted script now are Stalled for a reason.
func (e *plantingEditor) stalls(reason, message string) {
	e.f.T.Helper()
	var before v1alpha1.NodeJobList
	must(e.f.T, e.f.admin.List(e.f.Ctx, &before, client.InNamespace(e.f.Namespace)))
	e.f.Within(time.Minute, 100*time.Millisecond, "what was planted is Stalled with "+reason, func() error {
		var jobs v1alpha1.NodeJobList
		must(e.f.T, e.f.admin.List(e.f.Ctx, &jobs, client.InNamespace(e.f.Namespace)))
		jobs.Items = slices.DeleteFunc(jobs.Items, func(job v1alpha1.NodeJob) bool {
			return !slices.ContainsFunc(before.Items, func(o v1alpha1.NodeJob) bool { return o.UID == job.UID })
		})
		found := 0
		for i := range jobs.Items {
			job := &jobs.Items[i]
			if !strings.Contains(job.Spec.Task.Script, planted) {
				continue
			}
			found++
			c := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionStalled)
			if c == nil || c.Reason != reason || !strings.Contains(c.Message, message) {
				return fmt.Errorf("NodeJob %s: %+v", job.Name, c)
			}
		}
		if found == 0 {
			return errors.New("there is none")
		}
		return nil
	})
}

// plantedServer is a server with an installation, the NodeJob of an administrator, and an editor who writes scripts all the time.
type plantedServer struct {
	*plantingEditor
	manager *rest.Config
	stop    func() error
	theirs  *v1alpha1.NodeJob
	allowed string
}

// plant runs a manager on a server on which Everynode is installed, and waits until the NodeJob of an administrator runs and the
// editor is refused.
func (f *freshServer) plant() *plantedServer {
	f.T.Helper()
	f.Namespace = "jobs"
	must(f.T, f.admin.Create(f.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "privileged", v1alpha1.EnabledLabel: v1alpha1.EnabledValue,
	}}}))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	must(f.T, f.admin.Create(f.Ctx, node))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	must(f.T, f.admin.Status().Update(f.Ctx, node))
	user, err := f.env.AddUser(envtest.User{Name: policies.Account}, nil)
	must(f.T, err)
	p := &plantedServer{
		manager: user.Config(),
		theirs:  &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "theirs"}},
	}
	asManager, err := client.New(p.manager, client.Options{Scheme: scheme, Mapper: uninstall.Mapper()})
	must(f.T, err)
	must(f.T, uninstall.ProtectRights(f.Ctx, asManager))
	p.stop = f.manage(p.manager)
	p.theirs.Spec.Nodes, p.theirs.Spec.Task.Script = allNodes(), "true"
	f.runs(p.theirs)
	p.plantingEditor = f.plantingEditor()
	p.isRefused()
	p.allowed = p.created()
	return p
}

// runs creates the NodeJob of an administrator, who confirms it if needed.
func (f *freshServer) runs(job *v1alpha1.NodeJob) {
	f.T.Helper()
	f.Eventually("the NodeJob of an administrator is created, and runs", func() error {
		_ = f.admin.Create(f.Ctx, job.DeepCopy())
		live := &v1alpha1.NodeJob{}
		if err := f.admin.Get(f.Ctx, client.ObjectKeyFromObject(job), live); err != nil {
			return err
		}
		if live.Status.ControllerState.Authorization != nil &&
			live.Status.ControllerState.Authorization.State == v1alpha1.AuthorizationUnconfirmed {
			_ = f.admin.Patch(f.Ctx, live, mergePatch(`{"metadata":{"annotations":{"everynode.dev/retry":"1"}}}`))
		}
		var pods corev1.PodList
		must(f.T, f.admin.List(f.Ctx, &pods, client.InNamespace(f.Namespace)))
		if len(pods.Items) != 1 {
			return fmt.Errorf("there are %d pods; the status is %+v", len(pods.Items), live.Status)
		}
		return nil
	})
}

// ranNothing checks that no pod was created for the editor.
func (p *plantedServer) ranNothing() {
	p.f.T.Helper()
	if got := p.created(); got != p.allowed {
		p.f.T.Fatalf("pods were created: %s, and only %s may be", got, p.allowed)
	}
}

// TestNoScriptRunsThatWasWrittenWithoutPolicies removes and installs the policies in different ways, while an editor writes scripts
// all the time.
func TestNoScriptRunsThatWasWrittenWithoutPolicies(t *testing.T) {
	f := startFresh(t)
	f.installed()
	e := f.plant()
	config, theirs, stop, ok := e.manager, e.theirs, e.stop, e.ranNothing

	// An administrator deletes one binding by hand.
	must(t, f.kubectl("delete validatingadmissionpolicybinding everynode-nodejobs"))
	e.getsIn()
	e.stalls(
		v1alpha1.ReasonPoliciesMissing,
		"ValidatingAdmissionPolicyBinding everynode-nodejobs is not installed. Install the policies of this version: kubectl apply -k config/default",
	)
	must(t, f.kubectl("apply -k ../../config/authorization"))
	e.isRefused()
	e.stalls(v1alpha1.ReasonNotAuthorized, "annotate nodejob")
	ok()

	// An administrator changes one, and changes it back.
	must(t, f.kubectl(`patch validatingadmissionpolicybinding everynode-nodejobs --type=merge -p={"spec":{"validationActions":["Warn"]}}`))
	e.getsIn()
	e.stalls(
		v1alpha1.ReasonPoliciesMissing,
		"spec.validationActions, which lacks Deny, of ValidatingAdmissionPolicyBinding everynode-nodejobs",
	)
	must(t, f.kubectl("apply -k ../../config/authorization"))
	e.isRefused()
	e.stalls(v1alpha1.ReasonNotAuthorized, "annotate nodejob")
	ok()

	// An administrator gives one a parameter, which the policy does not have.
	must(
		t,
		f.kubectl(
			`patch validatingadmissionpolicybinding everynode-nodejobs --type=merge -p={"spec":{"paramRef":{"name":"x","parameterNotFoundAction":"Allow"}}}`,
		),
	)
	e.stalls(
		v1alpha1.ReasonPoliciesMissing,
		"spec.paramRef of ValidatingAdmissionPolicyBinding everynode-nodejobs is not that of this version of the manager. If another client has added this field, delete the object first",
	)
	must(t, f.kubectl("delete validatingadmissionpolicybinding everynode-nodejobs"))
	must(t, f.kubectl("apply -k ../../config/authorization"))
	e.isRefused()
	e.stalls(v1alpha1.ReasonNotAuthorized, "annotate nodejob")
	ok()

	// The policies are away while no manager runs, as between two installations.
	live := &v1alpha1.NodeJob{}
	must(t, f.admin.Get(f.Ctx, client.ObjectKeyFromObject(theirs), live))
	earlier := live.Status.ControllerState.Authorization.Policies
	must(t, stop())
	must(t, f.kubectl("delete -k ../../config/authorization"))
	e.getsIn()
	must(t, f.kubectl("apply -k ../../config/authorization"))
	e.isRefused()
	stop = f.manage(config)
	f.Eventually("the manager has judged the NodeJob by the new policies", func() error { // its status says the same as before
		must(t, f.admin.Get(f.Ctx, client.ObjectKeyFromObject(theirs), live))
		if live.Status.ControllerState.Authorization.Policies == earlier {
			return fmt.Errorf("it is %+v", live.Status.ControllerState.Authorization)
		}
		return nil
	})
	e.stalls(v1alpha1.ReasonNotAuthorized, "annotate nodejob")
	ok()

	// A user with the rights confirms one.
	must(t, f.admin.Get(f.Ctx, client.ObjectKeyFromObject(theirs), live))
	must(t, f.admin.Patch(f.Ctx, live, mergePatch(`{"metadata":{"annotations":{"everynode.dev/retry":"confirmed"}}}`)))
	f.Eventually("what is confirmed is authorized", func() error {
		must(t, f.admin.Get(f.Ctx, client.ObjectKeyFromObject(theirs), live))
		if a := live.Status.ControllerState.Authorization; a == nil || a.State != v1alpha1.AuthorizationAuthorized {
			return fmt.Errorf("it is %+v", a)
		}
		return nil
	})
	e.allowed = e.created()

	// The installation is deleted: the policies go at once, and the CRDs stay while the NodeJob has a rollback, which must not run.
	must(t, f.withDefault("delete --wait=false --ignore-not-found"))
	f.Within(time.Minute, 100*time.Millisecond, "the deletion waits without a rollback", func() error {
		if err := f.admin.Get(f.Ctx, client.ObjectKeyFromObject(theirs), live); err != nil {
			return err
		}
		c := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionStalled)
		if live.DeletionTimestamp.IsZero() || c == nil || c.Status != metav1.ConditionTrue ||
			c.Reason != v1alpha1.ReasonPoliciesMissing && c.Reason != v1alpha1.ReasonInstallationTerminating {
			return fmt.Errorf("it is deleted at %v, and %+v", live.DeletionTimestamp, c)
		}
		return nil
	})
	ok()
	must(t, stop())
}

// manage runs a manager on the server.
func (f *freshServer) manage(config *rest.Config) (stop func() error) {
	f.T.Helper()
	cacheOptions, err := controller.CacheOptions(seal.Key{})
	must(f.T, err)
	stop, err = runManager(config, cacheOptions, noFaults, nil, time.Now)
	must(f.T, err)
	f.T.Cleanup(func() { _ = stop() })
	return stop
}

// TestAManagerOfASecondInstallationDoesNotStart : the policies name one ServiceAccount.
func TestAManagerOfASecondInstallationDoesNotStart(t *testing.T) {
	for namespace, want := range map[string]string{
		"everynode-system": "",
		"other":            "install it in namespace everynode-system with ServiceAccount everynode-manager, once in each cluster",
	} {
		as := rest.CopyConfig(env.Config)
		as.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + namespace + ":everynode-manager",
			Groups:   []string{"system:serviceaccounts", "system:authenticated"},
		}
		c, err := client.New(as, client.Options{Scheme: scheme})
		must(t, err)
		if err := policies.CheckAccount(
			t.Context(),
			c,
		); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("in namespace %s: %v, want %q", namespace, err, want)
		}
	}
}
