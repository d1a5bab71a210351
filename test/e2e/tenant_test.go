// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/install"
)

// tenant is a user with all permissions in the namespace of its world, and none outside of it.
type tenant struct {
	*world
	user   string
	client client.Client
}

// newTenant makes a tenant of a namespace that may have NodeJobs, with the Pod Security level restricted.
func newTenant(t *testing.T) *tenant {
	t.Helper()
	w := newWorld(t)
	must(
		t,
		admin.Patch(
			w.Ctx,
			namespace(w.Namespace),
			mergePatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`),
		),
	)
	config, err := real.RESTConfig()
	must(t, err)
	tenant := &tenant{world: w, user: "tenant-of-" + w.Namespace}
	config.Impersonate.UserName = tenant.user
	tenant.client, err = client.New(config, client.Options{Scheme: admin.Scheme(), Mapper: admin.RESTMapper()})
	must(t, err)
	tenant.owns(w.Namespace)
	return tenant
}

// owns gives the tenant all permissions in a namespace.
func (w *tenant) owns(namespace string) {
	w.T.Helper()
	must(w.T, admin.Create(w.Ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: w.user}},
	}))
	w.Eventually("the tenant has its permissions", func() error {
		return w.client.List(w.Ctx, &corev1.SecretList{}, client.InNamespace(namespace))
	})
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// object is an object in the namespace of the tenant, from YAML without its metadata.
func (w *tenant) object(apiVersion, kind, name, content string) *unstructured.Unstructured {
	w.T.Helper()
	o := &unstructured.Unstructured{}
	must(w.T, yaml.Unmarshal([]byte(content), &o.Object))
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(w.Namespace)
	o.SetName(name)
	return o
}

func (w *tenant) nodeJob(name, spec string) *unstructured.Unstructured {
	if !strings.Contains(spec, "nodes:") {
		spec = "{" + ofNode2 + ", " + spec[1:]
	}
	return w.object(v1alpha1.GroupVersion.String(), "NodeJob", name, "spec: "+spec)
}

func (w *tenant) nodeGuard(name, spec string) *unstructured.Unstructured {
	return w.object(v1alpha1.GroupVersion.String(), "NodeGuard", name, "spec: "+spec)
}

func (w *tenant) configMap(name, content string) *unstructured.Unstructured {
	return w.object("v1", "ConfigMap", name, content)
}

// template is a pod that complies with the Pod Security level restricted.
const template = `template: {spec: {containers: [{name: own, image: ` + install.RunnerImage + `, args: [--version], securityContext: {allowPrivilegeEscalation: false, ` +
	`runAsNonRoot: true, runAsUser: 65532, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}}`

// ofNode2 selects the node that all tests share.
const ofNode2 = `nodes: {selector: {matchLabels: {kubernetes.io/hostname: node-2}}}`

// templated is the spec of a NodeJob with a template and more fields.
func templated(fields string) string {
	return "{" + ofNode2 + ", task: {" + template + "}" + fields + "}"
}

// attempt is a request of the tenant, and the right that it lacks, as the message says it.
type attempt struct {
	do    func() error
	lacks string
}

func (w *tenant) creates(o client.Object) func() error {
	return func() error { return w.client.Create(w.Ctx, o) }
}

func (w *tenant) patches(o client.Object, patch string, args ...any) func() error {
	return func() error { return w.client.Patch(w.Ctx, o, mergePatch(patch, args...)) }
}

// prepare creates what an administrator has in the namespace of the tenant, and a namespace that is not allowed.
func (w *tenant) prepare() (closed string) {
	w.T.Helper()
	for _, o := range []client.Object{
		w.nodeJob("script", `{suspend: true, task: {script: "true"}}`),
		w.nodeJob("undone", `{suspend: true, task: {script: "true"}, rollback: {script: "true"}, deletionPolicy: Rollback}`),
		w.configMap("scripts", `{metadata: {labels: {everynode.dev/script: "true"}}, data: {a: "true"}}`),
		w.configMap("plain", `{data: {a: reboot}}`),
	} {
		if o.GetName() == "scripts" {
			o.SetLabels(map[string]string{v1alpha1.ScriptLabel: v1alpha1.ScriptLabelValue})
		}
		must(w.T, admin.Create(w.Ctx, o))
	}
	closed = w.Namespace + "-b"
	must(w.T, admin.Create(w.Ctx, namespace(closed)))
	w.T.Cleanup(func() { must(w.T, client.IgnoreNotFound(admin.Delete(w.Ctx, namespace(closed)))) })
	w.owns(closed)
	return closed
}

// attempts are all ways to nodes.
func (w *tenant) attempts(closed string) map[string]attempt {
	const runAsRoot, disrupt, gate, label = "run-as-root", "disrupt", "gate", "label"
	scripts := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "scripts"}}
	plain := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "plain"}}
	labeled := w.configMap("mine", `{data: {a: "true"}}`)
	labeled.SetLabels(map[string]string{v1alpha1.ScriptLabel: v1alpha1.ScriptLabelValue})
	return map[string]attempt{
		"a script": {w.creates(w.nodeJob("x", `{task: {script: "true"}}`)), runAsRoot},
		"a script of an existing ConfigMap": {
			w.creates(w.nodeJob("x", `{task: {scriptFrom: {configMapKeyRef: {name: scripts, key: a}}}}`)),
			runAsRoot,
		},
		"a command":              {w.creates(w.nodeJob("x", `{task: {command: [reboot]}}`)), runAsRoot},
		"a rollback by a script": {w.creates(w.nodeJob("x", templated(`, rollback: {script: "true"}`))), runAsRoot},
		"a reboot": {
			w.creates(w.nodeJob("x", templated(`, maintenance: {reboot: {policy: Always}}`))),
			runAsRoot,
		},
		"a drain":                 {w.creates(w.nodeJob("x", templated(`, maintenance: {drain: {}}`))), disrupt},
		"a cordon":                {w.creates(w.nodeJob("x", templated(`, maintenance: {cordon: true}`))), disrupt},
		"a drain of failed nodes": {w.creates(w.nodeJob("x", templated(`, onFailure: {action: Drain}`))), disrupt},
		"a gate":                  {w.creates(w.nodeJob("x", templated(`, gate: {nodes: All}`))), gate},
		"a gate that ends pods":   {w.creates(w.nodeJob("x", templated(`, gate: {effect: NoExecute}`))), disrupt},
		"a label of nodes": {
			w.creates(w.nodeJob("x", templated(`, publish: [{result: a, label: x.test/a}]`))),
			label,
		},
		"the removal of labels": {w.creates(w.nodeJob("x", templated(`, removeLabels: [x.test/a]`))), label},
		"a NodeGuard with a script": {
			w.creates(w.nodeGuard("x", `{target: {daemonSet: a}, release: {check: {script: "true"}}}`)),
			runAsRoot,
		},
		"a change of a NodeJob of another user": {w.patches(w.nodeJob("script", "{}"), `{"spec":{"suspend":false}}`), runAsRoot},
		"a script in a NodeJob of another user": {
			w.patches(w.nodeJob("script", "{}"), `{"spec":{"task":{"script":"reboot"}}}`),
			runAsRoot,
		},
		"a retry": {
			w.patches(w.nodeJob("script", "{}"), `{"metadata":{"annotations":{"everynode.dev/retry":"1"}}}`),
			runAsRoot,
		},
		"a deletion that rolls back":          {func() error { return w.client.Delete(w.Ctx, w.nodeJob("undone", "{}")) }, runAsRoot},
		"a script in a ConfigMap":             {w.patches(scripts, `{"data":{"a":"reboot"}}`), runAsRoot},
		"another ConfigMap with the label":    {w.creates(labeled), runAsRoot},
		"the label for an existing ConfigMap": {w.patches(plain, `{"metadata":{"labels":{"everynode.dev/script":"true"}}}`), runAsRoot},
		"the removal of the label of scripts": {w.patches(scripts, `{"metadata":{"labels":{"everynode.dev/script":null}}}`), runAsRoot},
		"the deletion of scripts":             {func() error { return w.client.Delete(w.Ctx, scripts.DeepCopy()) }, runAsRoot},
		"a namespace that is not allowed": {
			w.patches(namespace(closed), `{"metadata":{"labels":{"everynode.dev/enabled":"true"}}}`),
			"to patch namespaces",
		},
		"a label of a node": {
			w.patches(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}, `{"metadata":{"labels":{"x.test/a":"b"}}}`),
			"",
		},
		"a binding of a right in the cluster": {w.creates(w.binding("ClusterRoleBinding", "everynode-run-as-root")), ""},
		"a ClusterRole with a right": {
			w.creates(
				&rbacv1.ClusterRole{
					ObjectMeta: metav1.ObjectMeta{Name: "x"},
					Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
				},
			),
			"",
		},
		"the removal of the policy for NodeJobs": {func() error { return w.client.Delete(w.Ctx, w.policy("everynode-nodejobs")) }, ""},
	}
}

// binding binds a ClusterRole to the tenant: in its namespace, or in the cluster.
func (w *tenant) binding(kind, role string) *unstructured.Unstructured {
	o := w.object(rbacv1.SchemeGroupVersion.String(), kind, "more", fmt.Sprintf(
		"{roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: %s}]}",
		role,
		w.user,
	))
	if kind == "ClusterRoleBinding" {
		o.SetNamespace("")
	}
	return o
}

func (w *tenant) policy(name string) *unstructured.Unstructured {
	o := w.object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", name, "{}")
	o.SetNamespace("")
	return o
}

// wantRefused checks that each attempt is refused, with a message that names the missing right.
func (w *tenant) wantRefused(closed string) {
	w.T.Helper()
	for about, try := range w.attempts(closed) {
		err := try.do()
		if !apierrors.IsForbidden(err) {
			w.T.Errorf("%s: the API server says %v", about, err)
			continue
		}
		switch try.lacks {
		case "": // RBAC refuses it
			wantText(w.T, err.Error(), fmt.Sprintf("User %q cannot ", w.user))
		case "to patch namespaces":
			wantText(w.T, err.Error(), w.user+" lacks the right to patch namespaces in the whole cluster")
		default:
			wantText(w.T, err.Error(), w.user+" lacks the right "+try.lacks+" for namespace "+w.Namespace, "kubectl everynode can-i")
		}
	}
}

// state is what of a node a NodeJob may change, except its records.
type state struct {
	Taints        []corev1.Taint
	Unschedulable bool
	Label         string
	BootID        string
}

func (w *world) states() map[string]state {
	w.T.Helper()
	states := map[string]state{}
	for _, name := range []string{"node-1", "node-2"} {
		node := w.node(name)
		states[name] = state{node.Spec.Taints, node.Spec.Unschedulable, node.Labels["x.test/a"], node.Status.NodeInfo.BootID}
	}
	return states
}

// TestATenantWithAllPermissionsInItsNamespaceChangesNoNode has a tenant try each way to nodes, and then what it may do.
func TestATenantWithAllPermissionsInItsNamespaceChangesNoNode(t *testing.T) {
	w := newTenant(t)
	closed := w.prepare()
	before := w.states()
	w.wantRefused(closed)
	// A role that is bound in a namespace grants no right on nodes.
	must(t, w.client.Create(w.Ctx, w.binding("RoleBinding", "everynode-all-effects")))
	w.wantRefused(closed)

	// Where it is not allowed, nothing runs.
	elsewhere := w.nodeJob("template", templated(""))
	elsewhere.SetNamespace(closed)
	must(t, w.client.Create(w.Ctx, elsewhere))
	w.Eventually("the NodeJob of a namespace that is not allowed says so", func() error {
		var live v1alpha1.NodeJob
		if err := admin.Get(w.Ctx, client.ObjectKeyFromObject(elsewhere), &live); err != nil {
			return err
		}
		for _, c := range live.Status.Conditions {
			if c.Type == v1alpha1.ConditionStalled && c.Reason == v1alpha1.ReasonNamespaceNotAllowed {
				return nil
			}
		}
		return fmt.Errorf("the status is %+v", live.Status)
	})
	must(t, w.client.Delete(w.Ctx, elsewhere))

	// A pod that the namespace does not allow does not run: a NodeJob is no way around Pod Security.
	must(
		t,
		w.client.Create(
			w.Ctx,
			w.nodeJob(
				"privileged",
				"{"+ofNode2+", task: {template: {spec: {hostPID: true, containers: [{name: own, image: "+install.RunnerImage+", securityContext: {privileged: true}}]}}}}",
			),
		),
	)
	c := w.Condition("privileged", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodForbidden)
	wantText(t, c.Message, "violates PodSecurity")

	w.wantAllowed()
	if diff := cmp.Diff(before, w.states()); diff != "" {
		t.Errorf("the nodes have changed (-before +after):\n%s", diff)
	}
}

// wantAllowed does what the tenant may do: what its pods could do as well.
func (w *tenant) wantAllowed() {
	w.T.Helper()
	mine := w.nodeJob("mine", templated(""))
	mine.SetAnnotations(map[string]string{v1alpha1.ChangedByAnnotation: w.user})
	must(w.T, w.client.Create(w.Ctx, mine))
	if rec := w.Done("mine", "node-2"); rec.ChangedBy != w.user {
		w.T.Errorf("the record names %q as who has changed the NodeJob", rec.ChangedBy)
	}
	guard := w.nodeGuard("mine", `{target: {daemonSet: none}}`)
	must(w.T, w.client.Create(w.Ctx, guard))
	must(w.T, w.client.Delete(w.Ctx, guard))
	must(w.T, w.client.Patch(w.Ctx, w.nodeJob("script", "{}"), mergePatch(`{"metadata":{"labels":{"a":"b"}}}`)))
	must(w.T, w.client.Delete(w.Ctx, w.nodeJob("script", "{}"))) // removes its records, and nothing else
	must(w.T, w.client.Delete(w.Ctx, w.nodeJob("mine", "{}")))
}
