// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
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
	neverEnds := func(node string) Pod {
		return newPod(newNode(node), func(p *Pod) { p.Created, p.DeleteRequested = ago(8000), ago(7900) })
	}
	unrecordable := map[types.UID]NodeProblem{
		"a-uid": {Why: hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "its annotations are full", Until: ago(-5)}},
	}
	tests := map[string]struct {
		job      []func(*v1alpha1.NodeJob)
		nodes    []Node
		pods     []Pod
		obstacle *hold.Why
		troubles map[types.UID]NodeProblem
		want     []string
		// wantStalled is the beginning of the message of the Stalled condition; "" if it is False.
		wantStalled string
		// wantReason is its reason; "" if that is tested elsewhere.
		wantReason string
	}{
		"every node that is done is rolled back": {
			nodes: []Node{
				done("a"),
				done("b"),
				newNode("c"),
			},
			want: []string{"start rollback 1 of rev on a", "start rollback 1 of rev on b"},
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
		"a node that joined after the revision became stable waits for a slot": {
			job: []func(*v1alpha1.NodeJob){oneAtOnce, stableSince(600), gated(v1alpha1.GateSpec{})},
			nodes: []Node{
				newNode("a", made(5), recorded(record.Failed), withTaints(ownTaint)),
				done("b"),
			},
			want: []string{"start rollback 1 of rev on a"},
		},
		"a rollback does not wait for unavailable nodes": {
			job:   []func(*v1alpha1.NodeJob){rebootingAs(v1alpha1.RebootAlways), upToUnavailable(1)},
			nodes: []Node{done("a"), newNode("b", recorded(record.Succeeded), func(n *Node) { n.Ready = corev1.ConditionFalse })},
			want:  []string{"start rollback 1 of rev on a", "start rollback 1 of rev on b"},
		},
		"the attempts of a rollback after a success are counted": {
			nodes: []Node{
				done("a", undone(record.Failed, 1)),
			},
			pods: []Pod{undo(done("a"), exited(1), func(p *Pod) { p.Attempt, p.UID = 2, "second" })},
			want: []string{"record Succeeded on a: attempts 1, disruptions 0, rollback Failed: attempts 2, disruptions 0, for good"},
		},
		"the record is removed after the rollback": {
			nodes: []Node{
				done("a", undone(record.Succeeded, 1)),
				done("b", undone(record.Failed, 1)),
			},
			want: []string{"forget a", "start rollback 2 of rev on b"},
		},
		"the cordon is removed with the record": {
			nodes: []Node{
				newNode("a", recorded(record.Failed, attempts(2), undone(record.Succeeded, 1)), cordonedFor(own)),
			},
			want: []string{"forget a, uncordoned"},
		},
		"the record of a skipped node is removed without a rollback": {
			nodes: []Node{newNode("a", labelled(rev))},
			want:  []string{"forget a"},
		},
		"the record of another machine is removed without a rollback": {
			nodes: []Node{done("a", func(r *record.Record) { r.MachineID = "another" })}, want: []string{"forget a"},
		},
		"a running attempt continues": {nodes: []Node{newNode("a")}, pods: []Pod{newPod(newNode("a"))}},
		"the outcome of a running attempt is recorded before the rollback": {
			nodes: []Node{
				newNode("a"),
			},
			pods: []Pod{newPod(newNode("a"), exited(0))},
			want: []string{"record Succeeded on a: attempts 1, disruptions 0"},
		},
		"the outcome of a rollback is recorded before its pod is released": {
			nodes: []Node{done("a")}, pods: []Pod{undo(done("a"), exited(0))},
			want: []string{"record Succeeded on a: attempts 1, disruptions 0, rollback Succeeded: attempts 1, disruptions 0"},
		},
		"the deletion finishes when nothing is left": {nodes: []Node{newNode("a")}, want: []string{"finish"}},
		"a selector that cannot be used does not matter": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Selector = &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}},
				}
			}}, nodes: []Node{done("a")}, want: []string{"start rollback 1 of rev on a"},
		},
		"it does not wait for a kubelet to terminate a pod": {
			nodes: []Node{
				newNode("a"),
			},
			pods: []Pod{undo(newNode("a"), exited(0), func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) })},
			want: []string{"finish"},
		},
		"a node that never reported blocks it": {
			nodes:       []Node{newNode("a", recorded(record.Succeeded), func(n *Node) { n.Ready = "" })},
			wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: a: the node has not reported its state yet. Fix the cause and",
		},
		"a failed rollback blocks it": {
			nodes: []Node{
				newNode("a", failed),
			},
			wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: a: the rollback has failed: TaskFailed: no way back. Fix the cause and",
		},
		"a failed rollback is retried on request": {
			job: []func(*v1alpha1.NodeJob){askAgain}, nodes: []Node{newNode("a", failed)}, want: []string{"start rollback 1 of rev on a"},
		},
		"an unreachable node blocks it": {
			nodes:       []Node{newNode("a", recorded(record.Succeeded), lost)},
			wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: a: the node is unreachable (Ready=Unknown). Fix the cause and",
		},
		"a rollback that cannot be read blocks it": {
			nodes: []Node{
				done("a"),
			},
			obstacle:    &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "ConfigMap ns/x does not exist"},
			wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: ConfigMap ns/x does not exist. Fix the cause and",
		},
		"files that are gone block it": {
			nodes:       []Node{done("a")},
			obstacle:    &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "ConfigMap ns/x does not exist", AllPhases: true},
			wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: ConfigMap ns/x does not exist. Fix the cause and",
			wantReason:  v1alpha1.ReasonRollbackFailed,
		},
		"nothing can be rolled back in a terminating namespace": {
			nodes: []Node{done("a")}, obstacle: &hold.Why{Reason: v1alpha1.ReasonNamespaceTerminating}, want: []string{"forget a"},
		},
		"a pod that never ends and cannot be recorded blocks it together with a failed rollback": {
			nodes: []Node{newNode("a"), newNode("b", failed)},
			pods:  []Pod{newPod(newNode("a"), func(p *Pod) { p.Created, p.DeleteRequested = ago(8000), ago(7900) })},
			troubles: map[types.UID]NodeProblem{
				"a-uid": {Why: hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "its annotations are full", Until: ago(-5)}},
			},
			wantStalled: "the NodeJob is being deleted; on 2 nodes the task is still to be rolled back: a: its annotations are full; b: the rollback has failed: TaskFailed: no way back. Fix the cause and",
		},
		"it is not Stalled while a node without problems runs": {
			nodes: []Node{newNode("a"), newNode("b", failed)}, pods: []Pod{newPod(newNode("a"))},
		},
		"what must not be rolled back does not depend on an obstacle": {
			nodes: []Node{
				done("a", undone(record.Succeeded, 1)),
			},
			obstacle: &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "ConfigMap ns/x does not exist"},
			want:     []string{"forget a"},
		},
		"a node with a problem and a failed rollback block it": {
			nodes:       []Node{done("a"), newNode("b", failed), newNode("c")},
			troubles:    nameTaken(60, 5),
			wantStalled: "the NodeJob is being deleted; on 2 nodes the task is still to be rolled back: a: pod x has its name; b: the rollback has failed: TaskFailed: no way back. Fix the cause and",
		},
		"a problem of a node with nothing to roll back does not matter": {
			nodes:       []Node{newNode("a"), newNode("b", failed)},
			troubles:    nameTaken(60, 5),
			wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: b: the rollback has failed: TaskFailed: no way back. Fix the cause and",
		},
		"it is not Stalled while a rollback waits for its backoff": {
			nodes: []Node{
				newNode(
					"a",
					recorded(record.Succeeded, undone(record.Failed, 1), func(r *record.Record) { r.Rollback.FinishedAt = ago(1) }),
				),
				newNode("b", failed),
			},
		},
		"it is not Stalled while a pod that is on record is released": {
			nodes: []Node{
				done("a"),
				newNode("b", failed),
			},
			pods: []Pod{newPod(done("a"), exited(0), func(p *Pod) { p.UID = "earlier-pod" })},
			want: []string{"release a-pod"},
		},
		"a pod that never ends and has the only slot blocks it": {
			job: []func(*v1alpha1.NodeJob){
				oneAtOnce,
			},
			nodes:       []Node{newNode("a"), done("b")},
			pods:        []Pod{neverEnds("a")},
			troubles:    unrecordable,
			wantStalled: "the NodeJob is being deleted; on 2 nodes the task is still to be rolled back: a: its annotations are full. Fix the cause and",
		},
		"a pod that never ends and has one of two slots does not": {
			job: []func(*v1alpha1.NodeJob){
				atOnce(2),
			},
			nodes:    []Node{newNode("a"), newNode("b"), done("c")},
			pods:     []Pod{neverEnds("a"), newPod(newNode("b"))},
			troubles: unrecordable,
		},
		"a pod that has ended and cannot be recorded has no slot": {
			job: []func(*v1alpha1.NodeJob){
				oneAtOnce,
			},
			nodes:    []Node{newNode("a"), done("b")},
			pods:     []Pod{newPod(newNode("a"), exited(0), func(p *Pod) { p.Created = ago(8000) })},
			troubles: unrecordable,
			want:     []string{"start rollback 1 of rev on b"},
		},
		"a pod that has ended and cannot be recorded blocks it": {
			nodes: []Node{
				newNode("a"),
			},
			pods:        []Pod{newPod(newNode("a"), exited(0), func(p *Pod) { p.Created = ago(8000) })},
			troubles:    unrecordable,
			wantStalled: "the NodeJob is being deleted; on 1 node the task is still to be rolled back: a: its annotations are full. Fix the cause and",
		},
		"it does not finish after a minute while a pod that is on record may still end": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.DeletionTimestamp.Time = ago(61) }},
			nodes: []Node{
				done("a", undone(record.Succeeded, 1), func(r *record.Record) { r.Rollback.FinishedAt = ago(1) }),
			},
			pods: []Pod{undo(done("a"), concluded(0))},
			want: []string{"forget a"},
		},
		"deletionPolicy Forget removes the record without a rollback": {
			job: []func(*v1alpha1.NodeJob){
				func(j *v1alpha1.NodeJob) { j.Spec.DeletionPolicy = v1alpha1.DeletionForget },
			},
			nodes: []Node{newNode("a", failed)},
			want:  []string{"forget a"},
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
					if tt.wantReason != "" && c.Reason != tt.wantReason {
						t.Errorf("stalled because of %s, want %s", c.Reason, tt.wantReason)
					}
				}
			}
			if !strings.HasPrefix(stalled, tt.wantStalled) || (tt.wantStalled == "") != (stalled == "") {
				t.Errorf("stalled: %q, want %q…", stalled, tt.wantStalled)
			}
		})
	}
}

// TestWaitsOfADeletion tests the states of nodes, why a deletion is Stalled, and when it is planned again.
func TestWaitsOfADeletion(t *testing.T) {
	done, failed := recorded(record.Succeeded), recorded(record.Failed, attempts(2), undone(record.Failed, 2))
	terminating := func(seconds int) []Pod {
		return []Pod{newPod(newNode("a"), func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(seconds) })}
	}
	for name, tt := range map[string]struct {
		node     func(*Node)
		pods     []Pod
		problems map[types.UID]NodeProblem
		state    State
		reason   string // why it is Stalled; "" if it is not
		wake     time.Duration
	}{
		"a rollback has failed":             {node: failed, state: Failed, reason: v1alpha1.ReasonRollbackFailed, wake: deletionRecheckInterval},
		"a rollback starts":                 {node: done, state: Running, wake: recheckInterval},
		"a node has a problem":              {node: done, problems: nameTaken(60, 5), state: Waiting, reason: v1alpha1.ReasonPodNameTaken, wake: 5 * time.Second},
		"a pod is terminating":              {node: done, pods: terminating(1), state: Waiting, wake: 59 * time.Second},
		"a pod is terminating for too long": {node: done, pods: terminating(60), state: Waiting, reason: v1alpha1.ReasonRollbackFailed, wake: deletionRecheckInterval},
		"the end of a pod cannot be recorded": {
			node: func(*Node) {}, pods: []Pod{newPod(newNode("a"), exited(0), func(p *Pod) { p.Created = ago(8000) })}, state: Failed, reason: v1alpha1.ReasonRecordRejected, wake: 5 * time.Second,
			problems: map[types.UID]NodeProblem{"a-uid": {Why: hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "full", Until: ago(-5)}}},
		},
		"a pod never ends": {
			node: func(*Node) {}, pods: []Pod{newPod(newNode("a"), func(p *Pod) { p.Created, p.DeleteRequested = ago(8000), ago(7900) })}, state: Running, reason: v1alpha1.ReasonRecordRejected, wake: 5 * time.Second,
			problems: map[types.UID]NodeProblem{"a-uid": {Why: hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "full", Until: ago(-5)}}},
		},
		"a rollback never ends": {
			node: recorded(record.Failed, attempts(2)), pods: []Pod{newPod(newNode("a"), func(p *Pod) { p.Runs, p.Created, p.DeleteRequested = task.Rollback, ago(8000), ago(7900) })}, state: Failed, reason: v1alpha1.ReasonRecordRejected, wake: 5 * time.Second,
			problems: map[types.UID]NodeProblem{"a-uid": {Why: hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "full", Until: ago(-5)}}},
		},
	} {
		in := see(newJob(withRollback, deleted(v1alpha1.DeletionRollback)), []Node{newNode("a", tt.node)}, tt.pods...)
		in.NodeProblems = tt.problems
		p := Next(in)
		reason := ""
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionStalled); c.Status == metav1.ConditionTrue {
			reason = c.Reason
		}
		if p.Nodes[0].State != tt.state || reason != tt.reason || !p.WakeAt.Equal(now.Add(tt.wake)) {
			t.Errorf(
				"%s: %s, stalled %q, wakes in %v, want %s, %q, %v",
				name,
				p.Nodes[0].State,
				reason,
				p.WakeAt.Sub(now),
				tt.state,
				tt.reason,
				tt.wake,
			)
		}
	}
}

// TestFailuresInTheStatusOfADeletion tests which failures it has, and how many attempts they name.
func TestFailuresInTheStatusOfADeletion(t *testing.T) {
	failed := func(changes ...func(*record.Record)) func(*Node) {
		return recorded(
			record.Failed,
			append([]func(*record.Record){attempts(2), func(r *record.Record) { r.PodUID = "task" }}, changes...)...)
	}
	for name, tt := range map[string]struct {
		node     func(*Node)
		pods     []Pod
		attempts []int32
	}{
		"the rollback after a failure has failed":    {failed(undone(record.Failed, 1)), nil, []int32{2}},
		"the rollback after a failure runs again":    {failed(undone(record.Failed, 1)), []Pod{newPod(newNode("a"), func(p *Pod) { p.Runs, p.UID, p.Attempt = task.Rollback, "second", 2 })}, []int32{2}},
		"the rollback after a success has failed":    {recorded(record.Succeeded, attempts(3), undone(record.Failed, 1)), nil, []int32{1}},
		"the rollback was disrupted":                 {failed(undone(record.Disrupted, 0)), nil, nil},
		"the rollback has failed on another machine": {failed(undone(record.Failed, 1), func(r *record.Record) { r.MachineID = "gone" }), nil, nil},
	} {
		var got []int32
		for _, f := range Next(see(newJob(withRollback, deleted(v1alpha1.DeletionRollback)), []Node{newNode("a", tt.node)}, tt.pods...)).Status.Failures {
			got = append(got, f.Attempts)
		}
		if diff := cmp.Diff(tt.attempts, got); diff != "" {
			t.Errorf("%s: attempts of the failures (-want +got):\n%s", name, diff)
		}
	}
}

func TestCauseOfARollbackFailure(t *testing.T) {
	for want, rb := range map[string]*record.Rollback{
		"TaskFailed":                      {Reason: "TaskFailed"},
		"TaskFailed, exit code 5: no way": {Reason: "TaskFailed", ExitCode: new(int32(5)), Message: "line 1\nno way"},
	} {
		if got := rollbackCause(rb); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAConditionOfARollbackThatIsRemovedIsRemoved(t *testing.T) {
	in := see(newJob(withRollback), []Node{newNode("a")})
	in.Job.Status = Next(in).Status
	in.Job.Spec.Rollback = nil
	if c := meta.FindStatusCondition(Next(in).Status.Conditions, v1alpha1.ConditionRollbackFailed); c != nil {
		t.Errorf("condition %+v", c)
	}
}

// TestFailuresOfARollbackOnDeletion checks that the reason of a rollback that fails is in the message and in status.failures, while
// it is retried and afterwards.
func TestFailuresOfARollbackOnDeletion(t *testing.T) {
	const head = "the NodeJob is being deleted; on 1 node the task is still to be rolled back"
	const retried = "; the rollback failed on 1 node and is retried (a: TaskFailed, exit code 5: no way back)"
	undoneWith := func(attempts int32) func(*Node) {
		return recorded(
			record.Succeeded,
			undone(record.Failed, attempts),
			func(r *record.Record) { r.Rollback.ExitCode, r.Rollback.FinishedAt = new(int32(5)), ago(1) },
		)
	}
	want := v1alpha1.NodeFailure{
		Node:            "a",
		ExitCode:        new(int32(5)),
		Reason:          "TaskFailed",
		FinishedAt:      metav1.NewTime(ago(1)),
		RollbackMessage: "no way back",
	}
	tests := map[string]struct {
		attempts int32
		pods     []Pod
		retrying bool
		rollback string
		message  string
	}{
		"it backs off": {1, nil, true, v1alpha1.ReasonRollbackPending, head + retried},
		"it runs again": {
			1,
			[]Pod{newPod(newNode("a"), func(p *Pod) { p.Runs, p.UID, p.Attempt = task.Rollback, "second", 2 })},
			true,
			v1alpha1.ReasonRollingBack,
			head + retried,
		},
		"no retry is left": {
			2,
			nil,
			false,
			v1alpha1.ReasonRollbackFailed,
			head + ": a: the rollback has failed: TaskFailed, exit code 5: no way back. ",
		},
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
			if c := meta.FindStatusCondition(
				status.Conditions,
				kind,
			); c.Status != metav1.ConditionTrue ||
				!strings.HasPrefix(c.Message, tt.message) {
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
