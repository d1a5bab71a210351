// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// status.nodes.rollbackPending is what a pipeline waits for, so it must not count rollbacks that never start without help.
func TestRollbackPendingCountsWhatContinues(t *testing.T) {
	failed := func(changes ...func(*record.Record)) Node {
		return newNode("n", recorded(record.Failed, append([]func(*record.Record){attempts(2)}, changes...)...))
	}
	lost := failed()
	lost.Ready = corev1.ConditionUnknown
	suspended := func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }
	rollback := func(p *Pod) { p.Runs = task.Rollback }
	tests := map[string]struct {
		job  []func(*v1alpha1.NodeJob)
		node Node
		pods []Pod
		want int32
	}{
		"it starts now": {job: []func(*v1alpha1.NodeJob){withRollback}, node: failed(), want: 1},
		"it runs": {
			job:  []func(*v1alpha1.NodeJob){withRollback},
			node: failed(),
			pods: []Pod{newPod(failed(), rollback)},
			want: 1,
		},
		"it is retried": {job: []func(*v1alpha1.NodeJob){withRollback}, node: failed(undone(record.Failed, 1)), want: 1},
		"it waits for its backoff": {
			job:  []func(*v1alpha1.NodeJob){withRollback},
			node: failed(undone(record.Failed, 1), func(r *record.Record) { r.Rollback.FinishedAt = ago(1) }),
			want: 1,
		},
		"a pod is terminating": {
			job:  []func(*v1alpha1.NodeJob){withRollback},
			node: failed(),
			pods: []Pod{newPod(failed(), func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) })},
			want: 1,
		},
		"it has succeeded":         {job: []func(*v1alpha1.NodeJob){withRollback}, node: failed(undone(record.Succeeded, 1))},
		"it has failed":            {job: []func(*v1alpha1.NodeJob){withRollback}, node: failed(undone(record.Failed, 2))},
		"the node is unreachable":  {job: []func(*v1alpha1.NodeJob){withRollback}, node: lost},
		"the NodeJob is suspended": {job: []func(*v1alpha1.NodeJob){withRollback, suspended}, node: failed()},
		"there is no rollback":     {node: failed()},
		"the task failed and is retried": {
			job:  []func(*v1alpha1.NodeJob){withRollback},
			node: newNode("n", recorded(record.Failed, attempts(1))),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Next(see(newJob(tt.job...), []Node{tt.node}, tt.pods...)).Status.Nodes
			if got.RollbackPending != tt.want {
				t.Errorf("rollbackPending is %d, want %d; %+v", got.RollbackPending, tt.want, got)
			}
		})
	}
}

// TestRollbackInTheStatus tests what status.failures says about a rollback.
func TestRollbackInTheStatus(t *testing.T) {
	failed := newNode("n", recorded(record.Failed, attempts(2)))
	for name, tt := range map[string]struct {
		changes         []func(*record.Record)
		pods            []Pod
		reason, message string
	}{
		"it runs":          {nil, []Pod{newPod(failed, func(p *Pod) { p.Runs = task.Rollback })}, v1alpha1.ReasonRollingBack, ""},
		"it has failed":    {[]func(*record.Record){undone(record.Failed, 2)}, nil, v1alpha1.ReasonRollbackFailed, "no way back"},
		"it has succeeded": {[]func(*record.Record){undone(record.Succeeded, 1)}, nil, v1alpha1.ReasonRolledBack, ""},
	} {
		node := newNode("n", recorded(record.Failed, append(tt.changes, attempts(2))...))
		failures := Next(see(newJob(withRollback), []Node{node}, tt.pods...)).Status.Failures
		if len(failures) != 1 || failures[0].Retrying || failures[0].Rollback != tt.reason || failures[0].RollbackMessage != tt.message {
			t.Errorf("%s: %+v, want %s, %q", name, failures, tt.reason, tt.message)
		}
	}
}

// TestRetryOfARollback tests what a request of a retry means for a rollback.
func TestRetryOfARollback(t *testing.T) {
	for name, tt := range map[string]struct {
		retry, recorded string
		outcome         record.Outcome
		want            rollbackState
	}{
		"it was requested since a failure":   {"now", "earlier", record.Failed, rollbackState{}},
		"it was requested before a failure":  {"now", "now", record.Failed, rollbackState{failures: 1, notBefore: ago(50)}},
		"the request was removed":            {"", "earlier", record.Failed, rollbackState{failures: 1, notBefore: ago(50)}},
		"it was requested since the success": {"now", "earlier", record.Succeeded, rollbackState{done: true}},
	} {
		r := &recordReader{&job{policy: policy{in: Input{Job: newJob(), Now: now}}, retry: tt.retry}}
		rb := &record.Rollback{Outcome: tt.outcome, Attempts: 1, FinishedAt: ago(60), Retry: tt.recorded}
		if got := r.readRollback(&record.Record{Rollback: rb}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// The script of a rollback gets what the task has reported, so its attempt needs the record.
func TestTheAttemptThatStarts(t *testing.T) {
	failed := newNode("n", recorded(record.Failed, attempts(2)))
	done := newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.Revision = "old" }))
	deleted := func(j *v1alpha1.NodeJob) {
		withRollback(j)
		j.DeletionTimestamp, j.Spec.DeletionPolicy = &metav1.Time{Time: ago(1)}, v1alpha1.DeletionRollback
	}
	tests := map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node Node
		want task.Attempt
	}{
		"the task": {
			func(*v1alpha1.NodeJob) {},
			newNode("n"),
			task.Attempt{Phase: task.Task, Revision: rev, Number: 1},
		},
		"a retry": {
			func(*v1alpha1.NodeJob) {},
			newNode("n", recorded(record.Failed, attempts(1))),
			task.Attempt{Phase: task.Task, Revision: rev, Number: 2},
		},
		"a rollback": {
			withRollback,
			failed,
			task.Attempt{Phase: task.Rollback, Revision: rev, Number: 1, Undoes: failed.On.Record},
		},
		"a rollback before the deletion": {
			deleted,
			done,
			task.Attempt{Phase: task.Rollback, Revision: "old", Number: 1, Undoes: done.On.Record, Deleting: true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := tt.want
			want.NodeName, want.NodeUID, want.MachineID, want.BootID = tt.node.Name, tt.node.UID, tt.node.MachineID, tt.node.BootID
			var got []task.Attempt
			for _, a := range Next(see(newJob(tt.job), []Node{tt.node})).Actions {
				if s, starts := a.(Start); starts {
					got = append(got, s.Attempt)
				}
			}
			if diff := cmp.Diff([]task.Attempt{want}, got); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
		})
	}
}
