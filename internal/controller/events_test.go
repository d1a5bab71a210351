// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

func TestEventsOfAttempts(t *testing.T) {
	code := int32(7)
	of := func(runs task.Phase, r record.Record, final bool) plan.Record {
		return plan.Record{Node: "n", Change: record.Change{UID: "node-uid", Record: &r}, Final: final, Pod: plan.Pod{Runs: runs, Attempt: 2}}
	}
	rollback := func(rb record.Rollback, final bool) plan.Record {
		// What was rolled back is in the same record.
		return of(task.Rollback, record.Record{Outcome: record.Failed, Attempts: 4, Reason: "TaskFailed", Rollback: &rb}, final)
	}
	both := func(event, note string) []string {
		return []string{event + " on the NodeJob: NodeJob ns/job on node n: " + note, event + " on the Node: NodeJob ns/job on node n: " + note}
	}
	failed := record.Record{Outcome: record.Failed, Attempts: 2, Reason: "TaskFailed", ExitCode: &code, Message: "no space"}
	tests := map[string]struct {
		action plan.Record
		want   []string
		// wantCounted are the labels of the attempt in the metrics.
		wantCounted [2]string
	}{
		"a success is no news": {of(task.Task, record.Record{Outcome: record.Succeeded}, false), nil, [2]string{"task", "Succeeded"}},
		"a failure":            {of(task.Task, failed, false), both("Warning AttemptFailed Attempt", "attempt 2 failed (TaskFailed, exit code 7), it is retried: no space"), [2]string{"task", "Failed"}},
		"the last failure":     {of(task.Task, failed, true), both("Warning RetriesExhausted Attempt", "attempt 2 failed (TaskFailed, exit code 7), it is not retried: no space"), [2]string{"task", "Failed"}},
		"a disruption": {
			of(task.Task, record.Record{Outcome: record.Disrupted, Message: "evicted"}, false),
			[]string{"Normal Disrupted Attempt on the NodeJob: node n: attempt 2 was disrupted and does not count: evicted"}, [2]string{"task", "Disrupted"},
		},
		"a rollback": {rollback(record.Rollback{Outcome: record.Succeeded}, false), both("Normal RolledBack Rollback", "the rollback has succeeded"), [2]string{"rollback", "Succeeded"}},
		"a rollback that failed": {
			rollback(record.Rollback{Outcome: record.Failed, Attempts: 1, Reason: "DeadlineExceeded"}, false),
			both("Warning AttemptFailed Rollback", "attempt 1 of the rollback failed (DeadlineExceeded), it is retried"), [2]string{"rollback", "Failed"},
		},
		"a rollback that failed for good": {
			rollback(record.Rollback{Outcome: record.Failed, Attempts: 2, Reason: "TaskFailed", ExitCode: &code, Message: "no way back"}, true),
			both("Warning RollbackFailed Rollback", "attempt 2 of the rollback failed (TaskFailed, exit code 7), it is not retried; the node may be in an inconsistent state, check it: no way back"), [2]string{"rollback", "Failed"},
		},
		"a rollback that was disrupted": {
			rollback(record.Rollback{Outcome: record.Disrupted, Message: "evicted"}, false),
			[]string{"Normal Disrupted Rollback on the NodeJob: node n: attempt 2 of the rollback was disrupted and does not count: evicted"}, [2]string{"rollback", "Disrupted"},
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
			// How long the task takes says nothing of how long its rollback does.
			if got, want := testutil.CollectAndCount(r.Metrics.run), map[bool]int{true: 1}[name == "a success is no news"]; got != want {
				t.Errorf("%d series of durations, want %d", got, want)
			}
		})
	}
}

func TestEventsOfNodesThatAreSetAside(t *testing.T) {
	ours := &record.Cordon{By: []string{"ns.everynode.dev/other"}}
	open := &record.Cordon{}
	both := func(event, note string) []string {
		return []string{event + " SetAside on the NodeJob: NodeJob ns/job on node n: " + note, event + " SetAside on the Node: NodeJob ns/job on node n: " + note}
	}
	mark := func(reason string, cordon *record.Cordon) plan.PatchNode {
		return plan.PatchNode{Node: "n", Change: record.Change{UID: "node-uid", Cordon: cordon}, Reason: reason, Message: "so it is"}
	}
	tests := map[string]struct {
		action plan.Action
		want   []string
	}{
		"made ready for the task":        {mark(v1alpha1.ReasonPreparing, ours), nil},
		"back from its reboot":           {mark(v1alpha1.ReasonSettling, nil), nil},
		"its gate is closed":             {mark(v1alpha1.ReasonGateClosed, nil), nil},
		"its gate is opened":             {mark(v1alpha1.ReasonGateOpened, nil), nil},
		"facts are brought up":           {mark(v1alpha1.ReasonPublished, nil), nil},
		"a drain that is given up":       {mark(v1alpha1.ReasonDrainCancelled, nil), both("Normal DrainCancelled", "so it is")},
		"opened after it was made ready": {plan.Record{Node: "n", Change: record.Change{UID: "node-uid", Record: &record.Record{Outcome: record.Succeeded}, Cordon: open}}, nil},
		"cordoned":                       {mark(v1alpha1.ReasonCordoned, ours), both("Normal Cordoned", "so it is")},
		"draining":                       {mark(v1alpha1.ReasonDraining, nil), both("Normal Draining", "so it is")},
		"drained":                        {mark(v1alpha1.ReasonDrained, nil), both("Normal Drained", "so it is")},
		"not drained in time":            {mark(v1alpha1.ReasonDrainTimedOut, nil), both("Warning DrainTimedOut", "so it is")},
		"uncordoned":                     {mark(v1alpha1.ReasonUncordoned, open), both("Normal Uncordoned", "so it is")},
		"uncordoned by somebody":         {mark(v1alpha1.ReasonUncordoned, nil), both("Normal Uncordoned", "so it is")},
		"cordoned for another":           {mark(v1alpha1.ReasonUncordoned, ours), both("Normal Uncordoned", "so it is; it stays cordoned for another NodeJob")},
		"opened by a success":            {plan.Record{Node: "n", Change: record.Change{UID: "node-uid", Record: &record.Record{Outcome: record.Succeeded}, Cordon: open}, Quarantine: true}, both("Normal Uncordoned", "the cordon is no longer needed")},
		"not opened by one":              {plan.Record{Node: "n", Change: record.Change{UID: "node-uid", Record: &record.Record{Outcome: record.Succeeded}, Cordon: ours}, Quarantine: true}, nil},
		"opened by the end of all":       {plan.CleanUpNode{Node: "n", Change: record.Change{UID: "node-uid", Cordon: open}}, both("Normal Uncordoned", "the cordon is no longer needed")},
		"forgotten and not ours":         {plan.CleanUpNode{Node: "n", Change: record.Change{UID: "node-uid"}}, nil},
		"nothing on a node that is":      {plan.PatchNode{Node: "gone", Reason: v1alpha1.ReasonCordoned}, nil},
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
		"the first of a revision has its own event": {status("rev", "all"), status("rev2", "canary"), ""},
		"the first of all":                          {&v1alpha1.NodeJobStatus{}, status("rev", "canary"), ""},
		"a status of an earlier version":            {&v1alpha1.NodeJobStatus{Revision: "rev"}, status("rev", "canary"), ""},
		"no revision is known":                      {status("rev", "all"), &v1alpha1.NodeJobStatus{Revision: "rev"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, stepStarted(tt.before, tt.after)); diff != "" {
				t.Errorf("note (-want +got):\n%s", diff)
			}
			r := newReconciler(t)
			r.announce(t.Context(), &v1alpha1.NodeJob{Status: *tt.before}, *tt.after)
			told := false
			for _, line := range r.told.events() {
				told = told || line == "Normal StepStarted Rollout on the NodeJob: "+tt.want
			}
			if told != (tt.want != "") {
				t.Errorf("events are %q", r.told.events())
			}
		})
	}
}
