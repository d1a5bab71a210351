// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/text"
)

func TestWhatANodeJobNeedsAUserFor(t *testing.T) {
	failed := func(j *v1alpha1.NodeJob, nodes int32, said string) {
		j.Status.Nodes = v1alpha1.NodeCounts{Total: 4, Done: 1, Failed: nodes}
		j.Status.Failures = []v1alpha1.NodeFailure{
			{Node: "node-1", Retrying: true},
			{Node: "node-2", Reason: "TaskFailed", ExitCode: new(int32(1)), Message: said, FinishedAt: at(4 * time.Minute)},
		}
	}
	of := func(arguments string) string { return "kubectl everynode " + arguments + " -n node-setup" }
	all := Remedy{"fix the task, or retry all failed nodes", of("retry somaxconn")}
	one := []Remedy{{"retry one node", of("retry somaxconn node-2")}, {"skip a node", of("skip somaxconn node-2")}}
	status := []Remedy{{"see the details", of("status somaxconn")}}
	report := []Remedy{{"see which nodes, and why", of("report somaxconn")}}
	for name, tt := range map[string]struct {
		change func(*v1alpha1.NodeJob)
		want   *Need
	}{
		"it is complete": {func(j *v1alpha1.NodeJob) { stands(j, v1alpha1.ConditionComplete, v1alpha1.ReasonAllNodesDone, "done") }, nil},
		"it continues": {func(j *v1alpha1.NodeJob) {
			stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonInProgress, "1 of 4")
			failed(j, 0, "no disk")
			j.Status.Failures = j.Status.Failures[:1]
		}, nil},
		"it is suspended": {func(j *v1alpha1.NodeJob) { stands(j, "", v1alpha1.ReasonSuspended, "spec.suspend is true") }, nil},
		"it is Stalled, and its condition has remedies": {func(j *v1alpha1.NodeJob) {
			failed(j, 3, "looking\nno disk \x1b[2J\n")
			stands(j, v1alpha1.ConditionStalled, v1alpha1.ReasonMaxFailuresExceeded, "it has stopped "+remedyOf(j))
		}, &Need{text.Bad, v1alpha1.ReasonMaxFailuresExceeded, `TaskFailed, exit code 1: no disk \x1b[2J`, "node-2", 2, before(4 * time.Minute), append([]Remedy{all}, one...)}},
		"it is Stalled without a remedy": {func(j *v1alpha1.NodeJob) {
			stands(j, v1alpha1.ConditionStalled, v1alpha1.ReasonPublishConflict, "label x exists")
		}, &Need{text.Bad, v1alpha1.ReasonPublishConflict, "label x exists", "", 0, before(time.Minute), status}},
		"pods do not start": {func(j *v1alpha1.NodeJob) {
			stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonPodNotStarting, "on 1 node the pod does not start (node-1: ImagePullBackOff)")
		}, &Need{text.Warn, v1alpha1.ReasonPodNotStarting, "on 1 node the pod does not start (node-1: ImagePullBackOff)", "", 0, before(time.Minute), status}},
		"it is Stalled because of nodes without a record": {func(j *v1alpha1.NodeJob) {
			stands(j, v1alpha1.ConditionStalled, v1alpha1.ReasonPodNameTaken, "node-5: a name is taken")
			j.Status.NodeProblems = []v1alpha1.NodeProblem{{Node: "node-5"}, {Node: "node-6"}}
		}, &Need{text.Bad, v1alpha1.ReasonPodNameTaken, "node-5: a name is taken", "node-5", 1, before(time.Minute), status}},
		"nodes have failed, and the rollout continues": {func(j *v1alpha1.NodeJob) {
			stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonInProgress, "1 of 4")
			failed(j, 1, "no disk")
		}, &Need{text.Bad, v1alpha1.ReasonNodesFailed, "TaskFailed, exit code 1: no disk", "node-2", 0, before(4 * time.Minute), append([]Remedy{all}, one...)}},
		"a node has reverted, and the rollout continues": {func(j *v1alpha1.NodeJob) {
			stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonInProgress, "1 of 4")
			failed(j, 1, "loaded\nthe node was not confirmed within 20s")
			j.Status.Failures[1].Reason = v1alpha1.ReasonReverted
		}, &Need{
			text.Bad, v1alpha1.ReasonNodesFailed, "Reverted, exit code 1: the node was not confirmed within 20s", "node-2", 0, before(4 * time.Minute),
			[]Remedy{
				{"fix the task: it then runs again. A retry without that would cut nodes off again. Otherwise, skip a node", of("skip somaxconn node-2")},
				{"retry all failed nodes", of("retry somaxconn")},
			},
		}},
		"it waits for a promotion": {func(j *v1alpha1.NodeJob) {
			j.Spec.Rollout.PromoteTo = "canary"
			rollout(j, "canary", v1alpha1.StepStatus{Name: "canary"}, v1alpha1.StepStatus{Name: "all"})
			stands(j, "", v1alpha1.ReasonAwaitingPromotion, "canary has passed. "+plan.PromotionRemedies("all").Kubectl(j, ""))
		}, &Need{text.Warn, v1alpha1.ReasonAwaitingPromotion, "canary has passed.", "", 0, before(time.Minute),
			[]Remedy{{"continue with step all", of("promote somaxconn --to all")}}}},
		"nodes have drifted": {func(j *v1alpha1.NodeJob) {
			stands(j, v1alpha1.ConditionComplete, v1alpha1.ReasonAllNodesDone, "done")
			j.Spec.Task.Script, j.Status.Nodes.NonCompliant = "true", 2
		}, &Need{text.Warn, v1alpha1.ReasonDrifted, "done", "", 0, before(time.Minute), report}},
		"an audit found nodes that are not compliant": {func(j *v1alpha1.NodeJob) {
			audited(j, 2)
		}, &Need{text.Bad, v1alpha1.ReasonNonCompliant, "2 of 4 nodes are compliant, 2 not compliant (node-1: PermitRootLogin is yes; node-2)", "", 0, before(time.Minute), report}},
		"an audit has found one before it ends": {func(j *v1alpha1.NodeJob) {
			audited(j, 1)
			j.Status.Conditions = nil
			stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonInProgress, "1 of 4 nodes are compliant, 1 not compliant")
		}, &Need{text.Bad, v1alpha1.ReasonNonCompliant, "1 of 4 nodes are compliant, 1 not compliant", "", 0, before(time.Minute), report}},
		"nodes have drifted, and run the task again": {func(j *v1alpha1.NodeJob) {
			stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonInProgress, "1 of 4")
			j.Spec.Task.Script, j.Status.Nodes.NonCompliant, j.Spec.Task.Check = "true", 2, &v1alpha1.CheckSpec{OnDrift: v1alpha1.DriftRun}
		}, nil},
		"no manager has observed it": {func(j *v1alpha1.NodeJob) {
			j.Generation, j.CreationTimestamp, j.ManagedFields = 2, at(time.Hour), nil
			j.Status.ObservedGeneration = 1
		}, &Need{text.Warn, "NotObserved", "no manager has observed the last change for 60m; check that one is running: kubectl everynode version", "", 0,
			before(time.Hour), []Remedy{{"check that a manager is running", CheckManager}}}},
		"a manager may be about to observe it": {func(j *v1alpha1.NodeJob) {
			j.Generation, j.CreationTimestamp, j.ManagedFields = 2, at(time.Second), nil
			j.Status.ObservedGeneration = 1
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(tt.change)
			for i := range j.Status.Conditions {
				j.Status.Conditions[i].LastTransitionTime = metav1.NewTime(before(time.Minute))
			}
			if diff := cmp.Diff(tt.want, NeedOf(j, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
	long := job(func(j *v1alpha1.NodeJob) {
		stands(j, v1alpha1.ConditionStalled, v1alpha1.ReasonPublishConflict, strings.Repeat("x", 2*maxCause))
	})
	if n := len([]rune(NeedOf(long, now).Cause)); n != maxCause {
		t.Errorf("the cause has %d characters, want %d", n, maxCause)
	}
}

// next returns what Next does, and checks that each command in it is apart from the prose.
func next(t *testing.T, e Explain) string {
	t.Helper()
	for _, p := range e.Next() {
		if got := strings.ReplaceAll(p.Text, "kubectl describe pod shows", ""); strings.Contains(got, "kubectl") != p.IsCommand {
			t.Errorf("a part of what comes next: %+v", p)
		}
	}
	return e.Next().String()
}

// TestTheNextCommandsAreApart checks the form of the commands, and that the name of a node in the text is no command.
func TestTheNextCommandsAreApart(t *testing.T) {
	e := Explain{
		Job:   job(func(*v1alpha1.NodeJob) {}),
		Node:  &plan.Node{Name: "node-1"},
		State: plan.NodeState{State: plan.Failed},
		Now:   now,
	}
	want := Said{
		{"retry it: ", false}, {"kubectl everynode retry somaxconn node-1 -n node-setup", true},
		{"; or leave the node out: ", false}, {"kubectl everynode skip somaxconn node-1 -n node-setup", true},
	}
	if diff := cmp.Diff(want, e.Next()); diff != "" {
		t.Error(diff)
	}
}
