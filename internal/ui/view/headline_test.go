// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestHeadlinesAreWords(t *testing.T) {
	counts := v1alpha1.NodeCounts{Total: 4, Done: 2, Running: 1, Failed: 1, NonCompliant: 2}
	for reason, want := range map[string]string{
		v1alpha1.ReasonAllNodesDone:           "Done",
		v1alpha1.ReasonInProgress:             "Running",
		v1alpha1.ReasonMaxFailuresExceeded:    "Stopped, 1 failed",
		v1alpha1.ReasonNodesFailed:            "1 failed",
		v1alpha1.ReasonNonCompliant:           "2 not compliant",
		v1alpha1.ReasonDrifted:                "2 drifted",
		v1alpha1.ReasonAwaitingPromotion:      "Waits for a promotion",
		v1alpha1.ReasonBudgetClosed:           "Waits for a NodeDisruptionBudget",
		v1alpha1.ReasonSuspended:              "Suspended",
		v1alpha1.ReasonNamespaceNotAllowed:    "Namespace not allowed",
		v1alpha1.ReasonConfigMapNotLabeled:    "ConfigMap not labeled",
		v1alpha1.ReasonServiceAccountNotFound: "ServiceAccount not found",
		reasonNotObserved:                     "No manager has observed it",
		"":                                    "",
	} {
		if got := Headline(job(func(j *v1alpha1.NodeJob) { j.Status.Nodes = counts }), reason); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	waiting := job(func(j *v1alpha1.NodeJob) { j.Status.Nodes = v1alpha1.NodeCounts{Total: 1, Waiting: 1} })
	if got := Headline(waiting, v1alpha1.ReasonInProgress); got != "Waiting" {
		t.Errorf("a rollout in which no node runs: %q", got)
	}
	expired := job(func(j *v1alpha1.NodeJob) { j.Status.Nodes = v1alpha1.NodeCounts{Total: 2, Done: 2, Expired: 2} })
	if got := Headline(expired, v1alpha1.ReasonAllNodesDone); got != "No longer needed" {
		t.Errorf("a task that has expired on all nodes: %q", got)
	}
}

// TestJudgedCountsWhereTheTaskIsDoneNow has nodes that count as done in the status, and on which the task is not in effect.
func TestJudgedCountsWhereTheTaskIsDoneNow(t *testing.T) {
	nodes := v1alpha1.NodeCounts{Total: 8, Done: 6, Failed: 1, Waiting: 1, Expired: 1, NonCompliant: 2}
	for name, tt := range map[string]struct {
		change func(*v1alpha1.NodeJob)
		want   string
	}{
		"a task": {func(j *v1alpha1.NodeJob) { j.Spec.Task.Script = "true" }, "8, of which 3 done, 1 waiting, 1 failed, 2 drifted, 1 expired"},
		"a task that is repaired": {func(j *v1alpha1.NodeJob) {
			j.Spec.Task.Script, j.Spec.Task.Check = "true", &v1alpha1.CheckSpec{OnDrift: v1alpha1.DriftRun}
		}, "8, of which 5 done, 1 waiting, 1 failed, 1 expired"},
		"an audit": {func(j *v1alpha1.NodeJob) { audited(j, 2); j.Status.Nodes = nodes; j.Status.Nodes.Expired = 0 }, "8, of which 4 compliant, 1 waiting, 3 not compliant"},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(func(j *v1alpha1.NodeJob) { j.Status.Nodes = nodes; tt.change(j) })
			if diff := cmp.Diff(tt.want, counts(j)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
