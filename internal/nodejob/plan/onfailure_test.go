// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

func onFailure(policy v1alpha1.FailureAction) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Spec.OnFailure.Action = policy }
}

func withRollback(j *v1alpha1.NodeJob) {
	j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}, TimeoutSeconds: new(int32(30))}
}

// cordonedFor is a node that Everynode has cordoned for these NodeJobs.
func cordonedFor(keys ...string) func(*Node) {
	return func(n *Node) { n.Unschedulable, n.CordonedBy, n.ResourceVersion = true, keys, "42" }
}

func undone(o record.Outcome, attempts int32) func(*record.Record) {
	return func(r *record.Record) {
		r.Rollback = &record.Rollback{
			Outcome:    o,
			Attempts:   attempts,
			FinishedAt: ago(60),
			Reason:     "TaskFailed",
			Message:    "no way back",
			PodUID:     "undo-pod",
		}
	}
}

func drainSince(seconds int) func(*record.Record) {
	return func(r *record.Record) { r.Cordoned, r.Drain = true, &record.Drain{StartedAt: ago(seconds)} }
}

func wasCordoned(r *record.Record) { r.Cordoned = true }

// TestFailedNodes tests what the plan does with a node on which every attempt failed.
func TestFailedNodes(t *testing.T) {
	const own, other = "ns.everynode.dev/job", "ns.everynode.dev/other"
	failed := func(changes ...func(*record.Record)) func(*Node) {
		return recorded(record.Failed, append([]func(*record.Record){attempts(2)}, changes...)...)
	}
	byHand := func(n *Node) { n.Unschedulable = true }
	lost := func(n *Node) { n.Ready = corev1.ConditionUnknown }
	web := DrainPod{Namespace: "web", Name: "web-1", UID: "web-1"}
	blocked, held, terminating := web, web, web
	blocked.Blocked, blocked.TriedAt = "the budget", ago(3)
	held.EvictionRefused = "nothing would make it again"
	terminating.Terminating = true
	tests := map[string]struct {
		job        []func(*v1alpha1.NodeJob)
		node       Node
		pods       []DrainPod
		in         func(*Input)
		want       []string
		wantReason string
	}{
		"nothing happens to it by default": {node: newNode("n", failed()), wantReason: v1alpha1.ReasonRetriesExhausted},

		"it is rolled back": {
			job: []func(*v1alpha1.NodeJob){withRollback}, node: newNode("n", failed()),
			want: []string{"start rollback 1 of rev on n"}, wantReason: v1alpha1.ReasonRollingBack,
		},
		"it is not rolled back if the task has never started": {
			job: []func(*v1alpha1.NodeJob){
				withRollback,
			},
			node:       newNode("n", failed(func(r *record.Record) { r.NeverStarted = true })),
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is rolled back once": {
			job: []func(*v1alpha1.NodeJob){
				withRollback,
			},
			node:       newNode("n", failed(undone(record.Succeeded, 1))),
			wantReason: v1alpha1.ReasonRolledBack,
		},
		"it is rolled back again when the rollback failed": {
			job: []func(*v1alpha1.NodeJob){withRollback}, node: newNode("n", failed(undone(record.Failed, 1))),
			want: []string{"start rollback 2 of rev on n"}, wantReason: v1alpha1.ReasonRollingBack,
		},
		"the rollback is not retried forever": {
			job: []func(*v1alpha1.NodeJob){
				withRollback,
			},
			node:       newNode("n", failed(undone(record.Failed, 2))),
			wantReason: v1alpha1.ReasonRollbackFailed,
		},
		"a disrupted rollback does not count as a failure": {
			job: []func(*v1alpha1.NodeJob){withRollback}, node: newNode("n", failed(undone(record.Disrupted, 0))),
			want: []string{"start rollback 1 of rev on n"}, wantReason: v1alpha1.ReasonRollingBack,
		},
		"it is rolled back when it is reachable again": {
			job: []func(*v1alpha1.NodeJob){withRollback}, node: newNode("n", failed(), lost), wantReason: v1alpha1.ReasonRollbackPending,
		},
		"an untolerated taint does not prevent the rollback": {
			job: []func(*v1alpha1.NodeJob){withRollback}, node: newNode("n", failed(), func(n *Node) { n.Taints = []corev1.Taint{busy} }),
			want: []string{"start rollback 1 of rev on n"}, wantReason: v1alpha1.ReasonRollingBack,
		},
		"more failures than maxFailures do not prevent the rollback": {
			job: []func(*v1alpha1.NodeJob){withRollback, mayFailNodes(0)}, node: newNode("n", failed()),
			want: []string{"start rollback 1 of rev on n"}, wantReason: v1alpha1.ReasonRollingBack,
		},
		"it is not rolled back while suspended": {
			job: []func(*v1alpha1.NodeJob){withRollback, func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }}, node: newNode("n", failed()),
			wantReason: v1alpha1.ReasonRollbackPending,
		},

		"it is cordoned": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed()),
			want: []string{"Cordoned n, recorded, cordoned by " + own}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is cordoned at once, and rolled back": {
			job:  []func(*v1alpha1.NodeJob){withRollback, onFailure(v1alpha1.FailureActionDrain)},
			node: newNode("n", failed()),
			want: []string{
				"start rollback 1 of rev on n",
				"Cordoned n, recorded, cordoned by " + own,
			},
			wantReason: v1alpha1.ReasonRollingBack,
		},
		"it stays cordoned": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionCordon),
			},
			node:       newNode("n", failed(wasCordoned), cordonedFor(own)),
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"a cordon of another NodeJob is shared": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed(), cordonedFor(other)),
			want: []string{"Cordoned n, recorded, cordoned by " + own + " and " + other}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"a cordon by a user is not changed": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed(), byHand),
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is not cordoned again after a user uncordoned it": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed(wasCordoned)),
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"the annotation is removed and the drain ends after a user uncordoned it": {
			job:  []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)},
			node: newNode("n", failed(drainSince(9)), cordonedFor(own), func(n *Node) { n.Unschedulable = false }),
			want: []string{"Uncordoned n, recorded, uncordoned"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is uncordoned when onFailure no longer requires a cordon": {
			node: newNode(
				"n",
				failed(),
				cordonedFor(own, other),
			),
			want:       []string{"Uncordoned n, cordoned by " + other},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is uncordoned when it was skipped": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionCordon),
			},
			node:       newNode("n", failed(), labelled(rev), cordonedFor(own)),
			want:       []string{"Uncordoned n, uncordoned"},
			wantReason: v1alpha1.ReasonDone,
		},
		"it is uncordoned when it is no longer selected": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon), onPool("b")},
			node: newNode(
				"n",
				failed(),
				cordonedFor(own),
			),
			want:       []string{"Uncordoned n, uncordoned"},
			wantReason: v1alpha1.ReasonNotSelected,
		},
		"its drain ends when it is no longer selected": {
			node: newNode(
				"n",
				failed(drainSince(9)),
				cordonedFor(own),
			),
			want:       []string{"Uncordoned n, recorded, uncordoned"},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"its drain ends when onFailure no longer requires a drain": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionCordon),
			},
			node:       newNode("n", failed(drainSince(9)), cordonedFor(own)),
			want:       []string{"DrainCancelled n, recorded"},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is not cordoned again after a user uncordoned it for an earlier failure": {
			job:  []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)},
			node: newNode("n", failed(), cordonedFor(own), func(n *Node) { n.Unschedulable = false }),
			want: []string{"Uncordoned n, recorded, uncordoned"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it stays cordoned during a retry": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionCordon),
				askAgain,
			},
			node:       newNode("n", failed(), cordonedFor(own)),
			want:       []string{"start attempt 1 of rev on n"},
			wantReason: v1alpha1.ReasonStarting,
		},

		"it is not cordoned while the namespace is not allowed": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed()), in: refuseNamespace,
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is uncordoned when it was skipped, and the namespace is not allowed": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionCordon),
			},
			node:       newNode("n", failed(), labelled(rev), cordonedFor(own)),
			in:         refuseNamespace,
			want:       []string{"Uncordoned n, uncordoned"},
			wantReason: v1alpha1.ReasonDone,
		},
		"it is uncordoned when onFailure no longer requires a cordon, and the namespace is not allowed": {
			node: newNode(
				"n",
				failed(),
				cordonedFor(own),
			),
			in:         refuseNamespace,
			want:       []string{"Uncordoned n, uncordoned"},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"a cordon on record that was removed from the node changes nothing during a retry": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionCordon),
			},
			node:       newNode("n", recorded(record.Failed, wasCordoned)),
			want:       []string{"start attempt 2 of rev on n"},
			wantReason: v1alpha1.ReasonStarting,
		},
		"a cordon on record that was removed from the node is no longer required": {
			node: newNode("n", failed(wasCordoned)), want: []string{"Uncordoned n, recorded"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it stays uncordoned for another NodeJob after a user uncordoned it": {
			node: newNode(
				"n",
				failed(),
				cordonedFor(own, other),
				func(n *Node) { n.Unschedulable = false },
			),
			want:       []string{"Uncordoned n, uncordoned"},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is not drained after a user uncordoned it": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionDrain),
			},
			node:       newNode("n", failed(wasCordoned)),
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is not cordoned a second time beside another NodeJob": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionCordon),
			},
			node:       newNode("n", failed(wasCordoned), cordonedFor(other)),
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"the cordon before the task becomes its quarantine": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionCordon),
				cordoning,
			},
			node:       newNode("n", failed(), cordonedFor(own)),
			want:       []string{"Cordoned n, recorded"},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"the annotation is removed, and the record of a disruption stays, when a user uncordons it": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionCordon),
			},
			wantReason: v1alpha1.ReasonBackingOff,
			want:       []string{"Uncordoned n, uncordoned"},
			node: newNode(
				"n",
				recorded(record.Disrupted, wasCordoned, func(r *record.Record) { r.FinishedAt = ago(1) }),
				cordonedFor(own),
				func(n *Node) { n.Unschedulable = false },
			),
		},
		"a drain that has ended does not start again": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionDrain),
			},
			pods:       []DrainPod{web},
			wantReason: v1alpha1.ReasonRetriesExhausted,
			node: newNode(
				"n",
				failed(drainSince(9), func(r *record.Record) { r.Drain.FinishedAt, r.Drain.Outcome = ago(5), v1alpha1.ReasonDrained }),
				cordonedFor(own),
			),
		},
		"a drain that was cancelled does not start again on a node that a user has cordoned": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, wantReason: v1alpha1.ReasonRetriesExhausted,
			node: newNode("n", failed(drainSince(9), func(r *record.Record) {
				r.Drain.FinishedAt, r.Drain.Outcome = ago(5), v1alpha1.ReasonDrainCancelled
			}), byHand),
		},
		"its drain does not start while suspended": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionDrain),
				onHold,
			},
			node:       newNode("n", failed(wasCordoned), cordonedFor(own)),
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"a blocked pod is evicted again after five seconds": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionDrain),
			},
			node: newNode("n", failed(drainSince(9)), cordonedFor(own)),
			pods: []DrainPod{
				{Namespace: "web", Name: "web-1", TriedAt: ago(5)},
			},
			want:       []string{"evict from n: web/web-1"},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is uncordoned when it has an untolerated taint": {
			job:  []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)},
			node: newNode("n", recorded(record.Failed), cordonedFor(own), func(n *Node) { n.Taints = []corev1.Taint{busy} }),
			want: []string{"Uncordoned n, uncordoned"}, wantReason: v1alpha1.ReasonUntoleratedTaint,
		},
		"the annotation is removed when a user uncordons it during a retry": {
			job:  []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon), askAgain},
			node: newNode("n", failed(), cordonedFor(own), func(n *Node) { n.Unschedulable = false }),
			want: []string{"start attempt 1 of rev on n", "Uncordoned n, uncordoned"}, wantReason: v1alpha1.ReasonStarting,
		},
		"its drain starts again when it was cancelled and is required again": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)},
			node: newNode("n", failed(drainSince(9), func(r *record.Record) {
				r.Drain.FinishedAt, r.Drain.Outcome = ago(5), v1alpha1.ReasonDrainCancelled
			}), cordonedFor(own)),
			want: []string{"Draining n, recorded"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"its drain ends when it is skipped": {
			job:  []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)},
			node: newNode("n", failed(drainSince(9)), labelled(rev), cordonedFor(own)),
			want: []string{"Uncordoned n, recorded, uncordoned"}, wantReason: v1alpha1.ReasonDone,
		},
		"it is drained": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionDrain),
			},
			node:       newNode("n", failed(wasCordoned), cordonedFor(own)),
			want:       []string{"Draining n, recorded"},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is cordoned and drained in one write": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed()),
			want: []string{"Draining n, recorded, cordoned by " + own}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is drained when the rollback has failed": {
			job: []func(*v1alpha1.NodeJob){
				withRollback,
				onFailure(v1alpha1.FailureActionDrain),
			},
			node:       newNode("n", failed(undone(record.Failed, 2), wasCordoned), cordonedFor(own)),
			want:       []string{"Draining n, recorded"},
			wantReason: v1alpha1.ReasonRollbackFailed,
		},
		"it is drained without the rollback when it is unreachable": {
			job: []func(*v1alpha1.NodeJob){
				withRollback,
				onFailure(v1alpha1.FailureActionDrain),
			},
			node:       newNode("n", failed(wasCordoned), lost, cordonedFor(own)),
			want:       []string{"Draining n, recorded"},
			wantReason: v1alpha1.ReasonRollbackPending,
		},
		"nothing is evicted before its pods were observed": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionDrain),
			},
			node:       newNode("n", failed(drainSince(9)), cordonedFor(own)),
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"its pods are evicted": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionDrain),
			},
			node: newNode("n", failed(drainSince(9)), cordonedFor(own)),
			pods: []DrainPod{
				web,
				held,
				terminating,
			},
			want:       []string{"evict from n: web/web-1"},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"a blocked pod is retried later": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionDrain),
			},
			node:       newNode("n", failed(drainSince(9)), cordonedFor(own)),
			pods:       []DrainPod{blocked},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"nothing is evicted while suspended": {
			job:  []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain), func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }},
			node: newNode("n", failed(drainSince(9)), cordonedFor(own)), pods: []DrainPod{web}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"the drain ends when all pods have terminated": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionDrain),
			},
			node:       newNode("n", failed(drainSince(9)), cordonedFor(own)),
			pods:       []DrainPod{},
			want:       []string{"Drained n, recorded"},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"the drain ends at its deadline": {
			job: []func(*v1alpha1.NodeJob){
				onFailure(v1alpha1.FailureActionDrain),
			},
			node:       newNode("n", failed(drainSince(600)), cordonedFor(own)),
			pods:       []DrainPod{blocked},
			want:       []string{"DrainTimedOut n, recorded"},
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(tt.job...), []Node{tt.node})
			if tt.pods != nil {
				in.Drains = map[types.UID][]DrainPod{tt.node.UID: tt.pods}
			}
			if tt.in != nil {
				tt.in(&in)
			}
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if p.Nodes[0].Reason != tt.wantReason {
				t.Errorf("it is %s: %s, want %s", p.Nodes[0].State, p.Nodes[0].Reason, tt.wantReason)
			}
		})
	}
}

func onPool(pool string) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
	}
}

// TestOutcomeOfRollback follows the pod of a rollback to the node's record.
func TestOutcomeOfRollback(t *testing.T) {
	failed := newNode("n", recorded(record.Failed, attempts(2)))
	undo := func(changes ...func(*Pod)) Pod {
		return newPod(failed, append([]func(*Pod){func(p *Pod) { p.Runs, p.UID = task.Rollback, "undo-pod" }}, changes...)...)
	}
	disrupted := func(p *Pod) { p.Phase, p.Disrupted = corev1.PodFailed, ago(2) }
	tests := map[string]struct {
		node       Node
		pod        Pod
		want       []string
		wantState  State
		wantReason string
	}{
		"it runs": {node: failed, pod: undo(), wantState: Failed, wantReason: v1alpha1.ReasonRollingBack},
		"it succeeds": {
			node:       failed,
			pod:        undo(exited(0)),
			wantState:  Failed,
			wantReason: v1alpha1.ReasonRollingBack,
			want: []string{
				"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Succeeded: attempts 1, disruptions 0",
			},
		},
		"it fails": {
			node:       failed,
			pod:        undo(exited(4)),
			wantState:  Failed,
			wantReason: v1alpha1.ReasonRollingBack,
			want: []string{
				"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Failed: attempts 1, disruptions 0",
			},
		},
		"it fails for the last time": {
			node:       failed,
			pod:        undo(exited(4), func(p *Pod) { p.Attempt = 2 }),
			wantState:  Failed,
			wantReason: v1alpha1.ReasonRollingBack,
			want: []string{
				"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Failed: attempts 2, disruptions 0, for good",
			},
		},
		"it succeeds in the last attempt": {
			node:       failed,
			pod:        undo(exited(0), func(p *Pod) { p.Attempt = 2 }),
			wantState:  Failed,
			wantReason: v1alpha1.ReasonRollingBack,
			want: []string{
				"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Succeeded: attempts 2, disruptions 0",
			},
		},
		"it is disrupted": {
			node:       failed,
			pod:        undo(disrupted),
			wantState:  Failed,
			wantReason: v1alpha1.ReasonRollingBack,
			want: []string{
				"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Disrupted: attempts 0, disruptions 1",
			},
		},
		"it is disrupted after a failure": {
			node: newNode("n", recorded(record.Failed, attempts(2), func(r *record.Record) {
				r.Rollback = &record.Rollback{Outcome: record.Failed, Attempts: 1, Disruptions: 3, PodUID: "first"}
			})),
			pod:        undo(disrupted, func(p *Pod) { p.Attempt = 2 }),
			wantState:  Failed,
			wantReason: v1alpha1.ReasonRollingBack,
			want: []string{
				"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Disrupted: attempts 1, disruptions 1",
			},
		},
		"a user has raised the limit of retries meanwhile": {
			node: newNode("n", recorded(record.Failed)), pod: undo(), wantState: Waiting, wantReason: v1alpha1.ReasonRollingBack,
		},
		"another revision has run meanwhile": {
			node: newNode("n", recorded(record.Failed, attempts(2))), pod: undo(exited(0), func(p *Pod) { p.Revision = "old" }),
			want: []string{"release n-pod"}, wantState: Failed, wantReason: v1alpha1.ReasonRollbackPending,
		},
		"it takes longer than its own time limit": {
			node:       failed,
			pod:        undo(func(p *Pod) { p.Created, p.Started = ago(41), ago(41) }),
			wantState:  Failed,
			wantReason: v1alpha1.ReasonRollingBack,
			want:       []string{"stop n-pod: DeadlineExceeded"},
		},
		"it ends while the node is drained without it": {
			node: newNode(
				"n",
				recorded(record.Failed, attempts(2), drainSince(600)),
				cordonedFor("ns.everynode.dev/job"),
			),
			pod: undo(exited(0)),
			want: []string{
				"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Succeeded: attempts 1, disruptions 0",
			},
			wantState:  Failed,
			wantReason: v1alpha1.ReasonRollingBack,
		},
		"the user skips the node meanwhile": {
			node: newNode(
				"n",
				recorded(record.Failed, attempts(2)),
				labelled(rev),
			),
			pod:        undo(exited(0)),
			wantState:  Waiting,
			wantReason: v1alpha1.ReasonRollingBack,
			want: []string{
				"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Succeeded: attempts 1, disruptions 0",
			},
		},
		"it is already recorded": {
			node: newNode("n", recorded(record.Failed, attempts(2), undone(record.Succeeded, 1))), pod: undo(exited(0)),
			want: []string{"release n-pod"}, wantState: Failed, wantReason: v1alpha1.ReasonRolledBack,
		},
		"the user has removed the record meanwhile": {
			node: newNode(
				"n",
			),
			pod:        undo(exited(0)),
			want:       []string{"release n-pod"},
			wantState:  Waiting,
			wantReason: v1alpha1.ReasonPodTerminating,
		},
		"the revision has changed meanwhile": {
			node: newNode("n", recorded(record.Failed, attempts(2), func(r *record.Record) { r.Revision = "old" })),
			pod:  undo(func(p *Pod) { p.Revision = "old" }), wantState: Waiting, wantReason: v1alpha1.ReasonRollingBack,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			policy := v1alpha1.FailureActionNone
			if tt.node.CordonedBy != nil {
				policy = v1alpha1.FailureActionDrain
			}
			p := Next(see(newJob(withRollback, onFailure(policy)), []Node{tt.node}, tt.pod))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if p.Nodes[0].State != tt.wantState || p.Nodes[0].Reason != tt.wantReason {
				t.Errorf("it is %s: %s, want %s: %s", p.Nodes[0].State, p.Nodes[0].Reason, tt.wantState, tt.wantReason)
			}
		})
	}
}
