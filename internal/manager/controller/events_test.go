// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

func TestEventsOfAttempts(t *testing.T) {
	code := int32(7)
	of := func(runs task.Phase, r record.Record, final bool) plan.Record {
		return plan.Record{
			Node:   "n",
			Change: record.Change{UID: "node-uid", Record: &r},
			Final:  final,
			Pod:    plan.Pod{Runs: runs, Attempt: 2},
		}
	}
	rollback := func(rb record.Rollback, final bool) plan.Record {
		// The record also contains the task that was rolled back.
		return of(task.Rollback, record.Record{Outcome: record.Failed, Attempts: 4, Reason: "TaskFailed", Rollback: &rb}, final)
	}
	answer := func(is, was record.Asked) plan.Record {
		a := of(task.CheckDrift, record.Record{Outcome: record.Succeeded, Asked: record.Answers{record.QuestionCheck: is}}, false)
		a.Was = was
		return a
	}
	both := func(event, note string) []string {
		return []string{
			event + " on the NodeJob: NodeJob ns/job on node n: " + note,
			event + " on the Node: NodeJob ns/job on node n: " + note,
		}
	}
	failed := record.Record{Outcome: record.Failed, Attempts: 2, Reason: "TaskFailed", ExitCode: &code, Message: "no space"}
	tests := map[string]struct {
		action plan.Record
		want   []string
		// wantCounted are the labels of the attempt in the metrics.
		wantCounted [2]string
	}{
		"a success has no event": {of(task.Task, record.Record{Outcome: record.Succeeded}, false), nil, [2]string{"task", "Succeeded"}},
		"a failure": {
			of(task.Task, failed, false),
			both("Warning AttemptFailed Attempt", "attempt 2 failed (TaskFailed, exit code 7), it is retried: no space"),
			[2]string{"task", "Failed"},
		},
		"the last failure": {
			of(task.Task, failed, true),
			both("Warning RetriesExhausted Attempt", "attempt 2 failed (TaskFailed, exit code 7), it is not retried: no space"),
			[2]string{"task", "Failed"},
		},
		"a node that has reverted": {
			of(task.Task, record.Record{
				Outcome:  record.Failed,
				Attempts: 1,
				Reason:   "Reverted",
				ExitCode: &code,
				Reverted: true,
				Message:  "loaded\nthe node was not confirmed within 20s",
			}, true),
			both(
				"Warning RetriesExhausted Attempt",
				"attempt 1 failed (Reverted, exit code 7), it is not retried: the node was not confirmed within 20s",
			),
			[2]string{"task", "Failed"},
		},
		"a check before the task that says yes": {
			of(task.CheckBefore, record.Record{Outcome: record.Succeeded, CheckBefore: record.AnswerYes, Reason: "AlreadyDone"}, false),
			nil,
			[2]string{"check-before", "Succeeded"},
		},
		"a check before the task that says no": {
			of(task.CheckBefore, record.Record{Outcome: record.Needed, CheckBefore: record.AnswerNo}, false),
			nil,
			[2]string{"check-before", "Needed"},
		},
		"a check before the task that fails itself": {
			of(
				task.Task,
				record.Record{
					Outcome:     record.Disrupted,
					CheckBefore: record.AnswerError,
					Reason:      "CheckError",
					ExitCode:    &code,
					Message:     "no database",
				},
				false,
			),
			both(
				"Warning CheckError Attempt",
				"the check before the task itself failed (CheckError, exit code 7), it is repeated and does not count as a failure: no database",
			),
			[2]string{"check-before", "Disrupted"},
		},
		"a node has drifted": {
			answer(
				record.Asked{Answer: record.AnswerNo, NoSince: time.Unix(1, 0), Message: "1 of 2"},
				record.Asked{Answer: record.AnswerYes},
			),
			both("Warning Drifted Check", "the node has drifted: task.check answers no: 1 of 2"),
			[2]string{"check-drift", "Needed"},
		},
		"it has still drifted": {
			answer(record.Asked{Answer: record.AnswerNo}, record.Asked{NoSince: time.Unix(1, 0)}), nil, [2]string{"check-drift", "Needed"},
		},
		"a drift ends": {
			answer(record.Asked{Answer: record.AnswerYes}, record.Asked{NoSince: time.Unix(1, 0)}),
			both("Normal DriftEnded Check", "task.check answers yes again"), [2]string{"check-drift", "Succeeded"},
		},
		"a yes after a yes": {
			answer(
				record.Asked{Answer: record.AnswerYes},
				record.Asked{Answer: record.AnswerYes},
			),
			nil,
			[2]string{"check-drift", "Succeeded"},
		},
		"a check for drift that fails itself": {
			answer(record.Asked{Answer: record.AnswerError, ExitCode: &code, Message: "no database"}, record.Asked{}),
			both(
				"Warning CheckError Check",
				"task.check itself failed (CheckError, exit code 7), it is repeated and does not count as a failure: no database",
			),
			[2]string{"check-drift", "Disrupted"},
		},
		"it fails again": {
			answer(
				record.Asked{Answer: record.AnswerError},
				record.Asked{ErrorSince: time.Unix(1, 0)},
			),
			nil,
			[2]string{"check-drift", "Disrupted"},
		},
		"a disruption": {
			of(task.Task, record.Record{Outcome: record.Disrupted, Message: "evicted"}, false),
			[]string{
				"Normal Disrupted Attempt on the NodeJob: node n: attempt 2 was disrupted and does not count: evicted",
			},
			[2]string{"task", "Disrupted"},
		},
		"a rollback": {
			rollback(record.Rollback{Outcome: record.Succeeded}, false),
			both("Normal RolledBack Rollback", "the rollback has succeeded"),
			[2]string{"rollback", "Succeeded"},
		},
		"a rollback that failed": {
			rollback(record.Rollback{Outcome: record.Failed, Attempts: 1, Reason: "DeadlineExceeded"}, false),
			both(
				"Warning AttemptFailed Rollback",
				"attempt 1 of the rollback failed (DeadlineExceeded), it is retried",
			),
			[2]string{"rollback", "Failed"},
		},
		"a rollback that failed and is not retried": {
			rollback(
				record.Rollback{Outcome: record.Failed, Attempts: 2, Reason: "TaskFailed", ExitCode: &code, Message: "no way back"},
				true,
			),
			both(
				"Warning RollbackFailed Rollback",
				"attempt 2 of the rollback failed (TaskFailed, exit code 7), it is not retried; the node may be in an inconsistent state, check it: no way back",
			),
			[2]string{"rollback", "Failed"},
		},
		"a rollback that was disrupted": {
			rollback(record.Rollback{Outcome: record.Disrupted, Message: "evicted"}, false),
			[]string{
				"Normal Disrupted Rollback on the NodeJob: node n: attempt 2 of the rollback was disrupted and does not count: evicted",
			},
			[2]string{"rollback", "Disrupted"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t)
			r.recorded(observation{job: liveJob()}, tt.action)
			if diff := cmp.Diff(tt.want, r.told.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if got := testutil.ToFloat64(r.Metrics.attempts.WithLabelValues(tt.wantCounted[:]...)); got != 1 {
				t.Errorf("%v attempts are counted as %v, want 1", got, tt.wantCounted)
			}
			// The duration of a rollback is not one of the task.
			if got, want := testutil.CollectAndCount(r.Metrics.run), map[bool]int{true: 1}[name == "a success has no event"]; got != want {
				t.Errorf("%d series of durations, want %d", got, want)
			}
		})
	}
}

// TestEventsOfConditions checks that an event has no commands: kubectl describe shows them in the condition.
func TestEventsOfConditions(t *testing.T) {
	r, job := newReconciler(t), liveJob()
	status := v1alpha1.NodeJobStatus{Revision: "rev"}
	is := job.DeepCopy()
	is.Status = status
	status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMaxFailuresExceeded,
		Message: "the rollout has stopped: 1 node failed. " + plan.FailureRemedies(plan.FixTask, true).Kubectl(is, "rev"),
	}}
	r.announceConditions(t.Context(), job, status)
	status.Conditions = []metav1.Condition{
		{
			Type:    v1alpha1.ConditionReconciling,
			Status:  metav1.ConditionTrue,
			Reason:  v1alpha1.ReasonPodNotStarting,
			Message: "on 1 node the pod does not start",
		},
	}
	r.announceConditions(t.Context(), job, status)
	status.Conditions[0].Reason = v1alpha1.ReasonInProgress
	r.announceConditions(t.Context(), job, status)
	want := []string{
		"Warning MaxFailuresExceeded Rollout on the NodeJob: the rollout has stopped: 1 node failed. The condition Stalled says what to do",
		"Warning PodNotStarting Rollout on the NodeJob: on 1 node the pod does not start",
	}
	if diff := cmp.Diff(want, r.told.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestEventsOfNodeChanges(t *testing.T) {
	ours := &record.Cordon{By: []string{"ns.everynode.dev/other"}}
	open := &record.Cordon{}
	both := func(event, note string) []string {
		return []string{
			event + " SetAside on the NodeJob: NodeJob ns/job on node n: " + note,
			event + " SetAside on the Node: NodeJob ns/job on node n: " + note,
		}
	}
	mark := func(reason string, cordon *record.Cordon) plan.PatchNode {
		return plan.PatchNode{Node: "n", Change: record.Change{UID: "node-uid", Cordon: cordon}, Reason: reason, Message: "so it is"}
	}
	tests := map[string]struct {
		action plan.Action
		want   []string
	}{
		"prepared for the task":     {mark(v1alpha1.ReasonPreparing, ours), nil},
		"settling after its reboot": {mark(v1alpha1.ReasonSettling, nil), nil},
		"the gate is closed":        {mark(v1alpha1.ReasonGateClosed, nil), nil},
		"the gate is opened":        {mark(v1alpha1.ReasonGateOpened, nil), nil},
		"results are published":     {mark(v1alpha1.ReasonPublished, nil), nil},
		"a cancelled drain":         {mark(v1alpha1.ReasonDrainCancelled, nil), both("Normal DrainCancelled", "so it is")},
		"uncordoned after it was prepared": {
			plan.Record{Node: "n", Change: record.Change{UID: "node-uid", Record: &record.Record{Outcome: record.Succeeded}, Cordon: open}},
			nil,
		},
		"cordoned":                     {mark(v1alpha1.ReasonCordoned, ours), both("Normal Cordoned", "so it is")},
		"draining":                     {mark(v1alpha1.ReasonDraining, nil), both("Normal Draining", "so it is")},
		"drained":                      {mark(v1alpha1.ReasonDrained, nil), both("Normal Drained", "so it is")},
		"a drain that timed out":       {mark(v1alpha1.ReasonDrainTimedOut, nil), both("Warning DrainTimedOut", "so it is")},
		"uncordoned":                   {mark(v1alpha1.ReasonUncordoned, open), both("Normal Uncordoned", "so it is")},
		"uncordoned by another client": {mark(v1alpha1.ReasonUncordoned, nil), both("Normal Uncordoned", "so it is")},
		"uncordoned, but still cordoned for another NodeJob": {
			mark(v1alpha1.ReasonUncordoned, ours),
			both("Normal Uncordoned", "so it is; it stays cordoned for another NodeJob"),
		},
		"uncordoned by a success": {
			plan.Record{
				Node:       "n",
				Change:     record.Change{UID: "node-uid", Record: &record.Record{Outcome: record.Succeeded}, Cordon: open},
				Quarantine: true,
			},
			both("Normal Uncordoned", "the cordon is no longer needed"),
		},
		"not uncordoned by a success": {
			plan.Record{
				Node:       "n",
				Change:     record.Change{UID: "node-uid", Record: &record.Record{Outcome: record.Succeeded}, Cordon: ours},
				Quarantine: true,
			},
			nil,
		},
		"uncordoned by the removal of the record": {
			plan.CleanUpNode{Node: "n", Change: record.Change{UID: "node-uid", Cordon: open}},
			both("Normal Uncordoned", "the cordon is no longer needed"),
		},
		"the record is removed, and the cordon is not ours": {plan.CleanUpNode{Node: "n", Change: record.Change{UID: "node-uid"}}, nil},
		"no event for a node that is being deleted":         {plan.PatchNode{Node: "gone", Reason: v1alpha1.ReasonCordoned}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t, watchedNode())
			seen := observation{job: liveJob()}
			if did, err := r.apply(t.Context(), seen, plan.Plan{Actions: []plan.Action{tt.action}}); err != nil || did.again {
				t.Fatalf("%+v, %v", did, err)
			}
			if diff := cmp.Diff(tt.want, r.told.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestABlockedDrainHasOneEvent checks that the event is not repeated while the drain stays blocked.
func TestABlockedDrainHasOneEvent(t *testing.T) {
	r := newReconciler(t)
	drain := v1alpha1.NodeDrain{Node: "n", Deadline: metav1.NewTime(noon.Add(time.Minute)), Pods: 1,
		Blocked: []v1alpha1.BlockedPod{{Pod: "shop/web-0", Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}}
	seen := observation{job: liveJob(), input: plan.Input{Nodes: []plan.Node{{Name: "other"}, {Name: "n", UID: "node-uid"}}}}
	for _, since := range []time.Time{{}, noon, noon, {}} {
		drain.BlockedSince = metav1.Time{Time: since}
		status := v1alpha1.NodeJobStatus{Drains: []v1alpha1.NodeDrain{drain}}
		r.announceDrains(seen, &status)
		seen.job.Status = status
	}
	const note = "NodeJob ns/job on node n: its drain is blocked, and ends without success at "
	const why = ": shop/web-0: The disruption budget web needs 2 healthy pods and has 2 currently"
	until := noon.Add(time.Minute).UTC().Format(time.RFC3339)
	want := []string{
		"Warning DrainBlocked Drain on the NodeJob: " + note + until + why,
		"Warning DrainBlocked Drain on the Node: " + note + until + why,
	}
	if diff := cmp.Diff(want, r.told.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestTheEventOfARevisionNamesWhoHasChangedTheSpec(t *testing.T) {
	for name, tt := range map[string]struct{ by, want string }{
		"a user":                         {"jane", "revision rev begins; nodes to do: 3; last changed by jane"},
		"a name with control characters": {"jane\n\x1b[2J", `revision rev begins; nodes to do: 3; last changed by jane\n\x1b[2J`},
		"nothing is known":               {"", "revision rev begins; nodes to do: 3"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t)
			job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ChangedByAnnotation: tt.by}}}
			r.announce(t.Context(), job, v1alpha1.NodeJobStatus{Revision: "rev", Nodes: v1alpha1.NodeCounts{Total: 4, Done: 1}})
			if diff := cmp.Diff([]string{"Normal RevisionStarted Rollout on the NodeJob: " + tt.want}, r.told.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStepStarted(t *testing.T) {
	status := func(revision, step string) *v1alpha1.NodeJobStatus {
		return &v1alpha1.NodeJobStatus{Revision: revision, Rollout: &v1alpha1.RolloutStatus{
			Step: step, Steps: []v1alpha1.StepStatus{{Name: "canary", Nodes: 1}, {Name: "all", Nodes: 9}},
		}}
	}
	tests := map[string]struct {
		before, after *v1alpha1.NodeJobStatus
		want          string
	}{
		"the same step": {status("rev", "canary"), status("rev", "canary"), ""},
		"the next step": {status("rev", "canary"), status("rev", "all"), "step all of revision rev begins; nodes in it: 9"},
		"the first step of a revision has its own event": {status("rev", "all"), status("rev2", "canary"), ""},
		"the first step of the first revision":           {&v1alpha1.NodeJobStatus{}, status("rev", "canary"), ""},
		"a status of an earlier version":                 {&v1alpha1.NodeJobStatus{Revision: "rev"}, status("rev", "canary"), ""},
		"no revision is known":                           {status("rev", "all"), &v1alpha1.NodeJobStatus{Revision: "rev"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t)
			r.announce(t.Context(), &v1alpha1.NodeJob{Status: *tt.before}, *tt.after)
			note := ""
			for _, line := range r.told.events() {
				if text, found := strings.CutPrefix(line, "Normal StepStarted Rollout on the NodeJob: "); found {
					note += text
				}
			}
			if diff := cmp.Diff(tt.want, note); diff != "" {
				t.Errorf("note (-want +got):\n%s", diff)
			}
		})
	}
}
