// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

func onFailure(policy v1alpha1.FailureAction) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Spec.OnFailure.Action = policy }
}

func withRollback(j *v1alpha1.NodeJob) {
	j.Spec.Rollback = &v1alpha1.RollbackSpec{Script: "undo", TimeoutSeconds: new(int32(30))}
}

// cordonedFor is a node that Everynode has cordoned for these NodeJobs.
func cordonedFor(keys ...string) func(*Node) {
	return func(n *Node) { n.Unschedulable, n.CordonedBy, n.ResourceVersion = true, keys, "42" }
}

func undone(o record.Outcome, attempts int32) func(*record.Record) {
	return func(r *record.Record) {
		r.Rollback = &record.Rollback{Outcome: o, Attempts: attempts, FinishedAt: ago(60), Reason: "TaskFailed", Message: "no way back", PodUID: "undo-pod"}
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
		"it is rolled back once": {
			job: []func(*v1alpha1.NodeJob){withRollback}, node: newNode("n", failed(undone(record.Succeeded, 1))), wantReason: v1alpha1.ReasonRolledBack,
		},
		"it is rolled back again when the rollback failed": {
			job: []func(*v1alpha1.NodeJob){withRollback}, node: newNode("n", failed(undone(record.Failed, 1))),
			want: []string{"start rollback 2 of rev on n"}, wantReason: v1alpha1.ReasonRollingBack,
		},
		"the rollback is not retried forever": {
			job: []func(*v1alpha1.NodeJob){withRollback}, node: newNode("n", failed(undone(record.Failed, 2))), wantReason: v1alpha1.ReasonRollbackFailed,
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
			job: []func(*v1alpha1.NodeJob){withRollback, onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed()),
			want: []string{"start rollback 1 of rev on n", "Cordoned n, recorded, cordoned by " + own}, wantReason: v1alpha1.ReasonRollingBack,
		},
		"it stays cordoned": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed(wasCordoned), cordonedFor(own)),
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
			node: newNode("n", failed(), cordonedFor(own, other)), want: []string{"Uncordoned n, cordoned by " + other}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is uncordoned when it was skipped": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed(), labelled(rev), cordonedFor(own)),
			want: []string{"Uncordoned n, uncordoned"}, wantReason: v1alpha1.ReasonDone,
		},
		"it is uncordoned when it is no longer selected": {
			job:  []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon), onPool("b")},
			node: newNode("n", failed(), cordonedFor(own)), want: []string{"Uncordoned n, uncordoned"}, wantReason: v1alpha1.ReasonNotSelected,
		},
		"its drain ends when it is no longer selected": {
			node: newNode("n", failed(drainSince(9)), cordonedFor(own)), want: []string{"Uncordoned n, recorded, uncordoned"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"its drain ends when onFailure no longer requires a drain": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed(drainSince(9)), cordonedFor(own)),
			want: []string{"DrainCancelled n, recorded"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is not cordoned again after a user uncordoned it for an earlier failure": {
			job:  []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)},
			node: newNode("n", failed(), cordonedFor(own), func(n *Node) { n.Unschedulable = false }),
			want: []string{"Uncordoned n, recorded, uncordoned"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it stays cordoned during a retry": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon), askAgain}, node: newNode("n", failed(), cordonedFor(own)),
			want: []string{"start attempt 1 of rev on n"}, wantReason: v1alpha1.ReasonStarting,
		},

		"it is not cordoned while the namespace is not allowed": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed()), in: refuseNamespace,
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is uncordoned when it was skipped, and the namespace is not allowed": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed(), labelled(rev), cordonedFor(own)), in: refuseNamespace,
			want: []string{"Uncordoned n, uncordoned"}, wantReason: v1alpha1.ReasonDone,
		},
		"it is uncordoned when onFailure no longer requires a cordon, and the namespace is not allowed": {
			node: newNode("n", failed(), cordonedFor(own)), in: refuseNamespace, want: []string{"Uncordoned n, uncordoned"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"a cordon on record that was removed from the node changes nothing during a retry": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", recorded(record.Failed, wasCordoned)),
			want: []string{"start attempt 2 of rev on n"}, wantReason: v1alpha1.ReasonStarting,
		},
		"a cordon on record that was removed from the node is no longer required": {
			node: newNode("n", failed(wasCordoned)), want: []string{"Uncordoned n, recorded"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it stays uncordoned for another NodeJob after a user uncordoned it": {
			node: newNode("n", failed(), cordonedFor(own, other), func(n *Node) { n.Unschedulable = false }), want: []string{"Uncordoned n, uncordoned"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is not drained after a user uncordoned it": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed(wasCordoned)), wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is not cordoned a second time beside another NodeJob": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, node: newNode("n", failed(wasCordoned), cordonedFor(other)), wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"the cordon before the task becomes its quarantine": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon), cordoning}, node: newNode("n", failed(), cordonedFor(own)),
			want: []string{"Cordoned n, recorded"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"the annotation is removed, and the record of a disruption stays, when a user uncordons it": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionCordon)}, wantReason: v1alpha1.ReasonBackingOff, want: []string{"Uncordoned n, uncordoned"},
			node: newNode("n", recorded(record.Disrupted, wasCordoned, func(r *record.Record) { r.FinishedAt = ago(1) }), cordonedFor(own), func(n *Node) { n.Unschedulable = false }),
		},
		"a drain that has ended does not start again": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, pods: []DrainPod{web}, wantReason: v1alpha1.ReasonRetriesExhausted,
			node: newNode("n", failed(drainSince(9), func(r *record.Record) { r.Drain.FinishedAt, r.Drain.Outcome = ago(5), v1alpha1.ReasonDrained }), cordonedFor(own)),
		},
		"a drain that was cancelled does not start again on a node that a user has cordoned": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, wantReason: v1alpha1.ReasonRetriesExhausted,
			node: newNode("n", failed(drainSince(9), func(r *record.Record) {
				r.Drain.FinishedAt, r.Drain.Outcome = ago(5), v1alpha1.ReasonDrainCancelled
			}), byHand),
		},
		"its drain does not start while suspended": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain), onHold}, node: newNode("n", failed(wasCordoned), cordonedFor(own)), wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"a blocked pod is evicted again after five seconds": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed(drainSince(9)), cordonedFor(own)),
			pods: []DrainPod{{Namespace: "web", Name: "web-1", TriedAt: ago(5)}}, want: []string{"evict from n: web/web-1"}, wantReason: v1alpha1.ReasonRetriesExhausted,
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
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed(wasCordoned), cordonedFor(own)),
			want: []string{"Draining n, recorded"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is cordoned and drained in one write": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed()),
			want: []string{"Draining n, recorded, cordoned by " + own}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"it is drained when the rollback has failed": {
			job: []func(*v1alpha1.NodeJob){withRollback, onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed(undone(record.Failed, 2), wasCordoned), cordonedFor(own)),
			want: []string{"Draining n, recorded"}, wantReason: v1alpha1.ReasonRollbackFailed,
		},
		"it is drained without the rollback when it is unreachable": {
			job: []func(*v1alpha1.NodeJob){withRollback, onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed(wasCordoned), lost, cordonedFor(own)),
			want: []string{"Draining n, recorded"}, wantReason: v1alpha1.ReasonRollbackPending,
		},
		"nothing is evicted before its pods were observed": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed(drainSince(9)), cordonedFor(own)),
			wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"its pods are evicted": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed(drainSince(9)), cordonedFor(own)),
			pods: []DrainPod{web, held, terminating}, want: []string{"evict from n: web/web-1"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"a blocked pod is retried later": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed(drainSince(9)), cordonedFor(own)),
			pods: []DrainPod{blocked}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"nothing is evicted while suspended": {
			job:  []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain), func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }},
			node: newNode("n", failed(drainSince(9)), cordonedFor(own)), pods: []DrainPod{web}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"the drain ends when all pods have terminated": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed(drainSince(9)), cordonedFor(own)),
			pods: []DrainPod{}, want: []string{"Drained n, recorded"}, wantReason: v1alpha1.ReasonRetriesExhausted,
		},
		"the drain ends at its deadline": {
			job: []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)}, node: newNode("n", failed(drainSince(600)), cordonedFor(own)),
			pods: []DrainPod{blocked}, want: []string{"DrainTimedOut n, recorded"}, wantReason: v1alpha1.ReasonRetriesExhausted,
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
		j.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
	}
}

// Each drain is checked repeatedly, so only a few run at the same time.
func TestConcurrentDrainsAreLimited(t *testing.T) {
	nodes := make([]Node, 0, 15)
	for i := range 15 {
		changes := []func(*record.Record){attempts(2), wasCordoned}
		if i >= 12 {
			changes = append(changes, drainSince(9))
		}
		nodes = append(nodes, newNode(fmt.Sprintf("n%02d", i), recorded(record.Failed, changes...), cordonedFor("ns.everynode.dev/job")))
	}
	if p := Next(see(newJob(onFailure(v1alpha1.FailureActionDrain)), nodes)); len(p.Actions) != maxDrains-3 {
		t.Errorf("%v start in addition to 3 drains that continue", told(p))
	}
}

// The status says what blocks a drain, since when and until when, and the drain is checked repeatedly.
func TestDrainStatus(t *testing.T) {
	node := newNode("n", recorded(record.Failed, attempts(2), drainSince(100)), cordonedFor("ns.everynode.dev/job"))
	job := newJob(onFailure(v1alpha1.FailureActionDrain), func(j *v1alpha1.NodeJob) {
		j.Spec.OnFailure.Drain = &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(103)), GracePeriodSeconds: new(int32(7))}
	})
	job.Status.Drains = []v1alpha1.NodeDrain{
		{Node: "m", Since: metav1.Time{Time: ago(100)}, BlockedSince: metav1.Time{Time: ago(70)}, Blocked: []v1alpha1.BlockedPod{{Pod: "web/b", Since: metav1.Time{Time: ago(60)}}}},
		{Node: "n", Since: metav1.Time{Time: ago(200)}, BlockedSince: metav1.Time{Time: ago(50)}, Blocked: []v1alpha1.BlockedPod{{Pod: "web/c", Since: metav1.Time{Time: ago(50)}}}},
	}
	in := see(job, []Node{node})
	in.Drains = map[types.UID][]DrainPod{node.UID: {{Namespace: "web", Name: "0", Terminating: true, Blocked: "budget 0"}}}
	for _, name := range []string{"a", "b", "c", "d"} {
		in.Drains = map[types.UID][]DrainPod{node.UID: append(in.Drains[node.UID],
			DrainPod{Namespace: "web", Name: name, UID: types.UID(name), Blocked: "budget " + name, TriedAt: ago(9)})}
	}
	p := Next(in)
	blocked := func(name string, since time.Time) v1alpha1.BlockedPod {
		return v1alpha1.BlockedPod{Pod: "web/" + name, Since: metav1.Time{Time: since}, Message: "budget " + name}
	}
	want := []v1alpha1.NodeDrain{{
		Node: "n", Since: metav1.Time{Time: ago(100)}, Deadline: metav1.Time{Time: now.Add(3 * time.Second)}, BlockedSince: metav1.Time{Time: now}, Pods: 5,
		Blocked: []v1alpha1.BlockedPod{blocked("c", ago(50)), blocked("a", now), blocked("b", now)},
	}}
	if diff := cmp.Diff(want, p.Status.Drains); diff != "" {
		t.Errorf("drains (-want +got):\n%s", diff)
	}
	if !p.WakeAt.Equal(now.Add(3 * time.Second)) {
		t.Errorf("wakes at %v, want at the deadline", p.WakeAt)
	}
	if e, ok := p.Actions[0].(Evict); !ok || *e.GracePeriodSeconds != 7 || len(e.Pods) != 4 {
		t.Errorf("%+v, want the eviction of 4 pods with 7 seconds", p.Actions)
	}
	if got := p.Status.Failures[0].Quarantine; got != v1alpha1.ReasonDraining {
		t.Errorf("quarantined: %q", got)
	}
}

// TestEndOfQuarantine tests the write with which the quarantine of a node ends.
func TestEndOfQuarantine(t *testing.T) {
	const byUser, over = "it was uncordoned by a user or another tool, and is not cordoned again for this failure", "the cordon is no longer needed"
	uncordoned := func(n *Node) { n.CordonedBy = []string{jobKey} }
	cordon, drain := onFailure(v1alpha1.FailureActionCordon), onFailure(v1alpha1.FailureActionDrain)
	for name, tt := range map[string]struct {
		job     func(*v1alpha1.NodeJob)
		changes []func(*record.Record)
		cordon  func(*Node)
		message string
		// cordoned is what the record says, and drain how the drain ended; "" if there was none.
		cordoned bool
		drain    string
	}{
		"a user has uncordoned a failed node":              {cordon, []func(*record.Record){attempts(2)}, uncordoned, byUser, true, ""},
		"a user has uncordoned a node that is drained":     {drain, []func(*record.Record){attempts(2), drainSince(9)}, uncordoned, byUser, true, v1alpha1.ReasonDrainCancelled},
		"a user has uncordoned a node that is retried":     {cordon, []func(*record.Record){wasCordoned}, uncordoned, byUser, false, ""},
		"onFailure no longer requires the cordon":          {onFailure(v1alpha1.FailureActionNone), []func(*record.Record){attempts(2), wasCordoned}, cordonedBy(jobKey), over, false, ""},
		"onFailure no longer requires the cordon or drain": {onFailure(v1alpha1.FailureActionNone), []func(*record.Record){attempts(2), drainSince(9)}, cordonedBy(jobKey), over, false, v1alpha1.ReasonDrainCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			actions := Next(see(newJob(tt.job), []Node{newNode("n", recorded(record.Failed, tt.changes...), tt.cordon)})).Actions
			mark, is := actions[len(actions)-1].(PatchNode)
			if !is || mark.Message != tt.message || mark.Record == nil || mark.Record.Cordoned != tt.cordoned {
				t.Fatalf("%+v, want %q, and a record with cordoned %t", actions, tt.message, tt.cordoned)
			}
			if got := mark.Record.Drain; (got == nil) != (tt.drain == "") || got != nil && got.Outcome != tt.drain {
				t.Errorf("drain %+v, want %q", got, tt.drain)
			}
		})
	}
}

// TestCordonBeforeTheTask tests whether a node stays cordoned that was prepared for the task and on which it does not start.
func TestCordonBeforeTheTask(t *testing.T) {
	refusedUntil := func(at time.Time) func(*Input) {
		return func(in *Input) {
			in.Obstacle = &task.Obstacle{Reason: v1alpha1.ReasonPodForbidden, Message: "no", RetryAt: at}
		}
	}
	lost := func(n *Node) { n.Ready = corev1.ConditionUnknown }
	terminating := func(in *Input) {
		in.Pods = []Pod{newPod(in.Nodes[0], func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) })}
	}
	const uncordoned, rollback = "Uncordoned n, uncordoned", "start rollback 1 of rev on n"
	for name, tt := range map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node func(*Node)
		in   func(*Input)
		want []string
	}{
		"pods are refused for a while":                         {in: refusedUntil(ago(-5))},
		"pods are refused until a user acts":                   {in: refusedUntil(time.Time{}), want: []string{uncordoned}},
		"pods are refused for a while, and it is done":         {in: refusedUntil(ago(-5)), node: labelled(rev), want: []string{uncordoned}},
		"it is suspended":                                      {job: onHold, want: []string{uncordoned}},
		"it is suspended after an attempt":                     {job: func(j *v1alpha1.NodeJob) { onHold(j); onFailure(v1alpha1.FailureActionCordon)(j) }, node: recorded(record.Failed), want: []string{uncordoned}},
		"it is suspended before the rollback":                  {job: func(j *v1alpha1.NodeJob) { onHold(j); withRollback(j) }, node: exhaustedWith(nil)},
		"the rollback starts":                                  {job: withRollback, node: exhaustedWith(nil), want: []string{rollback}},
		"the rollback has ended":                               {job: withRollback, node: recorded(record.Failed, attempts(2), undone(record.Succeeded, 1)), want: []string{uncordoned}},
		"it waits for the backoff":                             {node: recorded(record.Disrupted, func(r *record.Record) { r.FinishedAt = ago(1) })},
		"it is unreachable before the first attempt":           {node: lost, want: []string{uncordoned}},
		"it is unreachable after an attempt":                   {node: func(n *Node) { recorded(record.Disrupted)(n); lost(n) }},
		"it is unreachable after an attempt of a revision ago": {node: func(n *Node) { recorded(record.Failed, func(r *record.Record) { r.Revision = "old" })(n); lost(n) }, want: []string{uncordoned}},
		"the pod of the attempt before is terminating":         {node: recorded(record.Failed), in: terminating},
	} {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(cordoning), []Node{newNode("n", cordonedBy(jobKey))})
			if tt.job != nil {
				tt.job(in.Job)
			}
			if tt.node != nil {
				tt.node(&in.Nodes[0])
			}
			if tt.in != nil {
				tt.in(&in)
			}
			if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// While one start shows whether pods are still refused, a node stays cordoned, but not if it has not made progress for too long.
func TestAPreparedNodeWithoutProgressIsUncordoned(t *testing.T) {
	in := see(newJob(cordoning), []Node{
		newNode("a", cordonedBy(jobKey)), newNode("b", cordonedBy(jobKey)),
		newNode("c", cordonedBy(jobKey), recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince = ago(7200) })),
	})
	in.Obstacle = &task.Obstacle{Reason: v1alpha1.ReasonPodForbidden, Message: "no", RetryAt: ago(5)}
	if diff := cmp.Diff([]string{"start attempt 1 of rev on a", "Uncordoned c, uncordoned"}, told(Next(in))); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

func TestQuarantineState(t *testing.T) {
	ended := func(outcome string) func(*record.Record) {
		return func(r *record.Record) {
			r.Drain = &record.Drain{StartedAt: ago(9), FinishedAt: ago(5), Outcome: outcome}
		}
	}
	co := &cordons{&job{key: jobKey}}
	for name, tt := range map[string]struct {
		record func(*record.Record)
		cordon func(*Node)
		want   string
	}{
		"it is not cordoned":                 {func(*record.Record) {}, func(*Node) {}, ""},
		"it is cordoned by a user":           {func(*record.Record) {}, byHand, ""},
		"it is cordoned":                     {wasCordoned, cordonedBy(jobKey), v1alpha1.ReasonCordoned},
		"it is being drained":                {drainSince(9), cordonedBy(jobKey), v1alpha1.ReasonDraining},
		"it is drained":                      {ended(v1alpha1.ReasonDrained), cordonedBy(jobKey), v1alpha1.ReasonDrained},
		"it could not be drained":            {ended(v1alpha1.ReasonDrainTimedOut), cordonedBy(jobKey), v1alpha1.ReasonDrainTimedOut},
		"its drain was cancelled":            {ended(v1alpha1.ReasonDrainCancelled), cordonedBy(jobKey), v1alpha1.ReasonCordoned},
		"a user has uncordoned it meanwhile": {ended(v1alpha1.ReasonDrainCancelled), func(*Node) {}, ""},
	} {
		node := newNode("n", recorded(record.Failed, tt.record), tt.cordon)
		if got := co.quarantineState(&node); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestDrainsThatBecomeBlocked tests which drains get an event.
func TestDrainsThatBecomeBlocked(t *testing.T) {
	drain := func(node string, blockedSince time.Time) v1alpha1.NodeDrain {
		return v1alpha1.NodeDrain{Node: node, BlockedSince: metav1.Time{Time: blockedSince}, Blocked: []v1alpha1.BlockedPod{{Pod: "web/a", Message: "budget"}}}
	}
	for name, tt := range map[string]struct {
		before, after []v1alpha1.NodeDrain
		want          bool
	}{
		"it is not blocked":                              {nil, []v1alpha1.NodeDrain{drain("n", time.Time{})}, false},
		"it becomes blocked":                             {[]v1alpha1.NodeDrain{drain("n", time.Time{})}, []v1alpha1.NodeDrain{drain("n", now)}, true},
		"it has been blocked":                            {[]v1alpha1.NodeDrain{drain("n", ago(9))}, []v1alpha1.NodeDrain{drain("n", ago(9))}, false},
		"it was blocked before, and is now":              {[]v1alpha1.NodeDrain{drain("n", ago(9))}, []v1alpha1.NodeDrain{drain("n", now)}, true},
		"another one has been blocked for the same time": {[]v1alpha1.NodeDrain{drain("m", now)}, []v1alpha1.NodeDrain{drain("n", now)}, true},
	} {
		got := DrainBlocked(&v1alpha1.NodeJobStatus{Drains: tt.before}, &v1alpha1.NodeJobStatus{Drains: tt.after})
		if _, is := got["n"]; is != tt.want || len(got) > 1 {
			t.Errorf("%s: %v, want one of n: %t", name, got, tt.want)
		}
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
			node: failed, pod: undo(exited(0)), wantState: Failed, wantReason: v1alpha1.ReasonRollingBack,
			want: []string{"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Succeeded: attempts 1, disruptions 0"},
		},
		"it fails": {
			node: failed, pod: undo(exited(4)), wantState: Failed, wantReason: v1alpha1.ReasonRollingBack,
			want: []string{"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Failed: attempts 1, disruptions 0"},
		},
		"it fails for the last time": {
			node: failed, pod: undo(exited(4), func(p *Pod) { p.Attempt = 2 }), wantState: Failed, wantReason: v1alpha1.ReasonRollingBack,
			want: []string{"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Failed: attempts 2, disruptions 0, for good"},
		},
		"it succeeds in the last attempt": {
			node: failed, pod: undo(exited(0), func(p *Pod) { p.Attempt = 2 }), wantState: Failed, wantReason: v1alpha1.ReasonRollingBack,
			want: []string{"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Succeeded: attempts 2, disruptions 0"},
		},
		"it is disrupted": {
			node: failed, pod: undo(disrupted), wantState: Failed, wantReason: v1alpha1.ReasonRollingBack,
			want: []string{"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Disrupted: attempts 0, disruptions 1"},
		},
		"it is disrupted after a failure": {
			node: newNode("n", recorded(record.Failed, attempts(2), func(r *record.Record) {
				r.Rollback = &record.Rollback{Outcome: record.Failed, Attempts: 1, Disruptions: 3, PodUID: "first"}
			})),
			pod: undo(disrupted, func(p *Pod) { p.Attempt = 2 }), wantState: Failed, wantReason: v1alpha1.ReasonRollingBack,
			want: []string{"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Disrupted: attempts 1, disruptions 1"},
		},
		"a user has raised the limit of retries meanwhile": {
			node: newNode("n", recorded(record.Failed)), pod: undo(), wantState: Waiting, wantReason: v1alpha1.ReasonRollingBack,
		},
		"another revision has run meanwhile": {
			node: newNode("n", recorded(record.Failed, attempts(2))), pod: undo(exited(0), func(p *Pod) { p.Revision = "old" }),
			want: []string{"release n-pod"}, wantState: Failed, wantReason: v1alpha1.ReasonRollbackPending,
		},
		"it takes longer than its own time limit": {
			node: failed, pod: undo(func(p *Pod) { p.Created, p.Started = ago(41), ago(41) }), wantState: Failed, wantReason: v1alpha1.ReasonRollingBack,
			want: []string{"stop n-pod: DeadlineExceeded"},
		},
		"it ends while the node is drained without it": {
			node: newNode("n", recorded(record.Failed, attempts(2), drainSince(600)), cordonedFor("ns.everynode.dev/job")), pod: undo(exited(0)),
			want:      []string{"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Succeeded: attempts 1, disruptions 0"},
			wantState: Failed, wantReason: v1alpha1.ReasonRollingBack,
		},
		"the user skips the node meanwhile": {
			node: newNode("n", recorded(record.Failed, attempts(2)), labelled(rev)), pod: undo(exited(0)), wantState: Waiting, wantReason: v1alpha1.ReasonRollingBack,
			want: []string{"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Succeeded: attempts 1, disruptions 0"},
		},
		"it is already recorded": {
			node: newNode("n", recorded(record.Failed, attempts(2), undone(record.Succeeded, 1))), pod: undo(exited(0)),
			want: []string{"release n-pod"}, wantState: Failed, wantReason: v1alpha1.ReasonRolledBack,
		},
		"the user has removed the record meanwhile": {
			node: newNode("n"), pod: undo(exited(0)), want: []string{"release n-pod"}, wantState: Waiting, wantReason: v1alpha1.ReasonPodTerminating,
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
