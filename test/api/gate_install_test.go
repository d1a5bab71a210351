// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/install"
)

// TestTheGateOnAFreshAPIServer has an API server of its own. It does not put a taint on each new node, as others do:
// there is no list of taints. And it checks what kubelets may do.
func TestTheGateOnAFreshAPIServer(t *testing.T) {
	needsPolicies(t)
	f := startFresh(t)
	// The admission looks for kinds that it does not know twice a minute, so they come before the first policy.
	must(t, f.kubectl("apply -k ../../config/crd"))
	crd := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(looseKind), &crd.Object))
	must(t, f.admin.Create(t.Context(), crd))
	f.Eventually("the kinds are served", func() error { return f.kubectl("get nodejobs,loosenodejobs") })
	t.Run("a plain install taints the node that a kubelet registers", f.plainInstall)
	t.Run("no content of a NodeJob prevents a node from joining", f.failsOpen)
}

func (f *freshServer) plainInstall(t *testing.T) {
	f.T = t
	must(t, f.withDefault("apply"))
	f.installed()
	for line := range strings.Lines(f.printed) {
		if !strings.HasSuffix(line, " unchanged\n") {
			t.Errorf("the second apply of the same manifests says: %s", line)
		}
	}
	must(t, f.kubectl("apply -f ../../config/samples/namespace.yaml -f ../../config/samples/gate.yaml"))
	var job v1alpha1.NodeJob
	must(t, f.admin.Get(t.Context(), client.ObjectKey{Namespace: "node-setup", Name: "inotify"}, &job))
	want := []string{v1alpha1.GateKey(&job) + "=" + v1alpha1.GateValue + ":NoSchedule"}
	f.joinsWith(want)

	kubelet, err := f.env.AddUser(envtest.User{Name: "system:node:kubelet-1", Groups: []string{"system:nodes"}}, nil)
	must(t, err)
	c, err := client.New(kubelet.Config(), client.Options{Scheme: scheme})
	must(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kubelet-1", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	must(t, c.Create(t.Context(), node))
	if got := taintsOf(node); !slices.Equal(got, want) {
		t.Errorf("the taints are %v, want %v", got, want)
	}
	node.Spec.Taints = nil
	if err := c.Update(t.Context(), node); !apierrors.IsForbidden(err) {
		t.Errorf("the kubelet removes the taint: %v", err)
	}
	must(t, f.kubectl("delete -f ../../config/samples/gate.yaml"))
	f.joinsWith(nil)
}

// failsOpen gives the policy an expression that the API would reject in a NodeJob. With failurePolicy Fail, an
// expression that cannot be evaluated prevents nodes from joining.
func (f *freshServer) failsOpen(t *testing.T) {
	f.T = t
	tests := map[string]struct {
		spec      string
		wantFails bool
	}{
		"an invalid key":                 {spec: `{gate: {key: "a b"}}`},
		"a key whose prefix is too long": {spec: `{gate: {key: ` + strings.Repeat("a", 254) + `/b}}`},
		"a key that is a list":           {spec: `{gate: {key: [a]}}`, wantFails: true},
		"an effect that does not exist":  {spec: `{gate: {effect: NoDisk}}`},
		"an effect that is a number":     {spec: `{gate: {effect: 3}}`},
		"requirements that are a text":   {spec: `{gate: {}, nodes: {selector: {matchExpressions: pool}}}`, wantFails: true},
		"a requirement that is a text":   {spec: `{gate: {}, nodes: {selector: {matchExpressions: [pool]}}}`, wantFails: true},
	}
	job := func(namespace, name, spec string) *unstructured.Unstructured {
		job := jobFromYAML(t, namespace, name, spec)
		job.SetKind("LooseNodeJob")
		must(t, f.admin.Create(t.Context(), job))
		return job
	}

	policy := f.looseGate("open", admissionv1.Ignore)
	for _, test := range tests {
		job("open", "", test.spec)
	}
	job("open", "healthy", `{gate: {}}`)
	job("open", "healthy-too", `{gate: {effect: NoExecute}}`)
	f.joinsWith([]string{"open.everynode.dev/healthy-too=everynode:NoExecute", "open.everynode.dev/healthy=everynode:NoSchedule"})
	must(t, f.admin.Delete(t.Context(), policy))

	f.looseGate("closed", admissionv1.Fail)
	last := job("closed", "healthy", `{gate: {}}`)
	healthy := []string{"closed.everynode.dev/healthy=everynode:NoSchedule"}
	f.joinsWith(healthy)
	for name, test := range tests {
		if !test.wantFails {
			continue
		}
		broken := job("closed", "broken", test.spec)
		f.Eventually("no node joins because of "+name, func() error {
			if _, err := wouldJoin(f.Ctx, f.admin, nil); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
				return fmt.Errorf("the API server says %w", err)
			}
			return nil
		})
		must(t, f.admin.Delete(t.Context(), broken))
		f.joinsWith(healthy)
	}
	must(t, f.admin.Delete(t.Context(), last))
	f.joinsWith(nil)
}

// freshServer is an API server without Everynode.
type freshServer struct {
	*world
	env     *envtest.Environment
	admin   client.WithWatch
	kubectl func(args string) error
	// printed is what kubectl printed when it last succeeded.
	printed string
}

// startFresh starts one, with more of its flags as name=value.
func startFresh(t *testing.T, flags ...string) *freshServer {
	t.Helper()
	f := &freshServer{world: worldIn(t.Context(), t, ""), env: &envtest.Environment{}}
	f.env.ControlPlane.GetAPIServer().Configure().
		Append("enable-admission-plugins", "NodeRestriction").
		Append("disable-admission-plugins", "TaintNodesByCondition").
		Set("authorization-mode", "Node", "RBAC")
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		f.env.ControlPlane.GetAPIServer().Configure().Set(name, value)
	}
	cfg, err := f.env.Start()
	t.Cleanup(func() { must(t, f.env.Stop()) })
	must(t, err)
	f.admin, err = client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	must(t, err)
	user, err := f.env.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	must(t, err)
	kubectl, err := user.Kubectl()
	must(t, err)
	f.kubectl = func(args string) error {
		stdout, stderr, err := kubectl.Run(strings.Fields(args)...)
		if err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", args, err, stderr)
		}
		printed, err := io.ReadAll(stdout)
		f.printed = string(printed)
		return err
	}
	return f
}

// withDefault runs kubectl with config/default. Before Kubernetes 1.36, kubectl does not know the policies in it.
func (f *freshServer) withDefault(command string) error {
	err := f.kubectl(command + " -k ../../config/default")
	if !policiesServed {
		return install.PoliciesRefused(err)
	}
	return err
}

// installed applies config/default, and waits until NodeJobs can be created.
func (f *freshServer) installed() {
	f.T.Helper()
	must(f.T, f.withDefault("apply"))
	must(f.T, changesAreNamed(f.Ctx, f.admin))
}

// looseGate applies the policy that is shipped to a new namespace, for looseKind.
func (f *freshServer) looseGate(namespace string, failurePolicy admissionv1.FailurePolicyType) client.Object {
	f.T.Helper()
	policy := shipped[admissionv1.MutatingAdmissionPolicy](f.T, "policy.yaml")
	if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionv1.Ignore {
		f.T.Errorf("the policy's failurePolicy is %v", policy.Spec.FailurePolicy)
	}
	policy.Name, policy.Spec.ParamKind.Kind, policy.Spec.FailurePolicy = namespace, "LooseNodeJob", &failurePolicy
	binding := shipped[admissionv1.MutatingAdmissionPolicyBinding](f.T, "binding.yaml")
	binding.Name, binding.Spec.PolicyName, binding.Spec.ParamRef.Namespace = namespace, namespace, namespace
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, policy, binding} {
		must(f.T, f.admin.Create(f.Ctx, o))
	}
	return policy
}

// joinsWith waits until a node without labels joins with these taints.
func (f *freshServer) joinsWith(want []string) {
	f.T.Helper()
	f.Eventually("a node joins with the taints that it should have", func() error {
		got, err := wouldJoin(f.Ctx, f.admin, map[string]string{corev1.LabelOSStable: "linux"})
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("the taints are %v, want %v", got, want)
		}
		return err
	})
}

// looseKind is that of NodeJobs which may have anything in their spec.
const looseKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: loosenodejobs.everynode.dev}
spec:
  group: everynode.dev
  names: {kind: LooseNodeJob, plural: loosenodejobs}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`
