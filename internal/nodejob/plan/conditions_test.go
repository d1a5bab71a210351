// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// summaryText is the condition that is True, or the reason why none is.
func summaryText(in Input) string {
	conditions := Next(in).Status.Conditions[:3]
	for _, c := range conditions {
		if c.Status == metav1.ConditionTrue {
			return c.Type + " " + c.Reason + ": " + c.Message
		}
	}
	return conditions[0].Reason + ": " + conditions[0].Message
}

// States of nodes.
var (
	isDue    = recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(3600) })
	isFailed = recorded(record.Failed, attempts(2))
	backsOff = recorded(record.Failed, func(r *record.Record) { r.FinishedAt = ago(1) })
	isLost   = func(n *Node) { n.Ready = corev1.ConditionUnknown }
	unready  = func(n *Node) { n.Ready = corev1.ConditionFalse }
)

func terminatingOn(node string) Pod {
	return newPod(newNode(node), func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) })
}

// TestSummary tests the beginning and the end of the condition that is True.
func TestSummary(t *testing.T) {
	soaked := first(intstr.FromInt32(1))
	soaked.SoakSeconds = 60
	waitsForRerun := func(n *Node) {
		recorded(record.Disrupted, func(r *record.Record) { r.Rerun, r.FinishedAt = true, ago(1) })(n)
		labelled(rev)(n)
	}
	problem := func(in *Input) { in.NodeProblems = nameTaken(60, 5) }
	refusedFor := func(seconds int) func(*Input) {
		return func(in *Input) {
			in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "exceeded quota", Until: ago(-seconds)}
		}
	}
	tests := map[string]struct {
		job        []func(*v1alpha1.NodeJob)
		nodes      []Node
		pods       []Pod
		in         func(*Input)
		begin, end string
	}{
		"rollbacks are refused": {
			job: []func(*v1alpha1.NodeJob){templated}, nodes: []Node{newNode("a", isFailed)},
			in:    func(in *Input) { in.RunnerRefused = &hold.Why{Message: "no runner", Until: ago(-5)} },
			begin: "Stalled NodesFailed: 1 node failed", end: "; no runner",
		},
		"no node continues and one has a problem that is not its cause": {
			nodes: []Node{
				newNode("a"),
			},
			pods:  []Pod{terminatingOn("a")},
			in:    problem,
			begin: "Reconciling InProgress",
			end:   "waiting: 1 PodTerminating (a)",
		},
		"a node has a problem, and another one continues": {
			nodes: []Node{newNode("a"), newNode("b")}, in: problem, begin: "Reconciling PodNameTaken", end: "; a: pod x has its name",
		},
		"a cordoned node is unreachable": {
			job: []func(*v1alpha1.NodeJob){
				cordoning,
			},
			nodes: []Node{newNode("a", recorded(record.Disrupted), isLost, cordonedBy(jobKey))},
			begin: "Reconciling InProgress",
		},
		"a soak waits for a node": {
			job: []func(*v1alpha1.NodeJob){
				inSteps(soaked, rest),
				inStep("first"),
			},
			nodes: []Node{newNode("a", recorded(record.Succeeded), unready), newNode("z")},
			begin: "Reconciling InProgress",
			end:   "; the soak of step first begins when node a is Ready: see what it lacks, or delete it",
		},
		"a soak waits for a node while another one runs": {
			job: []func(*v1alpha1.NodeJob){inSteps(poolB(0), soaked, rest), inStep("first"), periodSeconds(600)},
			nodes: []Node{
				newNode("a", recorded(record.Succeeded), unready),
				newNode("b", inPool("b"), isDue),
				newNode("z"),
			},
			begin: "Reconciling InProgress",
			end:   "waiting: 1 WaitingForStep (z)",
		},
		"a step soaks while another node runs": {
			job: []func(*v1alpha1.NodeJob){inSteps(poolB(0), soaked, rest), inStep("first", soakingFor(20)), periodSeconds(600)},
			nodes: []Node{
				newNode("a", recorded(record.Succeeded)),
				newNode("b", inPool("b"), isDue),
				newNode("z"),
			},
			begin: "Reconciling InProgress",
			end:   "waiting: 1 Soaking (z)",
		},
		"pods are refused, and no node needs one": {
			nodes: []Node{
				newNode("a"),
			},
			pods:  []Pod{terminatingOn("a")},
			in:    refusedFor(5),
			begin: "Reconciling InProgress",
			end:   "waiting: 1 PodTerminating (a)",
		},
		"one start shows whether pods are still refused": {
			nodes: []Node{newNode("a")},
			in:    refusedFor(-1),
			begin: "Stalled PodForbidden: exceeded quota",
		},
		"a node waits for an unavailable one": {
			job: []func(*v1alpha1.NodeJob){rebootingAs(v1alpha1.RebootAlways), upToUnavailable(1)},
			nodes: []Node{
				newNode("a", labelled(rev), unready),
				newNode("b"),
			},
			begin: "Reconciling InProgress",
			end:   "(a), and maintenance.maxUnavailable allows 1",
		},
		"a node waits for an unavailable one, and another one continues": {
			job: []func(*v1alpha1.NodeJob){rebootingAs(v1alpha1.RebootAlways), upToUnavailable(1)},
			nodes: []Node{
				newNode("a", labelled(rev), unready),
				newNode("b"),
				newNode("c", backsOff),
			},
			begin: "Reconciling InProgress",
			end:   "1 MaxUnavailableReached (b)",
		},
		"the time to start has passed": {
			job: []func(*v1alpha1.NodeJob){
				created(ago(60)),
				func(j *v1alpha1.NodeJob) { j.Spec.StartingDeadlineSeconds = new(int32(60)) },
			},
			nodes: []Node{newNode("a")},
			begin: "Suspended: the end of spec.startingDeadlineSeconds keeps new attempts from starting",
		},
		"a node has failed, and another one will rerun": {
			nodes: []Node{newNode("a", waitsForRerun), newNode("b", isFailed)},
			begin: "Stalled NodesFailed",
		},
		"a node has failed, another one cannot rerun, and a third one continues": {
			job: []func(*v1alpha1.NodeJob){
				periodSeconds(60),
			},
			nodes: []Node{newNode("a", isDue, isLost), newNode("b", isFailed), newNode("c", backsOff)},
			begin: "Reconciling InProgress",
		},
		"excluded nodes have an earlier revision": {
			nodes: []Node{
				newNode("a", backsOff),
				newNode("b", labelled("old"), withTaints(busy)),
			},
			begin: "Reconciling InProgress: 0 of 1 node is done; waiting",
		},
		"nodes that are done have an earlier revision": {
			job: []func(*v1alpha1.NodeJob){
				func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnRevisionChange = new(false) },
			},
			nodes: []Node{newNode("a", labelled("old")), newNode("b", backsOff)},
			begin: "Reconciling InProgress: 1 of 2 nodes are done; waiting",
		},
		"all nodes have taints": {
			nodes: []Node{newNode("b", withTaints(busy)), newNode("a", withTaints(busy)), newNode("c", withTaints(busy))},
			begin: "NoMatchingNodes: 3 nodes are excluded by a taint that spec.nodes.tolerations does not tolerate (a: ",
		},
		"all nodes have taints, in another order": {
			nodes: []Node{
				newNode("a", withTaints(busy)),
				newNode("b", withTaints(busy)),
			},
			begin: "NoMatchingNodes: 2 nodes are excluded by a taint that spec.nodes.tolerations does not tolerate (a: ",
		},
		"all nodes have taints or another operating system": {
			nodes: []Node{
				newNode("a", withTaints(busy)),
				newNode("b", withOS("windows")),
			},
			begin: "NoMatchingNodes: 1 node is excluded by a taint",
		},
		"all nodes have another operating system": {
			nodes: []Node{newNode("b", withOS("windows")), newNode("a", withOS("windows")), newNode("c", withOS("windows"))},
			begin: "NoMatchingNodes: 3 nodes are excluded by the operating system (such as a)",
		},
		"the drain of a failed node is blocked": {
			job:   []func(*v1alpha1.NodeJob){onFailure(v1alpha1.FailureActionDrain)},
			nodes: []Node{newNode("a", recorded(record.Failed, attempts(2), drainSince(60)), cordonedBy(jobKey)), newNode("b")},
			in: func(in *Input) {
				in.Drains = map[types.UID][]DrainPod{"a-uid": {{Namespace: "web", Name: "x", EvictionRefused: "no"}}}
			},
			begin: "Reconciling InProgress", end: "1 failed, 1 running",
		},
		"a failed node is excluded, and another one is done": {
			job: []func(*v1alpha1.NodeJob){inStep("all", func(r *rolloutState) {
				r.UnrecordedFailures = []v1alpha1.UnrecordedFailure{{Node: "a", UID: "a-uid", Reason: v1alpha1.ReasonNotReadyInSoak}}
			})},
			nodes: []Node{
				newNode("a", recorded(record.Disrupted), withTaints(busy)),
				newNode("b", recorded(record.Succeeded)),
			},
			begin: "Complete AllNodesDone",
		},
		"a node that runs the task has a problem": {
			nodes: []Node{newNode("a")}, pods: []Pod{newPod(newNode("a"), exited(0))},
			in: func(in *Input) {
				in.NodeProblems = map[types.UID]NodeProblem{
					"a-uid": {Why: hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "full", Until: ago(-5)}},
				}
			}, begin: "Stalled RecordRejected",
		},
		"a node that is retried is not named": {
			job:   []func(*v1alpha1.NodeJob){mayFailNodes(0)},
			nodes: []Node{newNode("a", isFailed), newNode("b", backsOff)},
			begin: "Stalled MaxFailuresExceeded: the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0 (a: TaskFailed, exit code 3: no space left). Fix",
		},
		"a failed node is not named while an earlier revision runs there": {
			job: []func(*v1alpha1.NodeJob){
				mayFailNodes(0),
			},
			nodes: []Node{newNode("a", isFailed)},
			pods:  []Pod{newPod(newNode("a"), func(p *Pod) { p.Revision = "old" })},
			begin: "Stalled MaxFailuresExceeded: the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0. Fix",
		},
		"a node has failed, and another one was deleted": {
			job: []func(*v1alpha1.NodeJob){
				mayFailNodes(0),
				inStep("all", func(r *rolloutState) { r.UnrecordedFailures = deletedFailures(1) }),
			},
			nodes: []Node{newNode("a", isFailed)},
			begin: "Stalled MaxFailuresExceeded: the rollout has stopped: 2 nodes failed",
			end:   "skip a node: kubectl label node NAME ns.everynode.dev/job=rev --overwrite",
		},
		"three of the failed nodes that were deleted are named": {
			job: []func(*v1alpha1.NodeJob){
				mayFailNodes(0),
				inStep("all", func(r *rolloutState) { r.UnrecordedFailures = deletedFailures(4) }),
			},
			nodes: []Node{newNode("n")},
			begin: "Stalled MaxFailuresExceeded: the rollout has stopped: 4 nodes failed, and rollout.maxFailures allows 0 (a: FailedNodeDeleted; b: FailedNodeDeleted; c: FailedNodeDeleted). Fix",
		},
		"too many failed nodes were deleted": {
			job: []func(*v1alpha1.NodeJob){
				inStep("all", func(r *rolloutState) { r.UnrecordedFailures = deletedFailures(maxUnrecordedFailures) }),
			},
			nodes: []Node{newNode("n")},
			begin: "Stalled MaxFailuresExceeded: the rollout has stopped: 32 nodes turned NotReady in a soak, or were deleted",
		},
		"the next of several steps waits for promotion": {
			job: []func(*v1alpha1.NodeJob){inSteps(first(intstr.FromInt32(1)), poolB(0), rest), inStep("first"), promotedTo("first")},
			nodes: []Node{
				newNode("a", recorded(record.Succeeded)),
				newNode("b", inPool("b")),
				newNode("z"),
			},
			begin: "AwaitingPromotion: step first has passed; 1 of 3 nodes are done. To continue with step b: ",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(tt.job...), tt.nodes, tt.pods...)
			if tt.in != nil {
				tt.in(&in)
			}
			if got := summaryText(in); !strings.HasPrefix(got, tt.begin) || !strings.HasSuffix(got, tt.end) {
				t.Errorf("%q, want %q … %q", got, tt.begin, tt.end)
			}
		})
	}
}

func TestNoRollbackHasFailedWhileOneRuns(t *testing.T) {
	node := newNode("a", isFailed)
	conditions := Next(
		see(newJob(withRollback), []Node{node}, newPod(node, func(p *Pod) { p.Runs, p.UID = task.Rollback, "rollback" })),
	).Status.Conditions
	if c := conditions[3]; c.Type != v1alpha1.ConditionRollbackFailed || c.Status != metav1.ConditionFalse {
		t.Errorf("condition %+v", c)
	}
}

func TestTheStatusOfAnUnknownRevisionHasNoRollout(t *testing.T) {
	in := see(newJob(), []Node{newNode("a")})
	in.Revision, in.Obstacle = "", &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "it is missing"}
	if got := Next(in).Status.Rollout; got != nil {
		t.Errorf("rollout %+v", got)
	}
}

// The end of the output of a task usually says what is wrong.
func TestTheEndOfALongMessageIsInTheFailure(t *testing.T) {
	if got := failureMessage(
		&record.Record{Reason: "TaskFailed", Message: strings.Repeat("x", 2*maxFailureMessage) + " the end"},
	); !strings.HasSuffix(
		got,
		" the end",
	) {
		t.Errorf("%q", got)
	}
}

// deletedFailures are failed nodes that were deleted.
func deletedFailures(n int) []v1alpha1.UnrecordedFailure {
	var failures []v1alpha1.UnrecordedFailure
	for i := range n {
		name := string(rune('a' + i))
		failures = append(
			failures,
			v1alpha1.UnrecordedFailure{Node: name, UID: types.UID("gone-" + name), Reason: v1alpha1.ReasonFailedNodeDeleted},
		)
	}
	return failures
}
