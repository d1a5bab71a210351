// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// TestDeletionWithRollback tests the deletion of a NodeJob with deletionPolicy Rollback.
func TestDeletionWithRollback(t *testing.T) {
	const own = "ns.everynode.dev/job"
	done := func(name string, changes ...func(*record.Record)) Node {
		return newNode(name, recorded(record.Succeeded, changes...))
	}
	undo := func(node Node, changes ...func(*Pod)) Pod {
		return newPod(node, append([]func(*Pod){func(p *Pod) { p.Runs, p.UID = task.Rollback, "undo-pod" }}, changes...)...)
	}
	lost := func(n *Node) { n.Ready = corev1.ConditionUnknown }
	failed := recorded(record.Failed, attempts(2), undone(record.Failed, 2))
	tests := map[string]struct {
		job      []func(*v1alpha1.NodeJob)
		nodes    []Node
		pods     []Pod
		obstacle *task.Obstacle
		troubles map[types.UID]NodeProblem
		want     []string
		// wantStalled is the beginning of the message of the Stalled condition; "" if it is False.
		wantStalled string
	}{
		"every node that is done is rolled back": {
			nodes: []Node{done("a"), done("b"), newNode("c")}, want: []string{"start rollback 1 of rev on a", "start rollback 1 of rev on b"},
		},
		"not more nodes at once than maxConcurrent": {
			job: []func(*v1alpha1.NodeJob){oneAtOnce}, nodes: []Node{done("a"), done("b")}, want: []string{"start rollback 1 of rev on a"},
		},
		"a node on which the task failed is rolled back too": {
			nodes: []Node{newNode("a", recorded(record.Failed))}, want: []string{"start rollback 1 of rev on a"},
		},
		"a node is rolled back with the revision that ran there": {
			nodes: []Node{done("a", func(r *record.Record) { r.Revision = "old" })}, want: []string{"start rollback 1 of old on a"},
		},
		"suspend, a selector and a taint do not prevent a rollback": {
			job:   []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }, onPool("b")},
			nodes: []Node{newNode("a", recorded(record.Succeeded), func(n *Node) { n.Taints = []corev1.Taint{busy} })},
			want:  []string{"start rollback 1 of rev on a"},
		},
		"a rollback does not wait for unavailable nodes": {
			job:   []func(*v1alpha1.NodeJob){rebootingAs(v1alpha1.RebootAlways), upToUnavailable(1)},
			nodes: []Node{done("a"), newNode("b", recorded(record.Succeeded), func(n *Node) { n.Ready = corev1.ConditionFalse })},
			want:  []string{"start rollback 1 of rev on a", "start rollback 1 of rev on b"},
		},
		"the attempts of a rollback after a success are counted": {
			nodes: []Node{done("a", undone(record.Failed, 1))}, pods: []Pod{undo(done("a"), exited(1), func(p *Pod) { p.Attempt, p.UID = 2, "second" })},
			want: []string{"record Succeeded on a: attempts 1, disruptions 0, rollback Failed: attempts 2, disruptions 0, for good"},
		},
		"the record is removed after the rollback": {
			nodes: []Node{done("a", undone(record.Succeeded, 1)), done("b", undone(record.Failed, 1))}, want: []string{"forget a", "start rollback 2 of rev on b"},
		},
		"the cordon is removed with the record": {
			nodes: []Node{newNode("a", recorded(record.Failed, attempts(2), undone(record.Succeeded, 1)), cordonedFor(own))}, want: []string{"forget a, uncordoned"},
		},
		"the record of a skipped node is removed without a rollback": {nodes: []Node{newNode("a", labelled(rev))}, want: []string{"forget a"}},
		"the record of another machine is removed without a rollback": {
			nodes: []Node{done("a", func(r *record.Record) { r.MachineID = "another" })}, want: []string{"forget a"},
		},
		"a running attempt continues": {nodes: []Node{newNode("a")}, pods: []Pod{newPod(newNode("a"))}},
		"the outcome of a running attempt is recorded before the rollback": {
			nodes: []Node{newNode("a")}, pods: []Pod{newPod(newNode("a"), exited(0))}, want: []string{"record Succeeded on a: attempts 1, disruptions 0"},
		},
		"the outcome of a rollback is recorded before its pod is released": {
			nodes: []Node{done("a")}, pods: []Pod{undo(done("a"), exited(0))},
			want: []string{"record Succeeded on a: attempts 1, disruptions 0, rollback Succeeded: attempts 1, disruptions 0"},
		},
		"the deletion finishes when nothing is left": {nodes: []Node{newNode("a")}, want: []string{"finish"}},
		"a selector that cannot be used does not matter": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) {
				j.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
			}}, nodes: []Node{done("a")}, want: []string{"start rollback 1 of rev on a"},
		},
		"it does not wait for a kubelet to terminate a pod": {
			nodes: []Node{newNode("a")}, pods: []Pod{undo(newNode("a"), exited(0), func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) })},
			want: []string{"finish"},
		},
		"a node that never reported blocks it": {
			nodes:       []Node{newNode("a", recorded(record.Succeeded), func(n *Node) { n.Ready = "" })},
			wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: a: the node has not reported its state yet. Fix the cause and",
		},
		"a failed rollback blocks it": {
			nodes: []Node{newNode("a", failed)}, wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: a: the rollback has failed: TaskFailed: no way back. Fix the cause and",
		},
		"a failed rollback is retried on request": {
			job: []func(*v1alpha1.NodeJob){askAgain}, nodes: []Node{newNode("a", failed)}, want: []string{"start rollback 1 of rev on a"},
		},
		"an unreachable node blocks it": {
			nodes:       []Node{newNode("a", recorded(record.Succeeded), lost)},
			wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: a: the node is unreachable (Ready=Unknown). Fix the cause and",
		},
		"a rollback that cannot be read blocks it": {
			nodes: []Node{done("a")}, obstacle: &task.Obstacle{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "ConfigMap ns/x does not exist"},
			wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: ConfigMap ns/x does not exist. Fix the cause and",
		},
		"nothing can be rolled back in a terminating namespace": {
			nodes: []Node{done("a")}, obstacle: &task.Obstacle{Reason: v1alpha1.ReasonNamespaceTerminating}, want: []string{"forget a"},
		},
		"a pod that never ends and cannot be recorded blocks it together with a failed rollback": {
			nodes:       []Node{newNode("a"), newNode("b", failed)},
			pods:        []Pod{newPod(newNode("a"), func(p *Pod) { p.Created, p.DeleteRequested = ago(8000), ago(7900) })},
			troubles:    map[types.UID]NodeProblem{"a-uid": {Reason: v1alpha1.ReasonRecordRejected, Message: "its annotations are full", RetryAt: ago(-5)}},
			wantStalled: "the NodeJob is being deleted; on 2 nodes the task is still to be rolled back: a: its annotations are full; b: the rollback has failed: TaskFailed: no way back. Fix the cause and",
		},
		"it is not Stalled while a node without problems runs": {
			nodes: []Node{newNode("a"), newNode("b", failed)}, pods: []Pod{newPod(newNode("a"))},
		},
		"deletionPolicy Forget removes the record without a rollback": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.DeletionPolicy = v1alpha1.DeletionForget }}, nodes: []Node{newNode("a", failed)}, want: []string{"forget a"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			rollBack := func(j *v1alpha1.NodeJob) {
				j.DeletionTimestamp, j.Spec.DeletionPolicy = &metav1.Time{Time: ago(1)}, v1alpha1.DeletionRollback
			}
			in := see(newJob(append([]func(*v1alpha1.NodeJob){withRollback, rollBack}, tt.job...)...), tt.nodes, tt.pods...)
			in.Obstacle, in.NodeProblems = tt.obstacle, tt.troubles
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			var stalled string
			for _, c := range p.Status.Conditions {
				if c.Type == v1alpha1.ConditionStalled && c.Status == metav1.ConditionTrue {
					stalled = c.Message
				}
			}
			if !strings.HasPrefix(stalled, tt.wantStalled) || (tt.wantStalled == "") != (stalled == "") {
				t.Errorf("stalled: %q, want %q…", stalled, tt.wantStalled)
			}
		})
	}
}

// TestFailuresOfARollbackOnDeletion checks that the reason of a rollback that fails is in the message and in status.failures, while
// it is retried and afterwards.
func TestFailuresOfARollbackOnDeletion(t *testing.T) {
	const head = "the NodeJob is being deleted; on 1 node the task is still to be rolled back"
	const retried = "; the rollback failed on 1 node and is retried (a: TaskFailed, exit code 5: no way back)"
	undoneWith := func(attempts int32) func(*Node) {
		return recorded(record.Succeeded, undone(record.Failed, attempts), func(r *record.Record) { r.Rollback.ExitCode, r.Rollback.FinishedAt = new(int32(5)), ago(1) })
	}
	want := v1alpha1.NodeFailure{Node: "a", ExitCode: new(int32(5)), Reason: "TaskFailed", FinishedAt: metav1.NewTime(ago(1)), RollbackMessage: "no way back"}
	tests := map[string]struct {
		attempts int32
		pods     []Pod
		retrying bool
		rollback string
		message  string
	}{
		"it backs off":     {1, nil, true, v1alpha1.ReasonRollbackPending, head + retried},
		"it runs again":    {1, []Pod{newPod(newNode("a"), func(p *Pod) { p.Runs, p.UID, p.Attempt = task.Rollback, "second", 2 })}, true, v1alpha1.ReasonRollingBack, head + retried},
		"no retry is left": {2, nil, false, v1alpha1.ReasonRollbackFailed, head + ": a: the rollback has failed: TaskFailed, exit code 5: no way back. "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(withRollback, func(j *v1alpha1.NodeJob) {
				j.DeletionTimestamp, j.Spec.DeletionPolicy = &metav1.Time{Time: ago(9)}, v1alpha1.DeletionRollback
			})
			status := Next(see(job, []Node{newNode("a", undoneWith(tt.attempts))}, tt.pods...)).Status
			kind := v1alpha1.ConditionReconciling
			if !tt.retrying {
				kind = v1alpha1.ConditionStalled
			}
			if c := meta.FindStatusCondition(status.Conditions, kind); c.Status != metav1.ConditionTrue || !strings.HasPrefix(c.Message, tt.message) {
				t.Errorf("%s: %q, want %q", c.Status, c.Message, tt.message)
			}
			want.Attempts, want.Retrying, want.Rollback = tt.attempts, tt.retrying, tt.rollback
			if diff := cmp.Diff([]v1alpha1.NodeFailure{want}, status.Failures); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
		})
	}
}

// TestADeletionWithoutNodes checks the message while the last records are removed.
func TestADeletionWithoutNodes(t *testing.T) {
	job := newJob(withRollback, func(j *v1alpha1.NodeJob) {
		j.DeletionTimestamp, j.Spec.DeletionPolicy = &metav1.Time{Time: ago(9)}, v1alpha1.DeletionRollback
	})
	status := Next(see(job, []Node{newNode("a", recorded(record.Succeeded, undone(record.Succeeded, 1)))})).Status
	const want = "the NodeJob is being deleted; the task is rolled back, and the last records are being removed"
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReconciling); c.Message != want {
		t.Errorf("got %q, want %q", c.Message, want)
	}
}
