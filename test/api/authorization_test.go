// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/rights"
)

const (
	managerUser = "system:serviceaccount:everynode-system:everynode-manager"
	gitOpsUser  = "system:serviceaccount:flux-system:kustomize-controller"
	template    = "task: {template: {spec: {containers: [{name: a, image: b}]}}}"

	// What a requester may lack, besides the rights on nodes.
	pods    = "create pods"
	budgets = "create poddisruptionbudgets.policy"
	// canI is the command that prints the narrowest grant. No message recommends a role of its own.
	canI = "To see the commands that grant it: kubectl everynode can-i -f FILE"
	// rbac are requests that RBAC refuses before the policies are asked.
	rbac = "rbac"
	// confined stands for what the policies of config/confinement refuse to the manager.
	confined = "confined"
	// managers are requests that are refused to all but the manager.
	managers = "managers"
)

// requester is a user, and which rights it has.
type requester struct {
	user string
	// has are the rights on nodes of the namespace, and on objects in it.
	has []string
	// binds gives the user its roles.
	binds func(w *world, user string)
}

// requesters are the users of the matrix.
var requesters = map[string]requester{
	"a tenant with * in the namespace": {"tenant", []string{pods, budgets}, func(w *world, user string) {
		w.bind(user, "cluster-admin", false)
		w.bind(user, "everynode-all-effects", false) // a RoleBinding has no effect
	}},
	"an editor without rights": {"editor", nil, (*world).edits},
	"a disruptor": {"disruptor", []string{rights.Disrupt}, func(w *world, user string) {
		w.edits(user)
		w.onNodes(user, w.Namespace, rights.Disrupt)
	}},
	"an editor with all rights in the namespace": {
		"full-editor",
		append([]string{pods, budgets}, allEffects...),
		func(w *world, user string) {
			w.edits(user)
			w.onNodes(user, w.Namespace, allEffects...)
			w.allow(user, false, rule("", []string{"create"}, "pods"), rule("policy", []string{"create"}, "poddisruptionbudgets"))
		},
	},
	"an editor with all rights in another namespace": {"other-editor", nil, func(w *world, user string) {
		w.edits(user)
		w.onNodes(user, "another", allEffects...)
	}},
	"a cluster admin": {"cluster-admin-user", append([]string{pods, budgets}, allEffects...), func(w *world, user string) {
		w.bind(user, "cluster-admin", true)
	}},
	"a GitOps controller without rights": {gitOpsUser, nil, (*world).edits},
	"a GitOps controller with everynode-all-effects": {
		"system:serviceaccount:argocd:application-controller",
		effects,
		func(w *world, user string) {
			w.edits(user)
			w.bind(user, "everynode-all-effects", true)
		},
	},
	"the manager": {managerUser, nil, func(*world, string) {}},
}

// rightsAreKnown waits until the API server has seen the bindings of a requester.
func (w *world) rightsAreKnown(r requester) {
	w.T.Helper()
	asked := []authorizationv1.ResourceAttributes{{Verb: "patch", Resource: "configmaps", Namespace: w.Namespace}}
	if r.user == managerUser {
		asked = nil
	}
	for _, right := range r.has {
		switch right {
		case pods:
			asked = append(asked, authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: w.Namespace})
		case budgets:
			asked = append(
				asked,
				authorizationv1.ResourceAttributes{
					Verb:      "create",
					Group:     "policy",
					Resource:  "poddisruptionbudgets",
					Namespace: w.Namespace,
				},
			)
		default:
			asked = append(
				asked,
				authorizationv1.ResourceAttributes{
					Verb:        right,
					Group:       v1alpha1.Group,
					Resource:    "nodejobs",
					Subresource: "nodes",
					Name:        w.Namespace,
				},
			)
		}
	}
	for _, attributes := range asked {
		w.Eventually(fmt.Sprintf("%s may %s %s", r.user, attributes.Verb, attributes.Resource), func() error {
			review := &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: r.user, ResourceAttributes: &attributes},
			}
			if err := admin.Create(w.Ctx, review); err != nil || !review.Status.Allowed {
				return fmt.Errorf("the API server says %+v, %w", review.Status, err)
			}
			return nil
		})
	}
}

// action is a request, and which rights it needs, in the order in which the policies ask for them.
type action struct {
	needs []string
	do    func(w *world, c client.Client) error
	// manager is why the manager may not do it: rbac or confined; "" if it may.
	manager string
	// managers are requests that only the manager may make.
	managers bool
	// noRole are requests that no role for users allows, apart from those with *.
	noRole bool
}

// creates returns a request that creates a NodeJob with this spec.
func creates(spec string) func(*world, client.Client) error {
	return func(w *world, c client.Client) error {
		return c.Create(w.Ctx, jobFromYAML(w.T, w.Namespace, "new", spec), client.DryRunAll)
	}
}

// guards returns a request that creates a NodeGuard with this spec.
func guards(spec string) func(*world, client.Client) error {
	return func(w *world, c client.Client) error {
		return c.Create(w.Ctx, guardFromYAML(w.T, w.Namespace, "new", spec), client.DryRunAll)
	}
}

// patches returns a request that patches an object of prepare.
func patches(o client.Object, patch string) func(*world, client.Client) error {
	return func(w *world, c client.Client) error {
		o := o.DeepCopyObject().(client.Object)
		o.SetNamespace(w.Namespace)
		return c.Patch(w.Ctx, o, mergePatch(patch), client.DryRunAll)
	}
}

// deletes returns a request that deletes an object of prepare.
func deletes(o client.Object) func(*world, client.Client) error {
	return func(w *world, c client.Client) error {
		o := o.DeepCopyObject().(client.Object)
		o.SetNamespace(w.Namespace)
		return c.Delete(w.Ctx, o, client.DryRunAll)
	}
}

func nodeJob(name string) client.Object {
	return &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func configMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// prepare creates the objects that the actions change. All of them are dry runs.
func (w *world) prepare() {
	w.T.Helper()
	for name, spec := range map[string]string{
		"script":    `{task: {script: "true"}}`,
		"expires":   `{task: {script: "true"}, ttlSecondsAfterFinished: 60}`,
		"templated": template,
		"gated":     template + "\ngate: {}",
		"publishes": template + "\npublish: [{result: a, label: x.test/a}]",
		"drains":    `{task: {script: "true"}, maintenance: {drain: {}}}`,
		"cordons":   template + "\nonFailure: {action: Cordon}",
		"undone":    `{task: {script: "true"}, rollback: {script: undo}, deletionPolicy: Rollback}`,
		"undoes":    template + "\nrollback: {script: undo}",
		"repairs":   `{task: {script: "true", check: {script: "true", periodSeconds: 60, onDrift: Run}}}`,
		"retained":  template + "\npublish: [{result: a, label: x.test/a}]\ndeletionPolicy: Retain",
	} {
		job := jobFromYAML(w.T, w.Namespace, name, spec)
		if name != "script" {
			job.SetFinalizers([]string{v1alpha1.NodeJobFinalizer})
		}
		must(w.T, admin.Create(w.Ctx, job))
	}
	must(w.T, admin.Create(w.Ctx, guardFromYAML(w.T, w.Namespace, "guard", `{target: {daemonSet: a}}`)))
	for _, o := range []*corev1.ConfigMap{configMap("labeled", scriptLabel), configMap("plain", nil)} {
		o.Namespace, o.Data = w.Namespace, map[string]string{"sh": "true"}
		must(w.T, admin.Create(w.Ctx, o))
	}
}

// withoutFinalizer ends a NodeJob that is being deleted without what its deletion does.
const withoutFinalizer = `{"metadata":{"finalizers":null}}`

// actions are the requests of the matrix.
var actions = map[string]action{
	"create a NodeJob with a script": {
		needs:   []string{rights.RunAsRoot},
		do:      creates(`{task: {script: "true"}}`),
		manager: rbac,
	},
	"create a NodeJob with a template": {needs: []string{pods}, do: creates(template), manager: rbac},
	"create a NodeJob that drains": {
		needs:   []string{rights.Disrupt, pods},
		do:      creates(template + "\nmaintenance: {drain: {}}"),
		manager: rbac,
	},
	"create a NodeJob that ignores windows": {
		needs:   []string{rights.IgnoreWindows, pods},
		do:      creates(template + "\nmaintenance: {ignoreWindowsOn: [a]}"),
		manager: rbac,
	},
	"create a NodeJob with a gate": {needs: []string{rights.Gate, pods}, do: creates(template + "\ngate: {}"), manager: rbac},
	"create a NodeJob that publishes": {
		needs:   []string{rights.Label, pods},
		do:      creates(template + "\npublish: [{result: a, label: x.test/a}]"),
		manager: rbac,
	},
	"create a NodeJob that removes labels": {
		needs:   []string{rights.Label, pods},
		do:      creates(template + "\nremoveLabels: [x.test/a]"),
		manager: rbac,
	},
	"create a NodeJob that reboots": {
		needs:   []string{rights.RunAsRoot, rights.Disrupt, pods},
		do:      creates(template + "\nmaintenance: {reboot: {policy: Always}}"),
		manager: rbac,
	},
	"create a NodeJob that drains failed nodes": {
		needs:   []string{rights.Disrupt, pods},
		do:      creates(template + "\nonFailure: {action: Drain}"),
		manager: rbac,
	},
	"change the spec of a NodeJob": {
		needs:   []string{rights.RunAsRoot},
		do:      patches(nodeJob("script"), `{"spec":{"suspend":true}}`),
		manager: rights.RunAsRoot,
	},
	"add a script to a template": {
		needs:   []string{rights.RunAsRoot, pods},
		do:      patches(nodeJob("templated"), `{"spec":{"rollback":{"script":"a"}}}`),
		manager: rights.RunAsRoot,
	},
	"change only the metadata of a NodeJob": {do: patches(nodeJob("script"), `{"metadata":{"labels":{"a":"b"}}}`), manager: confined},
	"add the finalizer to a NodeJob": {
		do: patches(nodeJob("script"), `{"metadata":{"finalizers":["everynode.dev/node-records"]}}`),
	},
	"apply a NodeJob without a change": {do: patches(nodeJob("script"), `{"spec":{"task":{"script":"true"}}}`)},
	"request a retry": {
		needs:   []string{rights.RunAsRoot},
		do:      patches(nodeJob("script"), `{"metadata":{"annotations":{"everynode.dev/retry":"1"}}}`),
		manager: rights.RunAsRoot,
	},
	"let a NodeJob take over nodes": {
		needs:   []string{rights.RunAsRoot},
		do:      patches(nodeJob("script"), `{"metadata":{"annotations":{"everynode.dev/take-over":"node-1"}}}`),
		manager: rights.RunAsRoot,
	},
	"let a NodeJob that cordons take over nodes": {
		needs:   []string{rights.RunAsRoot, rights.Disrupt},
		do:      patches(nodeJob("drains"), `{"metadata":{"annotations":{"everynode.dev/take-over":"node-1"}}}`),
		manager: rights.RunAsRoot,
	},
	"delete a NodeJob":                          {do: deletes(nodeJob("script")), manager: confined},
	"delete a NodeJob with a time to live":      {do: deletes(nodeJob("expires"))},
	"delete a NodeJob that is then rolled back": {needs: []string{rights.RunAsRoot}, do: deletes(nodeJob("undone")), manager: confined},
	"delete a NodeJob with a gate":              {needs: []string{rights.Gate}, do: deletes(nodeJob("gated")), manager: confined},
	"delete a NodeJob that has published":       {needs: []string{rights.Label}, do: deletes(nodeJob("publishes")), manager: confined},
	"delete a NodeJob that cordons":             {needs: []string{rights.Disrupt}, do: deletes(nodeJob("cordons")), manager: confined},
	"remove a gate": {
		needs:   []string{rights.Gate, pods},
		do:      patches(nodeJob("gated"), `{"spec":{"gate":null}}`),
		manager: rights.Gate,
	},
	"remove what is published": {
		needs:   []string{rights.Label, pods},
		do:      patches(nodeJob("publishes"), `{"spec":{"publish":null}}`),
		manager: rights.Label,
	},
	"uncordon failed nodes": {
		needs:   []string{rights.Disrupt, pods},
		do:      patches(nodeJob("cordons"), `{"spec":{"onFailure":null}}`),
		manager: rights.Disrupt,
	},
	"delete a NodeJob that repairs drift": {needs: []string{rights.RunAsRoot}, do: deletes(nodeJob("repairs")), manager: confined},
	"remove the repair of drift": {
		needs: []string{
			rights.RunAsRoot,
		},
		do:      patches(nodeJob("repairs"), `{"spec":{"task":{"check":{"onDrift":"Report"}}}}`),
		manager: rights.RunAsRoot,
	},
	"remove the rollback of a template": {
		needs: []string{rights.RunAsRoot, pods}, do: patches(nodeJob("undoes"), `{"spec":{"rollback":null}}`), manager: rights.RunAsRoot,
	},
	"replace a script and its rollback by a template": {
		needs:   []string{rights.RunAsRoot, pods},
		manager: rights.RunAsRoot,
		do: patches(nodeJob("undone"), `{"spec":{"deletionPolicy":"Forget","rollback":null,"task":{"script":null,`+
			`"template":{"spec":{"containers":[{"name":"a","image":"b"}]}}}}}`),
	},
	"remove the finalizer of a NodeJob that leaves records only": {do: patches(nodeJob("expires"), withoutFinalizer)},
	"remove the finalizer of a NodeJob that retains labels":      {do: patches(nodeJob("retained"), withoutFinalizer)},
	"remove the finalizer of a NodeJob that is rolled back": {
		needs: []string{rights.RunAsRoot}, do: patches(nodeJob("undone"), withoutFinalizer),
	},
	"remove the finalizer of a NodeJob that repairs drift": {
		needs: []string{rights.RunAsRoot}, do: patches(nodeJob("repairs"), withoutFinalizer),
	},
	"remove the finalizer of a NodeJob with a gate": {needs: []string{rights.Gate}, do: patches(nodeJob("gated"), withoutFinalizer)},
	"remove the finalizer of a NodeJob that has published": {
		needs: []string{rights.Label}, do: patches(nodeJob("publishes"), withoutFinalizer),
	},
	"remove the finalizer of a NodeJob that cordons": {needs: []string{rights.Disrupt}, do: patches(nodeJob("cordons"), withoutFinalizer)},
	"delete a collection of NodeJobs that is then rolled back": {
		needs:   []string{rights.RunAsRoot},
		noRole:  true,
		manager: rbac,
		do: func(w *world, c client.Client) error {
			return c.DeleteAllOf(
				w.Ctx,
				&v1alpha1.NodeJob{},
				client.InNamespace(w.Namespace),
				client.MatchingFields{"metadata.name": "undone"},
				&client.DeleteAllOfOptions{DeleteOptions: client.DeleteOptions{DryRun: []string{metav1.DryRunAll}}},
			)
		},
	},
	"change the status of a NodeJob": {noRole: true, managers: true, do: func(w *world, c client.Client) error {
		live := w.live("script")
		live.Status.Revision = "other"
		return c.Status().Update(w.Ctx, live, client.DryRunAll)
	}},
	"change the status of a NodeGuard": {noRole: true, managers: true, do: func(w *world, c client.Client) error {
		live := &v1alpha1.NodeGuard{}
		must(w.T, admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "guard"}, live))
		live.Status.Revision = "other"
		return c.Status().Update(w.Ctx, live, client.DryRunAll)
	}},
	"create a NodeGuard": {needs: []string{pods, budgets}, do: guards(`{target: {daemonSet: a}}`), manager: rbac},
	"create a NodeGuard with a script": {
		needs:   []string{rights.RunAsRoot, pods, budgets},
		do:      guards(`{target: {daemonSet: a}, release: {check: {script: "true"}}}`),
		manager: rbac,
	},
	"change the spec of a NodeGuard": {
		needs:   []string{pods, budgets},
		do:      patches(&v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}, `{"spec":{"maxUnavailable":2}}`),
		manager: rbac,
	},
	"change only the metadata of a NodeGuard": {
		do:      patches(&v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}, `{"metadata":{"labels":{"a":"b"}}}`),
		manager: rbac,
	},
	"create a ConfigMap with the label": {needs: []string{rights.RunAsRoot}, manager: rbac, do: func(w *world, c client.Client) error {
		o := configMap("new", scriptLabel)
		o.Namespace = w.Namespace
		return c.Create(w.Ctx, o, client.DryRunAll)
	}},
	"change a ConfigMap with the label": {
		needs:   []string{rights.RunAsRoot},
		do:      patches(configMap("labeled", nil), `{"data":{"sh":"reboot"}}`),
		manager: rbac,
	},
	"make a ConfigMap with the label immutable": {
		needs:   []string{rights.RunAsRoot},
		do:      patches(configMap("labeled", nil), `{"immutable":true}`),
		manager: rbac,
	},
	"change the metadata of a ConfigMap with the label": {
		do:      patches(configMap("labeled", nil), `{"metadata":{"annotations":{"a":"b"}}}`),
		manager: rbac,
	},
	"add the label to a ConfigMap": {
		needs:   []string{rights.RunAsRoot},
		do:      patches(configMap("plain", nil), `{"metadata":{"labels":{"everynode.dev/script":"true"}}}`),
		manager: rbac,
	},
	"remove the label of a ConfigMap": {
		needs:   []string{rights.RunAsRoot},
		do:      patches(configMap("labeled", nil), `{"metadata":{"labels":{"everynode.dev/script":null}}}`),
		manager: rbac,
	},
	"delete a ConfigMap with the label": {
		needs:   []string{rights.RunAsRoot},
		do:      deletes(configMap("labeled", nil)),
		manager: rbac,
	},
	"change a ConfigMap without the label": {do: patches(configMap("plain", nil), `{"data":{"sh":"reboot"}}`), manager: rbac},
	"delete a ConfigMap without the label": {do: deletes(configMap("plain", nil)), manager: rbac},
}

// TestWhoMayDoWhat has each requester do each action.
func TestWhoMayDoWhat(t *testing.T) {
	w := newWorld(t)
	w.rightsAreAsked()
	w.prepare()
	for name, r := range requesters {
		r.binds(w, r.user)
		w.rightsAreKnown(r)
		c := w.as(r.user)
		for did, a := range actions {
			t.Run(name+" may "+did, func(t *testing.T) {
				lacks := ""
				if i := slices.IndexFunc(a.needs, func(right string) bool { return !slices.Contains(r.has, right) }); i >= 0 {
					lacks = a.needs[i]
				}
				switch {
				case r.user == managerUser:
					lacks = a.manager
				case a.noRole && name != "a tenant with * in the namespace" && name != "a cluster admin":
					lacks = rbac
				case a.managers:
					lacks = managers
				}
				w.wants(t, a.do(w, c), lacks, r.user)
			})
		}
	}
}

// wants checks what the API server says to a request of a user who lacks a right; "" if it has all.
func (w *world) wants(t *testing.T, err error, lacks, user string) {
	t.Helper()
	switch {
	case lacks == "" && err != nil:
		t.Errorf("the API server says %v", err)
	case lacks == "":
	case !apierrors.IsForbidden(err):
		t.Errorf("the API server says %v, and should forbid it: the user lacks %s", err, lacks)
	case lacks == confined:
		wantText(t, err.Error(), "ValidatingAdmissionPolicy 'everynode-confine-nodejobs'", "Everynode's manager must ")
	case user == managerUser && lacks != rbac && strings.Contains(err.Error(), "'everynode-confine-nodejobs'"):
		// Both kinds of policies refuse what the manager changes in a spec, and the API server reports one of them.
	case lacks == rbac:
		wantText(t, err.Error(), `cannot `, ` resource `)
	case lacks == managers:
		wantText(
			t,
			err.Error(),
			"ValidatingAdmissionPolicy 'everynode-status'",
			w.Namespace+"/",
			"only Everynode's manager writes the status",
			"kubectl -n "+w.Namespace+" edit node",
		)
	case lacks == pods || lacks == budgets:
		wantText(
			t,
			err.Error(),
			"ValidatingAdmissionPolicy",
			w.Namespace+"/",
			user+" lacks the right to "+lacks+" in namespace "+w.Namespace,
			canI,
		)
	default:
		wantText(
			t,
			err.Error(),
			"ValidatingAdmissionPolicy",
			w.Namespace+"/",
			user+" lacks the right "+lacks+" for namespace "+w.Namespace,
			canI,
		)
	}
}

// While a namespace is deleted, nothing is rolled back, and its controllers must be able to delete all that is in it.
func TestANamespaceWithNodeJobsAndScriptsCanBeDeleted(t *testing.T) {
	w := newWorld(t)
	w.rightsAreAsked()
	w.prepare()
	controller := w.as("system:serviceaccount:kube-system:namespace-controller")
	undone, labeled := deletes(nodeJob("undone")), deletes(configMap("labeled", nil))
	for _, request := range []func(*world, client.Client) error{undone, labeled} {
		w.wants(t, request(w, controller), rights.RunAsRoot, "system:serviceaccount:kube-system:namespace-controller")
	}
	// The garbage collector deletes what has an owner, which each user who may write metadata can add.
	w.wants(
		t,
		undone(w, w.as("system:serviceaccount:kube-system:generic-garbage-collector")),
		rights.RunAsRoot,
		"system:serviceaccount:kube-system:generic-garbage-collector",
	)
	must(t, admin.Delete(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}))
	for _, request := range []func(*world, client.Client) error{undone, labeled} {
		w.Eventually("the namespace is known to be deleted", func() error { return request(w, controller) })
	}
}

// A user name that a shell would interpret must not become part of a command.
func TestMessagesContainNoCommandsOfUsers(t *testing.T) {
	w := newWorld(t)
	w.rightsAreAsked()
	const user = "a; reboot #"
	w.edits(user)
	err := creates(`{task: {script: "true"}}`)(w, w.as(user))
	if err == nil || strings.Contains(err.Error(), "reboot") {
		t.Errorf("the API server says %v", err)
	}
	wantText(t, err.Error(), "and USER lacks the right run-as-root", canI)
}
