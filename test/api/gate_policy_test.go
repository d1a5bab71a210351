// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

// notReady is the taint that the API server itself puts on each new node.
const notReady = "node.kubernetes.io/not-ready:NoSchedule"

// TestAGateTaintsTheNodesThatItsSelectorMatches has a NodeJob for each selector. What Kubernetes' own code
// says of the selector decides whether the table is right.
func TestAGateTaintsTheNodesThatItsSelectorMatches(t *testing.T) {
	nodes := map[string]map[string]string{
		"no-labels": nil,
		"pool-a":    {"pool": "a"},
		"pool-b":    {"pool": "b"},
		"pool-none": {"pool": ""},
		"gpu":       {"pool": "a", "gpu": "yes", "zone.example/x_1": "1"},
	}
	all := []string{"gpu", "no-labels", "pool-a", "pool-b", "pool-none"}
	tests := map[string]struct {
		selector  string
		wantNodes []string
	}{
		"no selector":              {selector: `null`, wantNodes: all},
		"a label":                  {selector: `{matchLabels: {pool: a}}`, wantNodes: []string{"gpu", "pool-a"}},
		"a label without a value":  {selector: `{matchLabels: {pool: ""}}`, wantNodes: []string{"pool-none"}},
		"a label that no node has": {selector: `{matchLabels: {rack: a}}`},
		"two labels":               {selector: `{matchLabels: {pool: a, gpu: "yes"}}`, wantNodes: []string{"gpu"}},
		"a label with a prefix":    {selector: `{matchLabels: {zone.example/x_1: "1"}}`, wantNodes: []string{"gpu"}},
		"one of two values": {
			selector:  `{matchExpressions: [{key: pool, operator: In, values: [b, c]}]}`,
			wantNodes: []string{"pool-b"},
		},
		"one of two values, both of which exist": {
			selector:  `{matchExpressions: [{key: pool, operator: In, values: [a, b]}]}`,
			wantNodes: []string{"gpu", "pool-a", "pool-b"},
		},
		"none of two values": {
			selector:  `{matchExpressions: [{key: pool, operator: NotIn, values: [a, c]}]}`,
			wantNodes: []string{"no-labels", "pool-b", "pool-none"},
		},
		"a label that exists": {
			selector:  `{matchExpressions: [{key: pool, operator: Exists}]}`,
			wantNodes: []string{"gpu", "pool-a", "pool-b", "pool-none"},
		},
		"a label that does not exist": {
			selector:  `{matchExpressions: [{key: pool, operator: DoesNotExist}]}`,
			wantNodes: []string{"no-labels"},
		},
		"a label that exists, and one that does not": {
			selector:  `{matchLabels: {pool: a}, matchExpressions: [{key: gpu, operator: DoesNotExist}]}`,
			wantNodes: []string{"pool-a"},
		},
		"two requirements": {
			selector:  `{matchExpressions: [{key: pool, operator: Exists}, {key: pool, operator: NotIn, values: [b]}]}`,
			wantNodes: []string{"gpu", "pool-a", "pool-none"},
		},
		"two requirements that exclude another": {
			selector: `{matchExpressions: [{key: pool, operator: In, values: [a]}, {key: pool, operator: In, values: [b]}]}`,
		},

		"invalid: In without values":               {selector: `{matchExpressions: [{key: pool, operator: In}]}`},
		"invalid: NotIn without values":            {selector: `{matchExpressions: [{key: pool, operator: NotIn, values: []}]}`},
		"invalid: Exists with values":              {selector: `{matchExpressions: [{key: pool, operator: Exists, values: [a]}]}`},
		"invalid: DoesNotExist with values":        {selector: `{matchExpressions: [{key: rack, operator: DoesNotExist, values: [a]}]}`},
		"invalid: an operator that does not exist": {selector: `{matchExpressions: [{key: pool, operator: Gt}]}`},
		"invalid: a key that no label has":         {selector: `{matchExpressions: [{key: the pool, operator: DoesNotExist}]}`},
		"invalid: a value that no label has":       {selector: `{matchExpressions: [{key: pool, operator: NotIn, values: [a, "b c"]}]}`},
	}
	w := newWorld(t)
	installGate(t, w)
	want := map[string][]string{}
	for node := range nodes {
		want[node] = []string{notReady}
	}
	gates := map[string]string{} // by the taint
	for name, test := range tests {
		job := w.gate(fmt.Sprintf("selector-%d", len(gates)), v1alpha1.GateSpec{}, test.selector)
		taint := w.Namespace + ".everynode.dev/" + job.Name + "=everynode:NoSchedule"
		gates[taint] = name
		for _, node := range test.wantNodes {
			want[node] = append(want[node], taint)
		}
		for node, set := range nodes {
			selector, err := metav1.LabelSelectorAsSelector(job.Spec.Nodes.Selector)
			matches := job.Spec.Nodes.Selector == nil || err == nil && selector.Matches(labels.Set(set))
			if matches != slices.Contains(test.wantNodes, node) || (err != nil) != strings.HasPrefix(name, "invalid") {
				t.Errorf("the table is wrong about %q and %s: Kubernetes says %v (%v)", name, node, matches, err)
			}
		}
	}
	w.admissionIsUpToDate()
	for node, set := range nodes {
		got := w.joins(node, set)
		slices.Sort(want[node])
		if diff := cmp.Diff(want[node], got); diff != "" {
			t.Errorf("taints of %s (-want +got):\n%s%v", node, diff, gates)
		}
	}
}

func TestGatesOfSeveralNodeJobsAreOnANodeTogether(t *testing.T) {
	one, two := newWorld(t), newWorld(t)
	installGate(t, one, two)
	shared := v1alpha1.GateSpec{Key: "setup.example/closed"}
	one.gate("a", v1alpha1.GateSpec{}, `null`)
	one.gate("b", v1alpha1.GateSpec{Effect: v1alpha1.GateNoExecute, Nodes: v1alpha1.GateAll}, `null`)
	one.gate("c.d", v1alpha1.GateSpec{}, `null`)
	one.gate("shares", shared, `null`)
	one.gate("shares-too", shared, `null`)
	two.gate("a", v1alpha1.GateSpec{}, `null`)
	two.gate("shares", shared, `null`)
	two.gate("shares-the-key-only", v1alpha1.GateSpec{Key: shared.Key, Effect: v1alpha1.GateNoExecute}, `null`)
	one.admissionIsUpToDate()
	for name, test := range map[string]struct {
		taints []corev1.Taint
		want   []string // beside those that every node gets
	}{
		"a node without taints": {
			want: []string{shared.Key + "=everynode:NoExecute", shared.Key + "=everynode:NoSchedule"},
		},
		"a node that registers with other taints": {
			taints: []corev1.Taint{
				{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule},
				{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoExecute},
				{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule},
			},
			want: []string{
				"dedicated=db:NoExecute", "dedicated=db:NoSchedule", "soft:PreferNoSchedule",
				shared.Key + "=everynode:NoExecute", shared.Key + "=everynode:NoSchedule",
			},
		},
		"a node that registers with the shared gate from another owner": {
			taints: []corev1.Taint{{Key: shared.Key, Value: "kubelet", Effect: corev1.TaintEffectNoSchedule}},
			want:   []string{shared.Key + "=everynode:NoExecute", shared.Key + "=kubelet:NoSchedule"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := append([]string{
				notReady,
				one.Namespace + ".everynode.dev/a=everynode:NoSchedule",
				one.Namespace + ".everynode.dev/b=everynode:NoExecute",
				one.Namespace + ".everynode.dev/c.d=everynode:NoSchedule",
				two.Namespace + ".everynode.dev/a=everynode:NoSchedule",
			}, test.want...)
			slices.Sort(want)
			if diff := cmp.Diff(want, one.joins("several-gates", nil, test.taints...)); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestANodeJoinsWithoutATaintWhereThereIsNoGate(t *testing.T) {
	w, unbound := newWorld(t), newWorld(t)
	installGate(t, w)
	if got := w.joins("no-gate", nil); !slices.Equal(got, []string{notReady}) {
		t.Fatalf("without any NodeJob the taints are %v", got)
	}

	unbound.gate("in-a-namespace-without-a-binding", v1alpha1.GateSpec{}, `null`)
	w.job("without-a-gate", func(s *v1alpha1.NodeJobSpec) { s.Nodes = allNodes() })
	opened := w.gate("gate-taken-out", v1alpha1.GateSpec{}, `null`)
	leaving := w.gate("being-deleted", v1alpha1.GateSpec{}, `null`)
	gone := w.gate("deleted", v1alpha1.GateSpec{}, `null`)
	w.admissionIsUpToDate()
	if got := w.joins("no-gate", nil); len(got) != 4 {
		t.Fatalf("with three gates the taints are %v", got)
	}

	must(t, admin.Patch(w.Ctx, opened, mergePatch(`{"spec":{"gate":null}}`)))
	must(t, admin.Patch(w.Ctx, leaving, mergePatch(`{"metadata":{"finalizers":["`+v1alpha1.NodeJobFinalizer+`"]}}`)))
	must(t, admin.Delete(w.Ctx, leaving))
	must(t, admin.Delete(w.Ctx, gone))
	w.admissionIsUpToDate()
	if got := w.joins("no-gate", nil); !slices.Equal(got, []string{notReady}) {
		t.Errorf("without a gate any more the taints are %v", got)
	}
}

// TestAGateIsClosedSoonAfterItsNodeJobIsCreated measures how long nodes still join without the taint.
func TestAGateIsClosedSoonAfterItsNodeJobIsCreated(t *testing.T) {
	w := newWorld(t)
	installGate(t, w)
	var lags []time.Duration
	var missed int
	for i := range 20 {
		taint := w.taint(w.gate(fmt.Sprintf("new-%d", i), v1alpha1.GateSpec{}, `null`))
		created := time.Now()
		for {
			lag := time.Since(created)
			taints, err := wouldJoin(w.Ctx, admin, nil)
			must(t, err)
			if slices.Contains(taints, taint) {
				lags = append(lags, lag)
				break
			}
			missed++
			if lag > 10*time.Second {
				t.Fatalf("10 s after the NodeJob was created nodes join without %s", taint)
			}
		}
	}
	slices.Sort(lags)
	t.Logf("a request got the taint when it came after: median %v, longest %v; %d requests came too early",
		lags[len(lags)/2], lags[len(lags)-1], missed)
}

// TestANodeWhoseLabelsAWebhookSetsIsTaintedToo : webhooks come after the policy.
func TestANodeWhoseLabelsAWebhookSetsIsTaintedToo(t *testing.T) {
	w := newWorld(t)
	installGate(t, w)
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		var review reviewv1.AdmissionReview
		if err := json.NewDecoder(in.Body).Decode(&review); err != nil {
			t.Errorf("reading the review: %v", err)
			return
		}
		patchType := reviewv1.PatchTypeJSONPatch
		review.Response = &reviewv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, PatchType: &patchType,
			Patch: []byte(`[{"op":"add","path":"/metadata/labels/pool","value":"late"}]`),
		}
		if err := json.NewEncoder(out).Encode(review); err != nil {
			t.Errorf("answering: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	sideEffects := admissionv1.SideEffectClassNone
	w.makes(&admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "labels-nodes"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "labels.nodes.example",
			ClientConfig: admissionv1.WebhookClientConfig{
				URL:      &server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
			}},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "early"}},
			SideEffects:             &sideEffects,
			AdmissionReviewVersions: []string{"v1"},
		}},
	})
	taint := w.taint(w.gate("late", v1alpha1.GateSpec{}, `{matchLabels: {pool: late}}`))
	w.Eventually("a node that the webhook labels is tainted", func() error {
		if got := w.joins("labelled", map[string]string{"pool": "early"}); !slices.Equal(got, []string{notReady, taint}) {
			return fmt.Errorf("its taints are %v", got)
		}
		return nil
	})
}

// installGate applies the admission policy as it is shipped, and for each world a copy of the binding that is
// shipped, as docs/gate.md says for other namespaces. It waits until they are in effect.
func installGate(t *testing.T, worlds ...*world) {
	t.Helper()
	needsPolicies(t)
	worlds[0].makes(shipped[admissionv1.MutatingAdmissionPolicy](t, "policy.yaml"))
	for _, w := range worlds {
		binding := shipped[admissionv1.MutatingAdmissionPolicyBinding](t, "binding.yaml")
		binding.Name = "everynode-gate-" + w.Namespace
		binding.Spec.ParamRef.Namespace = w.Namespace
		w.makes(binding)
		w.admissionIsUpToDate()
	}
}

// shipped reads an object from config/gate.
func shipped[T any](t *testing.T, file string) *T {
	t.Helper()
	content, err := os.ReadFile("../../config/gate/" + file)
	must(t, err)
	object := new(T)
	must(t, yaml.UnmarshalStrict(content, object))
	return object
}

// makes creates an object that has no namespace, until the test ends.
func (w *world) makes(o client.Object) {
	w.T.Helper()
	must(w.T, admin.Create(w.Ctx, o))
	w.T.Cleanup(func() { must(w.T, client.IgnoreNotFound(admin.Delete(context.Background(), o))) })
}

// gate makes a NodeJob with a gate. The selector is as a user would write it.
func (w *world) gate(name string, gate v1alpha1.GateSpec, selector string) *v1alpha1.NodeJob {
	w.T.Helper()
	return w.job(name, func(s *v1alpha1.NodeJobSpec) {
		s.Gate, s.Nodes.Selector = &gate, nil
		must(w.T, yaml.UnmarshalStrict([]byte(selector), &s.Nodes.Selector))
		if s.Nodes.Selector == nil {
			s.Nodes = allNodes()
		}
	})
}

// taint is the one that a NodeJob's gate puts on a node.
func (w *world) taint(job *v1alpha1.NodeJob) string {
	return v1alpha1.GateKey(job) + "=" + v1alpha1.GateValue + ":" + string(job.Spec.Gate.Effect)
}

// admissionIsUpToDate waits until the API server's admission has seen all changes of NodeJobs: it sees them in their
// order, and of the last, a NodeJob that is made for this, one knows when.
func (w *world) admissionIsUpToDate() {
	w.T.Helper()
	label := fmt.Sprintf("seen-%d", time.Now().UnixNano())
	job := w.gate(label, v1alpha1.GateSpec{}, `{matchLabels: {`+label+`: "yes"}}`)
	w.Eventually("the policy knows the NodeJobs", func() error {
		taints, err := wouldJoin(w.Ctx, admin, map[string]string{label: "yes"})
		if err == nil && !slices.Contains(taints, w.taint(job)) {
			err = fmt.Errorf("the taints are %v", taints)
		}
		return err
	})
	must(w.T, admin.Delete(w.Ctx, job))
}

// wouldJoin says with which taints a node would join.
func wouldJoin(ctx context.Context, c client.Client, nodeLabels map[string]string) ([]string, error) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dry-run", Labels: nodeLabels}}
	err := c.Create(ctx, node, client.DryRunAll)
	return taintsOf(node), err
}

// joins creates a node, deletes it, and returns the taints with which it was stored.
func (w *world) joins(name string, nodeLabels map[string]string, taints ...corev1.Taint) []string {
	w.T.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: nodeLabels}, Spec: corev1.NodeSpec{Taints: taints}}
	must(w.T, admin.Create(w.Ctx, node))
	must(w.T, admin.Get(w.Ctx, client.ObjectKeyFromObject(node), node))
	must(w.T, admin.Delete(w.Ctx, node))
	return taintsOf(node)
}

func taintsOf(node *corev1.Node) []string {
	var taints []string
	for _, taint := range node.Spec.Taints {
		taints = append(taints, taint.ToString())
	}
	slices.Sort(taints)
	return taints
}
