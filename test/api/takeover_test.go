// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestANodeJobTakesOverFromADaemonSet checks that a NodeJob adopts the label of an earlier tool, and does not repeat the
// work of that tool.
func TestANodeJobTakesOverFromADaemonSet(t *testing.T) {
	const label, marker = "x.test/configured", `{"metadata":{"labels":{"x.test/configured":"true"}}}`
	w := newWorld(t)
	startManager(t, noFaults)
	before := w.node("takes-before")
	w.node("takes-new")
	w.Eventually("the nodes joined before the NodeJob", func() error {
		if time.Now().Before(before.CreationTimestamp.Add(2 * time.Second)) { // whole seconds are compared
			return errors.New("it is the same second")
		}
		return nil
	})
	must(t, admin.Patch(w.Ctx, before, mergePatch(marker)))
	job := w.job("takes", func(s *v1alpha1.NodeJobSpec) {
		s.Suspend = true
		s.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}}}
		s.Publish = []v1alpha1.PublishedResult{{Result: "configured", Label: label, Adopt: v1alpha1.AdoptSameValue}}
	})
	w.Condition("takes", v1alpha1.ConditionReconciling, metav1.ConditionFalse, v1alpha1.ReasonSuspended)
	if on := w.On("takes", "takes-before"); on.Present {
		t.Fatalf("a record is written while the NodeJob is suspended: %+v", on)
	}
	w.change(job, `{"suspend":false}`)
	if rec := w.Done("takes", "takes-before"); !rec.Assumed || rec.Reason != v1alpha1.ReasonAssumedDone {
		t.Errorf("the record of the node that was set up is %+v", rec)
	}
	pod := w.podOn("takes-new")
	// The earlier tool ends at this moment.
	must(t, admin.Patch(w.Ctx, w.liveNode("takes-new"), mergePatch(marker)))
	w.end(pod, 0, `{"exitCode":0,"results":{"configured":"true"}}`)
	w.Done("takes", "takes-new")
	published := record.ReadPublished(w.liveNode("takes-new").Annotations)
	if owner := published.Labels[label]; owner != v1alpha1.RecordKey(w.Namespace, "takes") {
		t.Errorf("the label belongs to %q", owner)
	}
	w.Condition("takes", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
	must(t, admin.Delete(w.Ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	w.gone(job)
	if _, there := w.liveNode("takes-new").Labels[label]; there {
		t.Error("the adopted label remains")
	}
	if _, there := w.liveNode("takes-before").Labels[label]; !there {
		t.Error("the label of the node that was assumed to be done is removed")
	}
}
