// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
)

func TestR08_FactsOfTheNodeAreItsLabelsAndAnnotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	label, annotation := "facts.example.com/host", "facts.example.com/kernel"
	w.job("facts", `echo "host=$(hostname)" >> $EVERYNODE_RESULTS; echo "kernel=$(uname -sr)" >> $EVERYNODE_RESULTS`,
		func(s *v1alpha1.NodeJobSpec) {
			s.Publish = []v1alpha1.PublishedResult{{Result: "host", Label: label}, {Result: "kernel", Annotation: annotation}}
		})
	w.Done("facts", node)
	live := w.node(node)
	if live.Labels[label] != node || !strings.HasPrefix(live.Annotations[annotation], "Linux ") {
		t.Errorf("the node has %v and %v", live.Labels, live.Annotations)
	}
	w.complete("facts")

	// Published results that are no longer listed are removed without another run.
	w.patch("facts", `{"spec":{"publish":[{"result":"host","annotation":%q}]}}`, annotation)
	w.Eventually("the published results match the current spec", func() error {
		live := w.node(node)
		if _, there := live.Labels[label]; there || live.Annotations[annotation] != node {
			return fmt.Errorf("it has %v and %v", live.Labels, live.Annotations)
		}
		return nil
	})
	if rec := w.Done("facts", node); rec.Attempts != 1 {
		t.Errorf("it ran %d times", rec.Attempts)
	}
	job := w.Get("facts")
	must(t, admin.Delete(w.Ctx, &job))
	w.gone("facts", node)
	if live = w.node(node); live.Annotations[annotation] != "" || live.Annotations[v1alpha1.PublishedAnnotation] != "" {
		t.Errorf("after the end of the NodeJob it has %v", live.Annotations)
	}
}

func TestWhatCannotBePublishedFailsClearly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	must(
		t,
		admin.Patch(
			w.Ctx,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			mergePatch(`{"metadata":{"labels":{"example.com/rack":"theirs"}}}`),
		),
	)
	once := func(entries ...v1alpha1.PublishedResult) func(*v1alpha1.NodeJobSpec) {
		return func(s *v1alpha1.NodeJobSpec) { s.Publish, s.Retry.Limit = entries, new(int32(0)) }
	}
	w.job("invalid", `echo "a=not a label" >> $EVERYNODE_RESULTS`, once(v1alpha1.PublishedResult{Result: "a", Label: "example.com/a"}))
	w.job(
		"large",
		`echo "a=$(head -c 5000 /dev/zero | tr '\0' x)" >> $EVERYNODE_RESULTS`,
		once(v1alpha1.PublishedResult{Result: "a", Annotation: "example.com/a"}),
	)
	w.job("taken", `echo "a=b" >> $EVERYNODE_RESULTS`, once(v1alpha1.PublishedResult{Result: "a", Label: "example.com/rack"}))
	w.job("first", `echo "a=b" >> $EVERYNODE_RESULTS`, once(v1alpha1.PublishedResult{Result: "a", Label: "example.com/shared"}))
	w.Done("first", node)
	w.job("second", `echo "a=c" >> $EVERYNODE_RESULTS`, once(v1alpha1.PublishedResult{Result: "a", Label: "example.com/shared"}))
	for name, want := range map[string]struct{ reason, message string }{
		"invalid": {v1alpha1.ReasonInvalidResult, "no valid label value"},
		"large":   {v1alpha1.ReasonInvalidResult, "omitted or cut"},
		"taken":   {v1alpha1.ReasonPublishConflict, "example.com/rack"},
		"second":  {v1alpha1.ReasonPublishConflict, v1alpha1.RecordKey(w.Namespace, "first")},
	} {
		if rec := w.failed(name, node); rec.Reason != want.reason || !strings.Contains(rec.Message, want.message) {
			t.Errorf("%s: %s: %s, want %s with %q", name, rec.Reason, rec.Message, want.reason, want.message)
		}
		wantText(t, w.Condition(name, v1alpha1.ConditionStalled, metav1.ConditionTrue, "").Message, node, want.reason)
	}
	if live := w.node(node); live.Labels["example.com/rack"] != "theirs" || live.Labels["example.com/shared"] != "b" {
		t.Errorf("a label of another owner was changed: %v", live.Labels)
	}
}

func TestR12_AnOptInLabelIsRemovedWhenTheTaskIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ask = "example.com/needs-setup"
	node := w.join(cluster.NodeOptions{Labels: map[string]string{ask: "yes"}})
	other := w.join(cluster.NodeOptions{})
	w.job("optin", w.mark(), func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: ask, Operator: metav1.LabelSelectorOpExists}}
		s.RemoveLabels = []string{ask}
	})
	w.Done("optin", node)
	if live := w.node(node); live.Labels[ask] != "" {
		t.Errorf("the label is there: %v", live.Labels)
	}
	w.complete("optin")
	if n := w.Get("optin").Status.Nodes; n.Total != 1 || n.Done != 1 {
		t.Errorf("the counts are %+v", n)
	}
	w.wantRan(node, 1)
	w.wantRan(other, 0)

	// The label requests the task, and later a rerun.
	for _, name := range []string{node, other} {
		must(
			t,
			admin.Patch(
				w.Ctx,
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
				mergePatch(`{"metadata":{"labels":{%q:"yes"}}}`, ask),
			),
		)
	}
	w.Eventually("both have run it, and the labels are gone", func() error {
		var nodes corev1.NodeList
		must(t, admin.List(w.Ctx, &nodes, client.HasLabels{ask}, client.MatchingLabels{"world": w.Namespace}))
		if len(nodes.Items) > 0 {
			return fmt.Errorf("%s has it", nodes.Items[0].Name)
		}
		return nil
	})
	w.complete("optin")
	w.wantRan(node, 2)
	w.wantRan(other, 1)
}
