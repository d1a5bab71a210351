// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/uninstall"
)

// removable is an API server on which Everynode is installed.
type removable struct {
	*freshServer
	config     *rest.Config
	kubeconfig string
}

func newRemovable(t *testing.T) *removable {
	t.Helper()
	f := &removable{freshServer: startFresh(t)}
	user, err := f.env.AddUser(envtest.User{Name: "uninstaller", Groups: []string{"system:masters"}}, nil)
	must(t, err)
	f.config = user.Config()
	content, err := user.KubeConfig()
	must(t, err)
	f.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(f.kubeconfig, content, 0o600))
	return f
}

func (f *removable) uninstall(kubeconfig string, args ...string) told {
	f.T.Helper()
	var out, errs bytes.Buffer
	code := cli.Run(
		f.T.Context(),
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs},
		append([]string{"uninstall", "--kubeconfig", kubeconfig}, args...),
	)
	return told{code, out.String(), errs.String()}
}

// playControllers simulates missing controllers: it ends namespaces and pods.
func (f *removable) playControllers(ctx context.Context) {
	for ctx.Err() == nil {
		var pods corev1.PodList
		_ = f.admin.List(ctx, &pods)
		for i := range pods.Items {
			if pod := &pods.Items[i]; !pod.DeletionTimestamp.IsZero() && len(pod.Finalizers) == 0 {
				_ = f.admin.Delete(ctx, pod, client.GracePeriodSeconds(0))
			}
		}
		namespace := &corev1.Namespace{}
		if err := f.admin.Get(
			ctx,
			client.ObjectKey{Name: uninstall.Namespace},
			namespace,
		); err == nil &&
			!namespace.DeletionTimestamp.IsZero() {
			f.endNamespace(ctx, namespace)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (f *removable) endNamespace(ctx context.Context, namespace *corev1.Namespace) {
	in := client.InNamespace(namespace.Name)
	for _, o := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}, &corev1.ResourceQuota{}, &appsv1.Deployment{}} {
		_ = f.admin.DeleteAllOf(ctx, o, in)
	}
	var accounts corev1.ServiceAccountList
	if err := f.admin.List(ctx, &accounts, in); err != nil || len(accounts.Items) > 0 {
		return // a finalizer holds the namespace
	}
	namespace.Spec.Finalizers = nil
	_ = f.admin.SubResource("finalize").Update(ctx, namespace)
}

const (
	keepsJob   = "default.everynode.dev/keeps"
	forgetsJob = "default.everynode.dev/forgets"
)

// putEverythingToUse creates the state that a manager leaves if it is killed during all kinds of work.
func (f *removable) putEverythingToUse() {
	f.T.Helper()
	for _, job := range []*v1alpha1.NodeJob{
		{ObjectMeta: metav1.ObjectMeta{Name: "keeps"}, Spec: v1alpha1.NodeJobSpec{DeletionPolicy: v1alpha1.DeletionRetain}},
		{ObjectMeta: metav1.ObjectMeta{Name: "forgets"}, Spec: v1alpha1.NodeJobSpec{Gate: &v1alpha1.GateSpec{Key: "example.com/setup"}}},
	} {
		job.Spec.Nodes = allNodes()
		job.Namespace, job.Finalizers, job.Spec.Task.Script = "default", []string{v1alpha1.NodeJobFinalizer}, "true"
		f.create(job)
	}
	g := &v1alpha1.NodeGuard{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "storage"},
		Spec:       v1alpha1.NodeGuardSpec{Target: v1alpha1.GuardTarget{DaemonSet: "storage"}},
	}
	f.create(g)
	f.create(guard.NewBudget(g, guard.BudgetState{}))
	f.create(&v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "everything"},
		Spec:       v1alpha1.NodeDisruptionBudgetSpec{Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(1))}}},
	})

	ours := corev1.Taint{Key: "example.com/setup", Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule}
	registered := corev1.Taint{Key: "example.com/setup", Value: "by-the-kubelet", Effect: corev1.TaintEffectNoSchedule}
	theirs := corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	f.bare("gated", corev1.NodeSpec{Taints: []corev1.Taint{ours, theirs}}, map[string]string{v1alpha1.BreakGlassAnnotation: "fire"})
	f.bare("registered", corev1.NodeSpec{Taints: []corev1.Taint{registered}}, nil)
	f.bare("cordoned", corev1.NodeSpec{Unschedulable: true}, map[string]string{v1alpha1.CordonedAnnotation: forgetsJob})
	f.bare("cordoned-by-others", corev1.NodeSpec{Unschedulable: true}, map[string]string{"example.com/why": "disk"})
	done := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "done",
			Labels: map[string]string{"example.com/kernel": "6.1", "example.com/site": "a", "topology.kubernetes.io/zone": "z"},
		},
	}
	for _, key := range []string{keepsJob, forgetsJob} {
		record.SetOn(done, key, record.Record{Revision: "r", Outcome: record.Succeeded, FinishedAt: time.Now()})
		done.Labels[key] = "r"
	}
	done.Annotations[v1alpha1.PublishedAnnotation] = fmt.Sprintf(
		`{"labels":{"example.com/kernel":%q,"example.com/site":%q,"topology.kubernetes.io/zone":%q}}`,
		forgetsJob,
		keepsJob,
		forgetsJob,
	)
	f.create(done)

	// Only the manager may create such pods, and no manager runs here.
	for _, binding := range []string{"everynode-pods", "everynode-pods-of-nodeguards"} {
		must(f.T, f.kubectl(`patch validatingadmissionpolicybinding `+binding+` --type=merge -p {"spec":{"validationActions":["Warn"]}}`))
	}
	for name, change := range map[string]func(*corev1.Pod){
		"task": func(pod *corev1.Pod) {
			pod.Labels, pod.Finalizers = map[string]string{v1alpha1.NodeJobLabel: "forgets"}, []string{v1alpha1.PodFinalizer}
		},
		"task-with-another-finalizer": func(pod *corev1.Pod) {
			pod.Labels, pod.Finalizers = map[string]string{v1alpha1.NodeJobLabel: "forgets"}, []string{"example.com/theirs", v1alpha1.PodFinalizer}
		},
		"companion": func(pod *corev1.Pod) {
			pod.Labels, pod.Annotations = map[string]string{v1alpha1.NodeGuardLabel: "storage"}, map[string]string{v1alpha1.NodeGuardUIDAnnotation: "uid"}
		},
		"workload": func(*corev1.Pod) {},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
			NodeName:                      "gated",
			AutomountServiceAccountToken:  new(bool),
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers:                    []corev1.Container{{Name: "c", Image: "i"}},
		}}
		change(pod)
		f.Eventually("the policies only warn", func() error { return f.admin.Create(f.T.Context(), pod.DeepCopy()) })
	}
}

func (f *removable) create(o client.Object) {
	f.T.Helper()
	must(f.T, f.admin.Create(f.T.Context(), o))
}

func (f *removable) bare(name string, spec corev1.NodeSpec, annotations map[string]string) {
	f.T.Helper()
	f.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: spec})
	// The admission policy may have added a gate, if it has seen the NodeJob by now.
	live := &corev1.Node{}
	must(f.T, f.admin.Get(f.T.Context(), client.ObjectKey{Name: name}, live))
	live.Spec.Taints = spec.Taints
	must(f.T, f.admin.Update(f.T.Context(), live))
}

// wantNothingLeft checks that all objects of Everynode are deleted, and no others.
func (f *removable) wantNothingLeft() {
	f.T.Helper()
	ctx := f.T.Context()
	var pod corev1.Pod
	must(f.T, f.admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: "task-with-another-finalizer"}, &pod))
	if !slices.Equal(pod.Finalizers, []string{"example.com/theirs"}) {
		f.T.Errorf("the pod has the finalizers %v", pod.Finalizers)
	}
	must(f.T, f.admin.Patch(ctx, &pod, mergePatch(`{"metadata":{"finalizers":null}}`)))
	f.Eventually("only the pod of others is left", func() error {
		var pods corev1.PodList
		must(f.T, f.admin.List(ctx, &pods))
		if len(pods.Items) != 1 || pods.Items[0].Name != "workload" {
			return fmt.Errorf("%d pods are there, the first is %s", len(pods.Items), pods.Items[0].Name)
		}
		return nil
	})
	must(f.T, f.admin.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "workload"}}))
	var nodes corev1.NodeList
	must(f.T, f.admin.List(ctx, &nodes))
	got := map[string]string{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		keys := slices.Sorted(maps.Keys(node.Annotations))
		keys = append(keys, slices.Sorted(maps.Keys(node.Labels))...)
		got[node.Name] = fmt.Sprintf("%v %v %v", gatesOn(node), node.Spec.Unschedulable, keys)
	}
	want := map[string]string{
		"gated":              "[dedicated=gpu:NoSchedule] false []",
		"registered":         "[] false []",
		"cordoned":           "[] false []",
		"cordoned-by-others": "[] true [example.com/why]",
		"done": "[] false [everynode.dev/published " + keepsJob + " " + keepsJob + " " + record.SealKey(
			keepsJob,
		) + " example.com/site topology.kubernetes.io/zone]",
	}
	if strings.Contains(f.T.Name(), "with_records") {
		want["done"] = "[] false [topology.kubernetes.io/zone]"
	}
	want["done"] = sortedFields(want["done"])
	got["done"] = sortedFields(got["done"])
	for name := range want {
		if got[name] != want[name] {
			f.T.Errorf("node %s is %s, want %s", name, got[name], want[name])
		}
	}
	for _, list := range []client.ObjectList{&policyv1.PodDisruptionBudgetList{}, &admissionv1.MutatingAdmissionPolicyList{}, &admissionv1.MutatingAdmissionPolicyBindingList{}, &admissionv1.ValidatingAdmissionPolicyList{},
		&admissionv1.ValidatingAdmissionPolicyBindingList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}} {
		must(f.T, uninstall.Each(ctx, f.admin, list, func(o client.Object) error {
			if strings.HasPrefix(o.GetName(), "everynode") || strings.HasPrefix(o.GetName(), "storage") {
				f.T.Errorf("%T %s is left", o, o.GetName())
			}
			return nil
		}))
	}
	if err := f.kubectl(
		"get crd nodejobs.everynode.dev nodeguards.everynode.dev",
	); err == nil ||
		strings.Count(err.Error(), "NotFound") != 2 {
		f.T.Errorf("the CRDs: %v", err)
	}
	if err := f.kubectl("get namespace " + uninstall.Namespace); err == nil {
		f.T.Error("the namespace is left")
	}
}

func sortedFields(s string) string {
	fields := strings.Fields(strings.NewReplacer("[", " ", "]", " ").Replace(s))
	slices.Sort(fields)
	return strings.Join(fields, " ")
}

// versions are those of all objects that an uninstall changes first.
func (f *removable) versions() string {
	f.T.Helper()
	var all []string
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &corev1.PodList{}, &v1alpha1.NodeJobList{}, &v1alpha1.NodeGuardList{}, &appsv1.DeploymentList{}, &rbacv1.ClusterRoleList{}} {
		must(f.T, uninstall.Each(f.T.Context(), f.admin, list, func(o client.Object) error {
			all = append(all, o.GetName()+"="+o.GetResourceVersion())
			return nil
		}))
	}
	return strings.Join(all, " ")
}

// through returns a kubeconfig for an API server that only answers what is allowed.
func (f *removable) through(allow func(*http.Request) bool) (kubeconfig string, end func()) {
	f.T.Helper()
	target, err := url.Parse(f.config.Host)
	must(f.T, err)
	if target.Host == "" {
		target = &url.URL{Scheme: "https", Host: f.config.Host}
	}
	transport, err := rest.TransportFor(f.config)
	must(f.T, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allow(r) {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	path := filepath.Join(f.T.TempDir(), "through")
	must(f.T, os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`, server.URL), 0o600))
	return path, server.Close
}
