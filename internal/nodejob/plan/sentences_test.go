// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

func TestSentencesAboutSteps(t *testing.T) {
	status := &v1alpha1.NodeJobStatus{Revision: rev, Rollout: &v1alpha1.RolloutStatus{
		Step:  "b",
		Steps: []v1alpha1.StepStatus{{Name: "a", Nodes: 1, Done: 1}, {Name: "b", Nodes: 2, Done: 1, Failed: 1}, {Name: "c", Nodes: 3}},
	}}
	for want, got := range map[string]string{
		"step b of revision rev begins; nodes in it: 2":                        StepStarted(status),
		"step a of revision rev is completed: 1 of 1 node is done":             StepCompleted(status, &status.Rollout.Steps[0]),
		"step b of revision rev is completed: 1 of 2 nodes are done, 1 failed": StepCompleted(status, &status.Rollout.Steps[1]),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAuthorOfARevision(t *testing.T) {
	for name, tt := range map[string]struct {
		generation, unattributed int64
		want                     string
	}{
		"the spec began it":                   {3, 0, "jane"},
		"another object began it":             {3, 3, ""},
		"another object began the one before": {3, 2, "jane"},
		"the generation is not known":         {0, 0, "jane"},
	} {
		job := &v1alpha1.NodeJob{
			ObjectMeta: metav1.ObjectMeta{Generation: tt.generation, Annotations: map[string]string{v1alpha1.ChangedByAnnotation: "jane"}},
		}
		if got := Author(job, tt.unattributed); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestAnUnknownRevisionHasNotBegun(t *testing.T) {
	job := newJob(func(j *v1alpha1.NodeJob) { j.Status.ObservedGeneration, j.Status.Revision = j.Generation, "old" })
	if got := (&Input{Job: job}).unattributed(); got != 0 {
		t.Errorf("generation %d", got)
	}
}

func TestStatusOfANodeJobThatIsNotServed(t *testing.T) {
	job := newJob()
	status := NotServed(job, &hold.Why{Reason: v1alpha1.ReasonNamespaceNotAllowed, Message: "it has no label"}, now)
	for i, want := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionTrue} {
		if c := status.Conditions[i]; c.Status != want || c.Reason != v1alpha1.ReasonNamespaceNotAllowed {
			t.Errorf("%+v, want %s", c, want)
		}
	}
}
