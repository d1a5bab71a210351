// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

func TestMaxFailures(t *testing.T) {
	value := func(v intstr.IntOrString) *intstr.IntOrString { return &v }
	tests := map[string]struct {
		value   *intstr.IntOrString
		matched int
		want    int
	}{
		"none without a value":             {nil, 100, 0},
		"a number":                         {value(intstr.FromInt32(3)), 100, 3},
		"a number larger than the cluster": {value(intstr.FromInt32(3)), 1, 3},
		"a percentage":                     {value(intstr.FromString("10%")), 100, 10},
		"a percentage is rounded down":     {value(intstr.FromString("10%")), 19, 1},
		"a percentage of a few nodes is rounded down to none": {value(intstr.FromString("10%")), 9, 0},
		"a percentage of no nodes":                            {value(intstr.FromString("100%")), 0, 0},
		"all":                                                 {value(intstr.FromString("100%")), 7, 7},
		"a value that the API rejects":                        {value(intstr.FromString("many")), 7, 0},
		"a negative number":                                   {value(intstr.FromInt32(-1)), 7, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := mayFail(v1alpha1.RolloutSpec{MaxFailures: tt.value}, tt.matched); got != tt.want {
				t.Errorf("%d may fail, want %d", got, tt.want)
			}
		})
	}
}

// TestANodeThatFailedWhileItWasRemoved covers a node that turned NotReady while another tool removed it, and failed. When a user skips it,
// it is not Ready for another reason than the task.
func TestANodeThatFailedWhileItWasRemoved(t *testing.T) {
	job := newJob()
	job.Status.Revision = rev
	was := stateOf("all")
	was.write(&job.Status)
	leaves := func(n *Node) { n.Ready, n.Unschedulable = corev1.ConditionFalse, true }
	failed := newNode("a", recorded(record.Failed, attempts(2)), leaves)
	job.Status = Next(see(job, []Node{failed, newNode("b")})).Status
	if r := readRollout(&job.Status); len(r.AtRisk) != 1 || len(r.NotReadyBefore) != 1 {
		t.Errorf("at risk %v, not Ready before %v", r.AtRisk, r.NotReadyBefore)
	}
	job.Status = Next(see(job, []Node{newNode("a", recorded(record.Failed, attempts(2)), labelled(rev), leaves), newNode("b")})).Status
	if r := readRollout(&job.Status); len(r.AtRisk) != 0 || len(r.UnrecordedFailures) != 0 {
		t.Errorf("at risk %v, failed %v", r.AtRisk, r.UnrecordedFailures)
	}
}

// TestUnrecordedFailures tests which nodes count as failed without a record of a failure.
func TestUnrecordedFailures(t *testing.T) {
	atRisk := func(name string, failed bool) v1alpha1.NodeAtRisk {
		return v1alpha1.NodeAtRisk{Node: name, UID: types.UID(name + "-uid"), MachineID: name + "-machine", Failed: failed}
	}
	casualty := func(name, reason string) v1alpha1.UnrecordedFailure {
		return v1alpha1.UnrecordedFailure{Node: name, UID: types.UID(name + "-uid"), Reason: reason, At: metav1.Time{Time: now}}
	}
	notReady := func(n *Node) { n.Ready = corev1.ConditionFalse }
	going := func(key string) func(*Node) {
		return func(n *Node) { n.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}} }
	}
	deleting := func(n *Node) { n.Deleting = true }
	done, failed := recorded(record.Succeeded), recorded(record.Failed, attempts(2))
	was := func(changes ...func(*rolloutState)) rolloutState { return stateOf("all", changes...) }
	risks := func(nodes ...v1alpha1.NodeAtRisk) func(*rolloutState) {
		return func(r *rolloutState) { r.AtRisk = nodes }
	}
	casualties := func(nodes ...v1alpha1.UnrecordedFailure) func(*rolloutState) {
		return func(r *rolloutState) { r.UnrecordedFailures = nodes }
	}
	tests := map[string]struct {
		job            *v1alpha1.NodeJob
		was            rolloutState
		nodes          []Node
		wantCasualties []string
		wantAtRisk     []string
	}{
		"no node has a problem":    {nodes: []Node{newNode("a", done), newNode("b")}},
		"a failed node is at risk": {nodes: []Node{newNode("a", failed)}, wantAtRisk: []string{"a failed"}},
		"a done node that is not Ready is at risk": {
			nodes:      []Node{newNode("a", done, notReady), newNode("b")},
			wantAtRisk: []string{"a"},
		},
		"a node that is not Ready before its first attempt": {
			nodes: []Node{newNode("a", notReady, func(n *Node) { n.Ready = corev1.ConditionUnknown }), newNode("b")},
		},
		"a node that is not Ready and done with another revision": {
			nodes: []Node{
				newNode(
					"a",
					recorded(record.Succeeded, func(r *record.Record) { r.Revision = "old" }),
					labelled("old"),
					func(n *Node) { n.Ready = corev1.ConditionUnknown },
				),
			},
		},
		"a node that cluster-autoscaler removes": {
			nodes: []Node{newNode("a", done, notReady, going("ToBeDeletedByClusterAutoscaler")), newNode("b")},
		},
		"a node that Karpenter removes": {
			nodes: []Node{newNode("a", done, notReady, going("karpenter.sh/disrupted")), newNode("b")},
		},
		"a node that an earlier version of Karpenter removes": {
			nodes: []Node{newNode("a", done, notReady, going("karpenter.sh/disruption")), newNode("b")},
		},
		"a node that GKE terminates": {
			nodes: []Node{newNode("a", done, notReady, going("cloud.google.com/impending-node-termination")), newNode("b")},
		},
		"a node whose spot instance AWS terminates": {
			nodes: []Node{newNode("a", done, notReady, going("aws-node-termination-handler/spot-itn")), newNode("b")},
		},
		"a node that a user has cordoned": {nodes: []Node{newNode("a", done, notReady, byHand), newNode("b")}},
		"a node that a NodeJob has cordoned is at risk": {
			nodes:      []Node{newNode("a", done, notReady, cordonedBy("ns.everynode.dev/other")), newNode("b")},
			wantAtRisk: []string{"a"},
		},
		"a node with a taint for another reason is at risk": {
			nodes:      []Node{newNode("a", done, notReady, going("example.com/full")), newNode("b")},
			wantAtRisk: []string{"a"},
		},
		"only the terminating one of two nodes": {
			was: was(
				risks(atRisk("a", false)),
			),
			nodes:      []Node{newNode("a", done, notReady), newNode("b", done, notReady, deleting), newNode("c")},
			wantAtRisk: []string{"a"},
		},
		"no node is at risk when the revision is stable": {
			was:   was(provenSince(9)),
			nodes: []Node{newNode("a", failed), newNode("b", done, notReady)},
		},
		"a terminating node": {nodes: []Node{newNode("a", done, notReady, deleting), newNode("b")}},
		"a terminating node that was not Ready before its deletion": {
			was: was(
				risks(atRisk("a", false)),
			),
			nodes:      []Node{newNode("a", done, notReady, deleting), newNode("b")},
			wantAtRisk: []string{"a"},
		},
		"a node that is Ready again": {was: was(risks(atRisk("a", false))), nodes: []Node{newNode("a", done), newNode("b")}},
		"a node that failed its soak, and is tainted for removal when it is due again": {
			job: newJob(periodSeconds(60)),
			was: was(casualties(casualty("a", v1alpha1.ReasonNotReadyInSoak))),
			nodes: []Node{
				newNode(
					"a",
					recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(900) }),
					notReady,
					going("ToBeDeletedByClusterAutoscaler"),
				),
				newNode("b"),
			},
			wantCasualties: []string{"a NotReadyInSoak"},
		},
		"a failed node that was deleted": {
			was: was(risks(atRisk("a", true))), nodes: []Node{newNode("b")}, wantCasualties: []string{"a FailedNodeDeleted"},
		},
		"a node that was not Ready when it was deleted": {
			was: was(risks(atRisk("a", false))), nodes: []Node{newNode("b")}, wantCasualties: []string{"a NotReadyNodeDeleted"},
		},
		"a node that was recreated with the same name": {
			was: was(
				risks(atRisk("a", true)),
			),
			nodes:          []Node{newNode("a", func(n *Node) { n.UID = "another" })},
			wantCasualties: []string{"a FailedNodeDeleted"},
		},
		"a node whose machine was replaced": {
			was: was(
				risks(atRisk("a", true)),
			),
			nodes:          []Node{newNode("a", failed, func(n *Node) { n.MachineID = "another" })},
			wantCasualties: []string{"a FailedNodeDeleted"},
		},
		"a node without a machine ID": {
			was: was(
				risks(atRisk("a", true)),
			),
			nodes:      []Node{newNode("a", failed, func(n *Node) { n.MachineID = "" })},
			wantAtRisk: []string{"a failed"},
		},
		"a node counts once": {
			was:   was(risks(atRisk("a", true)), casualties(casualty("a", v1alpha1.ReasonFailedNodeDeleted))),
			nodes: []Node{newNode("b")}, wantCasualties: []string{"a FailedNodeDeleted"},
		},
		"a node whose machine was replaced, with rerun.onMachineChange false": {
			job: newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnMachineChange = new(false) }),
			was: was(
				risks(atRisk("a", true)),
			),
			nodes:      []Node{newNode("a", failed, func(n *Node) { n.MachineID = "another" })},
			wantAtRisk: []string{"a failed"},
		},
		"a node whose machine is replaced in a soak": {
			was: was(casualties(casualty("a", v1alpha1.ReasonNotReadyInSoak))),
			nodes: []Node{
				newNode("a", done, func(n *Node) { n.MachineID = "another" }),
				newNode("b"),
			},
			wantCasualties: []string{"a NotReadyNodeDeleted"},
		},
		"unrecorded failures stay when the request of a retry is removed": {
			was:   was(casualties(casualty("a", v1alpha1.ReasonFailedNodeDeleted)), func(r *rolloutState) { r.Retry = "now" }),
			nodes: []Node{newNode("b")}, wantCasualties: []string{"a FailedNodeDeleted"},
		},
		"unrecorded failures since the retry stay": {
			job: newJob(
				askAgain,
			),
			was: was(
				casualties(casualty("a", v1alpha1.ReasonFailedNodeDeleted)),
				func(r *rolloutState) { r.Retry = task.RetryToken(newJob(askAgain)) },
			),
			nodes:          []Node{newNode("b")},
			wantCasualties: []string{"a FailedNodeDeleted"},
		},
		"a retry removes unrecorded failures": {
			job: newJob(askAgain), was: was(casualties(casualty("a", v1alpha1.ReasonFailedNodeDeleted))), nodes: []Node{newNode("b")},
		},
		"a retry forgets the nodes at risk, also those that are gone by then": {
			job: newJob(askAgain), was: was(risks(atRisk("c", true))), nodes: []Node{newNode("b")},
		},
		"unrecorded failures are removed when the revision is stable": {
			was: was(
				provenSince(9),
				casualties(casualty("a", v1alpha1.ReasonFailedNodeDeleted)),
				risks(atRisk("c", true)),
			),
			nodes: []Node{newNode("b", done)},
		},
		"a node that reruns in a soak counts according to the outcome": {
			was: was(casualties(casualty("a", v1alpha1.ReasonNotReadyInSoak))), nodes: []Node{newNode("a"), newNode("b")},
		},
		"a node that is deleted in a soak": {
			was: was(
				casualties(casualty("a", v1alpha1.ReasonNotReadyInSoak)),
			),
			nodes:          []Node{newNode("b")},
			wantCasualties: []string{"a NotReadyNodeDeleted"},
		},
		"a node that still exists in a soak": {
			was: was(
				casualties(casualty("a", v1alpha1.ReasonNotReadyInSoak)),
			),
			nodes:          []Node{newNode("a", done), newNode("b")},
			wantCasualties: []string{"a NotReadyInSoak"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.job == nil {
				tt.job = newJob()
			}
			tt.job.Status.Revision = rev
			tt.was.write(&tt.job.Status)
			after := Next(see(tt.job, tt.nodes)).Status
			r := readRollout(&after)
			var casualties, atRisk []string
			for _, c := range r.UnrecordedFailures {
				casualties = append(casualties, c.Node+" "+c.Reason)
			}
			for _, n := range r.AtRisk {
				text := n.Node
				if n.Failed {
					text += " failed"
				}
				atRisk = append(atRisk, text)
			}
			if diff := cmp.Diff(tt.wantCasualties, casualties); diff != "" {
				t.Errorf("unrecorded failures (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantAtRisk, atRisk); diff != "" {
				t.Errorf("at risk (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFailureOfANodeInASoak tests what the status says of a node that has failed without a record of it.
func TestFailureOfANodeInASoak(t *testing.T) {
	const notReady, waited = "the node turned NotReady in the soak after the task", "no progress for 3600 s (rollout.progressDeadlineSeconds): the soak waited for the node to become Ready"
	inSoak, before := v1alpha1.ReasonNotReadyInSoak, v1alpha1.ReasonProgressDeadlineExceeded
	for name, tt := range map[string]struct {
		node Node
		want v1alpha1.NodeFailure
	}{
		"it turned NotReady":      {newNode("n", recorded(record.Succeeded)), v1alpha1.NodeFailure{Node: "n", Reason: inSoak, Message: notReady, Attempts: 1, FinishedAt: metav1.NewTime(ago(60))}},
		"it did not become Ready": {newNode("n", recorded(record.Succeeded)), v1alpha1.NodeFailure{Node: "n", Reason: before, Message: waited, Attempts: 1, FinishedAt: metav1.NewTime(ago(60))}},
		"a user has skipped it":   {newNode("n", labelled(rev)), v1alpha1.NodeFailure{Node: "n", Reason: inSoak, Message: notReady}},
	} {
		job := newJob()
		job.Status.Revision = rev
		job.Status.Rollout = &v1alpha1.RolloutStatus{
			Step:               "all",
			UnrecordedFailures: []v1alpha1.UnrecordedFailure{{Node: "n", UID: "n-uid", Reason: tt.want.Reason}},
		}
		p := Next(see(job, []Node{tt.node, newNode("z")}))
		if diff := cmp.Diff([]v1alpha1.NodeFailure{tt.want}, p.Status.Failures); diff != "" || p.Nodes[0].Message != tt.want.Message {
			t.Errorf("%s: %+v, failures (-want +got):\n%s", name, p.Nodes[0], diff)
		}
	}
}

func TestExcludedNodesDoNotRaiseTheFailureBudget(t *testing.T) {
	nodes := []Node{newNode("a"), newNode("b"), newNode("c", withTaints(busy)), newNode("d", withTaints(busy))}
	ro := rolloutOf(see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxFailures = new(intstr.FromString("50%")) }), nodes))
	if ro.mayFail != 1 {
		t.Errorf("%d nodes may fail, want half of the two that match", ro.mayFail)
	}
}

func TestNodesThatWereNotReadyBeforeAreBounded(t *testing.T) {
	job := newJob()
	job.Status.Revision, job.Status.Rollout = rev, &v1alpha1.RolloutStatus{Step: "all"}
	nodes := []Node{newNode("z")}
	for i := range maxNotReadyBefore + 1 {
		node := newNode(fmt.Sprintf("n%03d", i), recorded(record.Succeeded), func(n *Node) { n.Ready = corev1.ConditionFalse })
		nodes, job.Status.ControllerState.Rollout.NotReadyBefore = append(
			nodes,
			node,
		), append(
			job.Status.ControllerState.Rollout.NotReadyBefore,
			node.UID,
		)
	}
	if got := len(Next(see(job, nodes)).Status.ControllerState.Rollout.NotReadyBefore); got != maxNotReadyBefore {
		t.Errorf("%d, want %d", got, maxNotReadyBefore)
	}
}

// A task breaks every node that it runs on, in a cluster that repairs nodes by replacing them. With maxFailures 100%,
// only the number of these nodes stops the rollout.
func TestTooManyUnrecordedFailuresStallRollout(t *testing.T) {
	job := newJob()
	job.Status.Revision = rev
	job.Status.Rollout = &v1alpha1.RolloutStatus{Step: "all", StepStartedAt: metav1.Time{Time: ago(300)}}
	for i := range 40 {
		job.Status.ControllerState.Rollout.AtRisk = append(
			job.Status.ControllerState.Rollout.AtRisk,
			v1alpha1.NodeAtRisk{Node: fmt.Sprintf("gone-%d", i), UID: types.UID(fmt.Sprint(i)), Failed: true},
		)
	}
	nodes := make([]Node, 0, 100)
	for i := range 100 {
		nodes = append(nodes, newNode(fmt.Sprintf("new-%d", i)))
	}
	p := Next(see(job, nodes))
	if len(p.Actions) != 0 || len(p.Status.Rollout.UnrecordedFailures) != maxUnrecordedFailures {
		t.Errorf("%d actions, %d unrecorded failures", len(p.Actions), len(p.Status.Rollout.UnrecordedFailures))
	}
	if c := p.Status.Conditions[2]; c.Reason != v1alpha1.ReasonMaxFailuresExceeded ||
		!strings.Contains(c.Message, "gone-0: FailedNodeDeleted") {
		t.Errorf("condition %+v", c)
	}
}

// A failed node prevents all others from starting, not only those of later steps.
func TestNothingStartsBeyondMaxFailures(t *testing.T) {
	failed := recorded(record.Failed, attempts(2))
	again := recorded(record.Failed)
	tests := map[string]struct {
		mayFail int32
		nodes   []Node
		pods    []Pod
		want    []string
	}{
		"as many failed nodes as maxFailures": {
			1,
			[]Node{newNode("a", failed), newNode("b")},
			nil,
			[]string{"start attempt 1 of rev on b"},
		},
		"one failed node more than maxFailures": {1, []Node{newNode("a", failed), newNode("b", failed), newNode("c")}, nil, nil},
		"a retry":                               {0, []Node{newNode("a", failed), newNode("b", again)}, nil, nil},
		"a running attempt continues": {
			0, []Node{newNode("a", failed), newNode("b")}, []Pod{newPod(newNode("b"), exited(0))},
			[]string{"record Succeeded on b: attempts 1, disruptions 0"},
		},
		"a failed node that is no longer selected does not count": {
			0, []Node{newNode("a", failed, inPool("x")), newNode("b")}, nil, []string{"start attempt 1 of rev on b"},
		},
		"a failed node that was skipped does not count": {
			0, []Node{newNode("a", failed, labelled(rev)), newNode("b")}, nil, []string{"start attempt 1 of rev on b"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(mayFailNodes(tt.mayFail), func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
			})
			if diff := cmp.Diff(tt.want, told(Next(see(job, tt.nodes, tt.pods...)))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}
