// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// assuming is a NodeJob of a minute ago that replaces a DaemonSet, which has set a label.
func assuming(j *v1alpha1.NodeJob) {
	j.CreationTimestamp = metav1.NewTime(ago(60))
	j.Spec.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"example.com/configured": "true"}},
	}
}

func configured(n *Node) {
	n.ResourceVersion, n.Created = "7", ago(600)
	n.Labels = map[string]string{"pool": "a", "example.com/configured": "true"}
}

func TestAssumeDone(t *testing.T) {
	const assumed, first, second = "AssumedDone n, recorded", "start attempt 1 of rev on n", "start attempt 2 of rev on n"
	with := func(change func(*v1alpha1.NodeJobSpec)) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) {
			assuming(j)
			change(&j.Spec)
		}
	}
	tests := map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node Node
		want []string
		// state and reason of the node in this pass.
		state  State
		reason string
	}{
		"a node with the label is recorded without a run": {
			assuming,
			newNode("n", configured),
			[]string{assumed},
			Waiting,
			v1alpha1.ReasonAssumedDone,
		},
		"a node without the label runs the task": {
			assuming, newNode("n", configured, func(n *Node) { n.Labels = nil }), []string{first}, Running, v1alpha1.ReasonStarting,
		},
		"a node that joined after the NodeJob was created runs the task": {
			assuming, newNode("n", configured, func(n *Node) { n.Created = ago(59) }), []string{first}, Running, v1alpha1.ReasonStarting,
		},
		"a node that joined when the NodeJob was created runs the task": {
			assuming, newNode("n", configured, func(n *Node) { n.Created = ago(60) }), []string{first}, Running, v1alpha1.ReasonStarting,
		},
		"a node with a record of a failure runs the task": {
			assuming,
			newNode("n", configured, recorded(record.Failed)),
			[]string{second},
			Running,
			v1alpha1.ReasonStarting,
		},
		"a node with the label of an earlier revision runs the task": {
			assuming, newNode("n", configured, labelled("earlier")), []string{first}, Running, v1alpha1.ReasonStarting,
		},
		"a node whose record is altered runs the task": {
			assuming,
			newNode("n", configured, func(n *Node) { n.On.Altered, n.On.Present = true, true }),
			[]string{first},
			Running,
			v1alpha1.ReasonStarting,
		},
		"a node that is not selected is excluded": {
			with(
				func(s *v1alpha1.NodeJobSpec) { s.Nodes.Selector = stageSelector() },
			),
			newNode("n", configured),
			nil,
			Excluded,
			v1alpha1.ReasonNotSelected,
		},
		"a node with a taint that is not tolerated is excluded": {
			assuming,
			newNode("n", configured, func(n *Node) { n.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}} }),
			nil,
			Excluded,
			v1alpha1.ReasonUntoleratedTaint,
		},
		"nothing is recorded while the NodeJob is suspended": {
			with(func(s *v1alpha1.NodeJobSpec) { s.Suspend = true }), newNode("n", configured), nil, Waiting, v1alpha1.ReasonAssumedDone,
		},
		"nothing is recorded on a node that is being deleted": {
			assuming, newNode("n", configured, func(n *Node) { n.Deleting = true }), nil, Waiting, v1alpha1.ReasonAssumedDone,
		},
		"an invalid selector is an obstacle": {
			with(func(s *v1alpha1.NodeJobSpec) { s.Nodes.AssumeDone.Selector.MatchLabels = map[string]string{"a b": "c"} }),
			newNode("n", configured), nil, Waiting, v1alpha1.ReasonInvalidSelector,
		},
		"without a selector nothing is assumed": {
			with(
				func(s *v1alpha1.NodeJobSpec) { s.Nodes.AssumeDone.Selector = nil },
			),
			newNode("n", configured),
			[]string{first},
			Running,
			v1alpha1.ReasonStarting,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(tt.job), []Node{tt.node}))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if got := p.Nodes[0]; got.State != tt.state || got.Reason != tt.reason {
				t.Errorf("%s (%s), want %s (%s)", got.State, got.Reason, tt.state, tt.reason)
			}
		})
	}
}

// TestAssumeDoneWaits tests what a node waits for that will be assumed to be done.
func TestAssumeDoneWaits(t *testing.T) {
	const assumed = "it matches spec.nodes.assumeDone, and counts as done without a run"
	problem := map[types.UID]NodeProblem{
		"n-uid": {Why: hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: "a policy", Until: ago(-5)}},
	}
	for name, tt := range map[string]struct {
		suspend         bool
		problems        map[types.UID]NodeProblem
		reason, message string
		want            []string
	}{
		"for its record":                         {reason: v1alpha1.ReasonAssumedDone, message: assumed, want: []string{"AssumedDone n, recorded"}},
		"for the user":                           {suspend: true, reason: v1alpha1.ReasonAssumedDone, message: assumed + " when the NodeJob is resumed"},
		"for the retry of its record":            {problems: problem, reason: v1alpha1.ReasonRecordRejected, message: "a policy"},
		"for the user before its record's retry": {suspend: true, problems: problem, reason: v1alpha1.ReasonAssumedDone, message: assumed + " when the NodeJob is resumed"},
	} {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(assuming, func(j *v1alpha1.NodeJob) { j.Spec.Suspend = tt.suspend }), []Node{newNode("n", configured)})
			in.NodeProblems = tt.problems
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if got := p.Nodes[0]; got.State != Waiting || got.Reason != tt.reason || got.Message != tt.message {
				t.Errorf("%+v, want %s: %s", got, tt.reason, tt.message)
			}
		})
	}
}

// TestAssumedRecord tests what the record of a node that was assumed to be done means afterwards.
func TestAssumedRecord(t *testing.T) {
	assumed := recorded(record.Succeeded, func(r *record.Record) {
		r.Assumed, r.NeverStarted, r.Attempts, r.StartedAt = true, true, 0, time.Time{}
	})
	on := func(changes ...func(*Node)) Node {
		return newNode("n", append([]func(*Node){configured, assumed}, changes...)...)
	}
	onReboot := func(j *v1alpha1.NodeJob) { assuming(j); j.Spec.Rerun.OnReboot = true }
	done, starts := NodeState{State: Done, Reason: v1alpha1.ReasonDone}, NodeState{State: Running, Reason: v1alpha1.ReasonStarting}
	tests := map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node Node
		want NodeState
	}{
		"the node is done": {assuming, on(), done},
		"the node stays done without the label of the DaemonSet": {assuming, on(func(n *Node) { n.Labels = nil }), done},
		"the node stays done without spec.nodes.assumeDone":      {func(*v1alpha1.NodeJob) {}, on(), done},
		"the removal of the label of the record requests a run": {
			assuming,
			on(func(n *Node) { n.On.Label = "" }),
			NodeState{State: Running, Reason: v1alpha1.ReasonPreparing},
		},
		"a new revision runs": {
			assuming,
			on(func(n *Node) { n.On.Label, n.On.Record.Label, n.On.Record.Revision = "earlier", "earlier", "earlier" }),
			starts,
		},
		"a reboot requests a run if spec.rerun.onReboot says so": {onReboot, on(func(n *Node) { n.BootID = "later" }), starts},
		"another machine with the same node name runs the task":  {assuming, on(func(n *Node) { n.MachineID = "another" }), starts},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Next(see(newJob(tt.job), []Node{tt.node})).Nodes[0]
			if got.State != tt.want.State || got.Reason != tt.want.Reason {
				t.Errorf("%s (%s), want %s (%s)", got.State, got.Reason, tt.want.State, tt.want.Reason)
			}
		})
	}
	t.Run("the node is not rolled back when the NodeJob is deleted", func(t *testing.T) {
		job := newJob(
			assuming,
			deleted(v1alpha1.DeletionRollback),
			func(j *v1alpha1.NodeJob) {
				j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
			},
		)
		if diff := cmp.Diff([]string{"forget n"}, told(Next(see(job, []Node{on()})))); diff != "" {
			t.Errorf("actions (-want +got):\n%s", diff)
		}
	})
	t.Run("its first run is no rerun, so other nodes wait for its end", func(t *testing.T) {
		job := newJob(assuming, func(j *v1alpha1.NodeJob) {
			j.Spec.Maintenance.Reboot.Policy = v1alpha1.RebootAlways
			j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}}
		})
		reboots := newNode(
			"a",
			configured,
			labelled(rev),
			recorded(record.Rebooting, func(r *record.Record) { r.Assumed, r.Rerun = true, true }),
		)
		if got := Next(see(job, []Node{reboots, newNode("b")})).Nodes[1]; got.Reason != v1alpha1.ReasonWaitingForStep {
			t.Errorf("the other node is %s (%s), want %s", got.State, got.Reason, v1alpha1.ReasonWaitingForStep)
		}
	})
	t.Run("a disruption of its first run is no success", func(t *testing.T) {
		node := on()
		pod := newPod(node, func(p *Pod) {
			p.Phase, p.DeleteRequested, p.Exit = corev1.PodFailed, ago(5), &Exit{Code: 143, Finished: ago(2)}
		})
		p := Next(see(newJob(assuming), []Node{node}, pod))
		if r := p.Actions[0].(Record).Record; r.Outcome != record.Disrupted || !r.Assumed || !r.Rerun {
			t.Errorf("the record is %+v, want a disruption that stays assumed", r)
		}
	})
	t.Run("the node is not the canary, on which the task must run", func(t *testing.T) {
		job := newJob(assuming, func(j *v1alpha1.NodeJob) {
			j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}}
		})
		p := Next(see(job, []Node{newNode("a", configured, assumed), newNode("b"), newNode("c")}))
		if diff := cmp.Diff([]string{"start attempt 1 of rev on b"}, told(p)); diff != "" {
			t.Errorf("actions (-want +got):\n%s", diff)
		}
	})
}
