// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// inSteps gives a NodeJob these steps and maxFailures 0.
func inSteps(steps ...v1alpha1.RolloutStep) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Spec.Rollout.Steps = steps
		j.Spec.Rollout.MaxFailures = nil
	}
}

func first(nodes intstr.IntOrString) v1alpha1.RolloutStep {
	return v1alpha1.RolloutStep{Name: "first", Nodes: &nodes}
}

func poolB(soak int32) v1alpha1.RolloutStep {
	return v1alpha1.RolloutStep{Name: "b", SoakSeconds: soak, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}}}
}

var rest = v1alpha1.RolloutStep{Name: "rest"}

// made sets a node's age, in seconds.
func made(seconds int) func(*Node) { return func(n *Node) { n.Created = ago(seconds) } }

func inZone(zone string) func(*Node) {
	return func(n *Node) {
		n.Labels = map[string]string{"pool": "a", corev1.LabelTopologyZone: zone}
	}
}

func inPool(pool string) func(*Node) {
	return func(n *Node) { n.Labels = map[string]string{"pool": pool} }
}

// TestNodesOfStep tests on which nodes a new revision starts.
func TestNodesOfStep(t *testing.T) {
	one, two, half := intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("50%")
	tests := map[string]struct {
		steps []v1alpha1.RolloutStep
		nodes []Node
		want  []string
	}{
		"one node by default": {
			nodes: []Node{newNode("a"), newNode("b"), newNode("c")}, want: []string{"a"},
		},
		"the oldest node, regardless of its name": {
			steps: []v1alpha1.RolloutStep{first(one), rest},
			nodes: []Node{newNode("a", made(10)), newNode("b", made(30)), newNode("c", made(20))}, want: []string{"b"},
		},
		"a Ready node before an older node that is not Ready": {
			steps: []v1alpha1.RolloutStep{first(one), rest},
			nodes: []Node{
				newNode("a", made(30), func(n *Node) { n.Ready = corev1.ConditionFalse }),
				newNode("b", made(10)),
			},
			want: []string{"b"},
		},
		"control plane nodes last": {
			steps: []v1alpha1.RolloutStep{first(one), rest},
			nodes: []Node{
				newNode("a", made(30), func(n *Node) { n.Labels = map[string]string{controlPlaneLabel: ""} }),
				newNode("b", made(10)),
			},
			want: []string{"b"},
		},
		"no unreachable node": {
			steps: []v1alpha1.RolloutStep{first(one), rest},
			nodes: []Node{
				newNode("a", made(30), func(n *Node) { n.Ready = corev1.ConditionUnknown }),
				newNode("b", made(10)),
			},
			want: []string{"b"},
		},
		"one node of each zone in turn": {
			steps: []v1alpha1.RolloutStep{first(intstr.FromInt32(3)), rest},
			nodes: []Node{
				newNode("a", inZone("x"), made(60)), newNode("b", inZone("x"), made(50)), newNode("c", inZone("x"), made(40)),
				newNode("d", inZone("y"), made(30)), newNode("e", inZone("z"), made(20)),
			}, want: []string{"a", "d", "e"},
		},
		"a zone with a node waits for the other zones": {
			steps: []v1alpha1.RolloutStep{first(two), rest},
			nodes: []Node{
				newNode(
					"a",
					inZone("x"),
					recorded(record.Succeeded),
				),
				newNode("b", inZone("x"), made(50)),
				newNode("c", inZone("y"), made(40)),
			}, want: []string{"c"},
		},
		"a percentage is rounded up": {
			steps: []v1alpha1.RolloutStep{first(half), rest},
			nodes: []Node{newNode("a"), newNode("b"), newNode("c")}, want: []string{"a", "b"},
		},
		"a percentage of nodes that were there before the rollout": {
			steps: []v1alpha1.RolloutStep{first(half), rest},
			nodes: []Node{newNode("a", made(9)), newNode("b", made(8)), newNode("c", made(7))}, want: []string{"a", "b"},
		},
		"the first by name of nodes of the same age": {
			steps: []v1alpha1.RolloutStep{first(one), rest},
			nodes: []Node{newNode("c", made(9)), newNode("b", made(9)), newNode("a", made(9))}, want: []string{"a"},
		},
		"a Ready node of a zone whose oldest node is not Ready": {
			steps: []v1alpha1.RolloutStep{first(one), rest},
			nodes: []Node{
				newNode("a", inZone("x"), made(60), func(n *Node) { n.Ready = corev1.ConditionFalse }),
				newNode("b", inZone("x"), made(50)),
				newNode("c", inZone("y"), made(40)),
			},
			want: []string{"b"},
		},
		"a percentage of a few nodes is one node": {
			steps: []v1alpha1.RolloutStep{first(intstr.FromString("1%")), rest},
			nodes: []Node{newNode("a"), newNode("b"), newNode("c")}, want: []string{"a"},
		},
		"a number larger than the cluster": {
			steps: []v1alpha1.RolloutStep{first(intstr.FromInt32(9)), rest},
			nodes: []Node{newNode("a"), newNode("b")}, want: []string{"a", "b"},
		},
		"a percentage of no nodes": {
			steps: []v1alpha1.RolloutStep{first(half), rest}, nodes: nil, want: nil,
		},
		"the nodes that a selector matches": {
			steps: []v1alpha1.RolloutStep{poolB(0), rest},
			nodes: []Node{newNode("a"), newNode("b", inPool("b")), newNode("c", inPool("b"))}, want: []string{"b", "c"},
		},
		"some of the nodes that a selector matches": {
			steps: []v1alpha1.RolloutStep{{Name: "first", Nodes: &half, Selector: poolB(0).Selector}, rest},
			nodes: []Node{newNode("a"), newNode("b", inPool("b")), newNode("c", inPool("b")), newNode("d")}, want: []string{"b"},
		},
		"a node that two steps match is in the first of them": {
			steps: []v1alpha1.RolloutStep{first(one), poolB(0), rest},
			nodes: []Node{newNode("a", made(1)), newNode("b", inPool("b"), made(9)), newNode("c", made(1))}, want: []string{"b"},
		},
		"no other node while the first one runs, although another one is older": {
			steps: []v1alpha1.RolloutStep{first(one), rest},
			nodes: []Node{
				newNode("a", made(9)),
				newNode("b", made(1), recorded(record.Disrupted, func(r *record.Record) { r.FinishedAt = ago(1) })),
			},
		},
		"the next node after skipped nodes": {
			steps: []v1alpha1.RolloutStep{first(one), rest},
			nodes: []Node{newNode("a", made(9), labelled(rev)), newNode("b", made(1))}, want: []string{"b"},
		},
		"all nodes in a single step": {
			steps: []v1alpha1.RolloutStep{rest}, nodes: []Node{newNode("a"), newNode("b")}, want: []string{"a", "b"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(inSteps(tt.steps...)), tt.nodes))
			var got []string
			for _, a := range p.Actions {
				got = append(got, a.(Start).Attempt.NodeName)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("nodes that start (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAdvance tests the progress of the rollout: the step, its soak, whether it is stable, and why node z,
// which comes last, waits.
func TestAdvance(t *testing.T) {
	at := stateOf
	soaking := func(seconds int) func(*rolloutState) {
		return func(r *rolloutState) { r.SoakingSince = metav1.Time{Time: ago(seconds)} }
	}
	notReady := func(n *Node) { n.Ready = corev1.ConditionFalse }
	done := recorded(record.Succeeded)
	failed := recorded(record.Failed, attempts(2))
	one := first(intstr.FromInt32(1))
	soaked := one
	soaked.SoakSeconds = 60
	half, soakedTwo := intstr.FromString("50%"), first(intstr.FromInt32(2))
	soakedTwo.SoakSeconds = 60
	due := func(n *Node) { n.On.Record.FinishedAt = ago(3600) }
	closedLater := ownTaint
	closedLater.TimeAdded = &metav1.Time{Time: ago(600)}
	z := newNode("z", made(5))
	tests := map[string]struct {
		change []func(*v1alpha1.NodeJob)
		was    rolloutState
		nodes  []Node
		// want is the step, and the state of z.
		wantStep, wantReason, wantMessage string
		wantUntil                         time.Time
		wantSoak, wantProof               bool
		wantWake                          time.Duration // checked if set
	}{
		"it waits for its step": {
			change:      []func(*v1alpha1.NodeJob){inSteps(one, rest)},
			nodes:       []Node{newNode("a", made(9)), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonWaitingForStep,
			wantMessage: "it is in step rest, and the rollout is in step first",
		},
		"it starts when the step before has passed": {
			change: []func(*v1alpha1.NodeJob){inSteps(one, rest)}, was: at("first"), nodes: []Node{newNode("a", done), z},
			wantStep: "rest", wantReason: v1alpha1.ReasonStarting,
		},
		"it waits for a soak to begin while a node is not Ready": {
			change:      []func(*v1alpha1.NodeJob){inSteps(soaked, rest)},
			was:         at("first"),
			nodes:       []Node{newNode("a", done, notReady), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonWaitingForStep,
			wantMessage: "it is in step rest, and the soak of step first begins when node a is Ready",
		},
		"it waits for a soak to end": {
			change:      []func(*v1alpha1.NodeJob){inSteps(soaked, rest)},
			was:         at("first", soaking(20)),
			nodes:       []Node{newNode("a", done), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonSoaking,
			wantMessage: "it is in step rest, and step first soaks until 2026-03-01T12:00:40Z",
			wantUntil:   now.Add(40 * time.Second),
			wantSoak:    true,
		},
		"a soak that is over does not start again": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(soaked, rest),
				promotedTo("first"),
			},
			was:         at("first", func(r *rolloutState) { r.SoakedAt = metav1.Time{Time: ago(60)} }),
			nodes:       []Node{newNode("a", done, notReady), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonAwaitingPromotion,
			wantMessage: "it is in step rest, and rollout.promoteTo is first",
		},
		"a recorded time in the future does not block it": {
			change:   []func(*v1alpha1.NodeJob){inSteps(rest)},
			nodes:    []Node{newNode("z", recorded(record.Disrupted, func(r *record.Record) { r.FinishedAt = now.AddDate(50, 0, 0) }))},
			wantStep: "rest", wantReason: v1alpha1.ReasonStarting,
		},
		"it waits longer if the clock of another API server was ahead": {
			change: []func(*v1alpha1.NodeJob){inSteps(rest)},
			nodes: []Node{
				newNode("z", recorded(record.Disrupted, func(r *record.Record) { r.RecordedAt = now.Add(2 * time.Second) })),
			},
			wantStep:    "rest",
			wantReason:  v1alpha1.ReasonBackingOff,
			wantMessage: "the next attempt waits after one that failed or was disrupted",
			wantUntil:   now.Add(12 * time.Second),
		},
		"it starts when the soak is over": {
			change: []func(*v1alpha1.NodeJob){inSteps(soaked, rest)}, was: at("first", soaking(60)), nodes: []Node{newNode("a", done), z},
			wantStep: "rest", wantReason: v1alpha1.ReasonStarting,
		},
		"it does not start when a node turned NotReady in the soak": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(soaked, rest),
			},
			was:         at("first", soaking(60)),
			nodes:       []Node{newNode("a", done, notReady), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonMaxFailuresExceeded,
			wantMessage: "the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0",
		},
		"another node takes the place of a node that failed its soak if maxFailures allows it": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(soaked, rest),
				mayFailNodes(1),
			},
			was:        at("first", soaking(60)),
			nodes:      []Node{newNode("a", done, notReady), z},
			wantStep:   "first",
			wantReason: v1alpha1.ReasonStarting,
		},
		"it waits for promotion": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
				promotedTo("first"),
			},
			was:         at("first"),
			nodes:       []Node{newNode("a", done), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonAwaitingPromotion,
			wantMessage: "it is in step rest, and rollout.promoteTo is first",
		},
		"it waits when promoteTo is set to a step before its own": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
				promotedTo("first"),
			},
			was:         at("rest"),
			nodes:       []Node{newNode("a", done), z},
			wantStep:    "rest",
			wantReason:  v1alpha1.ReasonAwaitingPromotion,
			wantMessage: "it is in step rest, and rollout.promoteTo is first",
		},
		"it waits for promotion while its step has nodes that are not done": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
				promotedTo("first"),
			},
			was:         at("rest"),
			nodes:       []Node{newNode("a", done), newNode("b", made(99)), z},
			wantStep:    "rest",
			wantReason:  v1alpha1.ReasonAwaitingPromotion,
			wantMessage: "it is in step rest, and rollout.promoteTo is first",
		},
		"it waits when promoteTo is set to a step that passes now": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, poolB(0), rest),
				promotedTo("b"),
			},
			was:         at("first"),
			nodes:       []Node{newNode("a", done), newNode("b", done, inPool("b")), z},
			wantStep:    "b",
			wantReason:  v1alpha1.ReasonAwaitingPromotion,
			wantMessage: "it is in step rest, and rollout.promoteTo is b",
		},
		"it waits when promoteTo is not the name of a step": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
				promotedTo("gone"),
			},
			was:         at("first"),
			nodes:       []Node{newNode("a", done), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonAwaitingPromotion,
			wantMessage: "it is in step rest, and rollout.promoteTo is first",
		},
		"it starts when promoteTo is set to an earlier step after the revision became stable": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
				promotedTo("first"),
			},
			was:        at("rest", provenSince(60)),
			nodes:      []Node{newNode("a", done), z},
			wantStep:   "rest",
			wantReason: v1alpha1.ReasonStarting,
			wantProof:  true,
		},
		"it waits for the next plan when the revision becomes stable after promoteTo was set to an earlier step": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
				promotedTo("first"),
			},
			was:         at("rest"),
			nodes:       []Node{newNode("a", done), newNode("b", done), z},
			wantStep:    "rest",
			wantReason:  v1alpha1.ReasonAwaitingPromotion,
			wantMessage: "it is in step rest, and rollout.promoteTo is first",
			wantProof:   true,
			wantWake:    time.Second,
		},
		"a Stalled rollout has no soak": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(soakedTwo, rest),
			},
			was:         at("first", soaking(20)),
			nodes:       []Node{newNode("a", done), newNode("b", failed), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonMaxFailuresExceeded,
			wantMessage: "the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0",
		},
		"it starts when the soak is over for the others than a node that turned NotReady": {
			change: []func(*v1alpha1.NodeJob){inSteps(poolB(60), rest), mayFailNodes(1)},
			was:    at("b", soaking(60)),
			nodes: []Node{
				newNode("a", done, inPool("b")),
				newNode("b", done, notReady, inPool("b")),
				z,
			},
			wantStep:   "rest",
			wantReason: v1alpha1.ReasonStarting,
		},
		"it starts when another node has taken the place of a failed one": {
			change: []func(*v1alpha1.NodeJob){inSteps(first(intstr.FromInt32(2)), rest), mayFailNodes(1)},
			was:    at("first"),
			nodes: []Node{
				newNode("a", done),
				newNode("b", failed),
				newNode("c", done),
				z,
			},
			wantStep:   "rest",
			wantReason: v1alpha1.ReasonStarting,
		},
		"it starts when another node has taken the place of one that has not made progress for too long": {
			change: []func(*v1alpha1.NodeJob){inSteps(first(intstr.FromInt32(2)), rest), mayFailNodes(1)},
			was:    at("first"),
			nodes: []Node{
				newNode("a", done),
				newNode("b", recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince = ago(7200) })),
				newNode("c", done),
				z,
			},
			wantStep:   "rest",
			wantReason: v1alpha1.ReasonStarting,
		},
		"it waits for a node that was created when the step started": {
			change: []func(*v1alpha1.NodeJob){inSteps(poolB(0), rest)},
			was:    at("b"),
			nodes: []Node{
				newNode("a", done, inPool("b")),
				newNode("b", made(300), inPool("b")),
				z,
			},
			wantStep:    "b",
			wantReason:  v1alpha1.ReasonWaitingForStep,
			wantMessage: "it is in step rest, and the rollout is in step b",
		},
		"it waits for the soak of a step for which there are no more nodes": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(poolB(0), soaked, rest),
			},
			was:         at("first", soaking(20)),
			nodes:       []Node{newNode("a", done, inPool("b")), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonSoaking,
			wantMessage: "it is in step rest, and step first soaks until 2026-03-01T12:00:40Z",
			wantUntil:   now.Add(40 * time.Second),
			wantSoak:    true,
		},
		"it waits when a step has no nodes": {
			change: []func(*v1alpha1.NodeJob){inSteps(one, poolB(0), rest)}, was: at("first"), nodes: []Node{newNode("a", done), z},
			wantStep: "b", wantReason: v1alpha1.ReasonStepWithoutNodes, wantMessage: "it is in step rest, and no node is in step b",
		},
		"a node that was unreachable before the step does not block it": {
			change: []func(*v1alpha1.NodeJob){inSteps(poolB(0), rest)},
			was:    at("b"),
			nodes: []Node{
				newNode("a", inPool("b"), recorded(record.Succeeded), inPool("b")),
				newNode("b", inPool("b"), func(n *Node) { n.Ready = corev1.ConditionUnknown }),
				z,
			},
			wantStep:   "rest",
			wantReason: v1alpha1.ReasonStarting,
		},
		"a node that became unreachable after a failed attempt counts as failed": {
			change: []func(*v1alpha1.NodeJob){inSteps(poolB(0), rest)},
			was:    at("b"),
			nodes: []Node{
				newNode("a", done, inPool("b")),
				newNode("b", recorded(record.Failed), inPool("b"), func(n *Node) { n.Ready = corev1.ConditionUnknown }),
				z,
			},
			wantStep:    "b",
			wantReason:  v1alpha1.ReasonMaxFailuresExceeded,
			wantMessage: "the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0",
		},
		"a node that became unreachable after a disrupted attempt counts as failed": {
			change: []func(*v1alpha1.NodeJob){inSteps(poolB(0), rest)},
			was:    at("b"),
			nodes: []Node{
				newNode("a", done, inPool("b")),
				newNode("b", recorded(record.Disrupted), inPool("b"), func(n *Node) { n.Ready = corev1.ConditionUnknown }),
				z,
			},
			wantStep:    "b",
			wantReason:  v1alpha1.ReasonWaitingForStep,
			wantMessage: "it is in step rest, and the rollout is in step b",
		},
		"a node that joined after the start of the step does not count as failed": {
			change:      []func(*v1alpha1.NodeJob){inSteps(poolB(0), rest), oneAtOnce},
			was:         at("b"),
			nodes:       []Node{newNode("a", done, inPool("b")), newNode("b", inPool("b"), made(5)), z},
			wantStep:    "rest",
			wantReason:  v1alpha1.ReasonWaitingForSlot,
			wantMessage: "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time",
		},
		"another node takes the place of a failed canary if maxFailures allows it": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
				mayFailNodes(1),
			},
			was:        at("first"),
			nodes:      []Node{newNode("a", failed), z},
			wantStep:   "first",
			wantReason: v1alpha1.ReasonStarting,
		},
		"the rollout is Stalled": {
			change: []func(*v1alpha1.NodeJob){inSteps(one, rest)}, was: at("first"), nodes: []Node{newNode("a", failed), z},
			wantStep: "first", wantReason: v1alpha1.ReasonMaxFailuresExceeded,
			wantMessage: "the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0",
		},
		"a rollout in a step that was removed starts again": {
			change:      []func(*v1alpha1.NodeJob){inSteps(one, rest)},
			was:         at("gone"),
			nodes:       []Node{newNode("a", made(9)), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonWaitingForStep,
			wantMessage: "it is in step rest, and the rollout is in step first",
		},
		"a step with more nodes than the cluster has does not block it": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, v1alpha1.RolloutStep{Name: "second", Nodes: one.Nodes}, rest),
			},
			was:        at("first"),
			nodes:      []Node{newNode("z", done)},
			wantStep:   "rest",
			wantReason: v1alpha1.ReasonDone,
			wantProof:  true,
		},
		"the revision is stable after the last step": {
			change: []func(*v1alpha1.NodeJob){inSteps(one, rest)}, was: at("rest"), nodes: []Node{newNode("a", done), newNode("z", done)},
			wantStep: "rest", wantReason: v1alpha1.ReasonDone, wantProof: true,
		},
		"a node that joins when the revision is stable takes no slot until it is Ready": {
			change: []func(*v1alpha1.NodeJob){inSteps(one, rest), oneAtOnce}, was: at("rest", provenSince(60)),
			nodes:    []Node{newNode("a", made(90)), newNode("b", made(90)), newNode("z", made(5), notReady)},
			wantStep: "rest", wantReason: v1alpha1.ReasonStarting, wantProof: true,
		},
		"a joining node takes no slot while its gate is closed since its creation": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
				oneAtOnce,
				gated(v1alpha1.GateSpec{}),
			},
			was:        at("rest", provenSince(3600)),
			nodes:      []Node{newNode("a", made(9000)), newNode("b", made(9000)), newNode("z", made(900), withTaints(ownTaint))},
			wantStep:   "rest",
			wantReason: v1alpha1.ReasonStarting,
			wantProof:  true,
		},
		"a joining node whose gate was closed later can run workloads and takes a slot": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
				oneAtOnce,
				gated(v1alpha1.GateSpec{}),
			},
			was:         at("rest", provenSince(3600)),
			nodes:       []Node{newNode("a", made(9000)), newNode("b", made(9000)), newNode("z", made(900), withTaints(closedLater))},
			wantStep:    "rest",
			wantReason:  v1alpha1.ReasonWaitingForSlot,
			wantMessage: "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time",
			wantProof:   true,
		},
		"a joining node that is Ready takes a slot": {
			change:      []func(*v1alpha1.NodeJob){inSteps(one, rest), oneAtOnce},
			was:         at("rest", provenSince(60)),
			nodes:       []Node{newNode("a", made(90)), newNode("b", made(90)), z},
			wantStep:    "rest",
			wantReason:  v1alpha1.ReasonWaitingForSlot,
			wantMessage: "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time",
			wantProof:   true,
		},
		"a node that joined long ago, while nothing could start, takes a slot": {
			change:      []func(*v1alpha1.NodeJob){inSteps(one, rest), oneAtOnce},
			was:         at("rest", provenSince(90000)),
			nodes:       []Node{newNode("a", made(99000)), newNode("b", made(99000)), newNode("z", made(80000), notReady)},
			wantStep:    "rest",
			wantReason:  v1alpha1.ReasonWaitingForSlot,
			wantMessage: "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time",
			wantProof:   true,
		},
		"a canary that is due again does not make others wait": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
				periodSeconds(60),
			},
			was:        at("first"),
			nodes:      []Node{newNode("a", done, due), z},
			wantStep:   "rest",
			wantReason: v1alpha1.ReasonStarting,
		},
		"a canary that is due again does not restart the soak": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(soaked, rest),
				periodSeconds(60),
			},
			was:         at("first", soaking(20)),
			nodes:       []Node{newNode("a", done, due), z},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonSoaking,
			wantMessage: "it is in step rest, and step first soaks until 2026-03-01T12:00:40Z",
			wantUntil:   now.Add(40 * time.Second),
			wantSoak:    true,
		},
		"a canary that was disrupted in a rerun does not restart the soak": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(one, rest),
			},
			was:        at("first"),
			nodes:      []Node{newNode("a", recorded(record.Disrupted, func(r *record.Record) { r.Rerun = true }), labelled(rev)), z},
			wantStep:   "rest",
			wantReason: v1alpha1.ReasonStarting,
		},
		"the revision is stable although a node is always due": {
			change: []func(*v1alpha1.NodeJob){
				inSteps(rest),
				periodSeconds(60),
			},
			was:        at("rest"),
			nodes:      []Node{newNode("a", done, due), newNode("z", done, due)},
			wantStep:   "rest",
			wantReason: v1alpha1.ReasonStarting,
			wantProof:  true,
		},
		"nodes that join do not enlarge a step": {
			change: []func(*v1alpha1.NodeJob){inSteps(first(half), rest)}, was: at("first"),
			nodes:    []Node{newNode("a", made(900), done), newNode("b", made(900)), newNode("c", made(9)), newNode("d", made(9)), z},
			wantStep: "rest", wantReason: v1alpha1.ReasonStarting,
		},
		"nodes that join do not restart a soak": {
			change:      []func(*v1alpha1.NodeJob){inSteps(soakedTwo, rest)},
			was:         at("first", soaking(20)),
			nodes:       []Node{newNode("a", made(900), done), newNode("z", made(9))},
			wantStep:    "first",
			wantReason:  v1alpha1.ReasonSoaking,
			wantMessage: "it is in step rest, and step first soaks until 2026-03-01T12:00:40Z",
			wantUntil:   now.Add(40 * time.Second),
			wantSoak:    true,
		},
		"a node that joined in the soak and has never been Ready does not fail": {
			change:      []func(*v1alpha1.NodeJob){inSteps(poolB(60), rest)},
			was:         at("b", soaking(20)),
			nodes:       []Node{newNode("a", made(900), done, inPool("b")), newNode("b", made(9), done, notReady, inPool("b")), z},
			wantStep:    "b",
			wantReason:  v1alpha1.ReasonSoaking,
			wantMessage: "it is in step rest, and step b soaks until 2026-03-01T12:00:40Z",
			wantUntil:   now.Add(40 * time.Second),
			wantSoak:    true,
		},
		"a node that is only selected since the soak fails": {
			change:      []func(*v1alpha1.NodeJob){inSteps(one, rest), oneAtOnce},
			was:         at("rest", provenSince(60)),
			nodes:       []Node{newNode("a", made(90)), newNode("z", made(90))},
			wantStep:    "rest",
			wantReason:  v1alpha1.ReasonWaitingForSlot,
			wantMessage: "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time",
			wantProof:   true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(tt.change...)
			job.Status.Revision = rev
			tt.was.write(&job.Status)
			p := Next(see(job, tt.nodes))
			r := p.Status.Rollout
			if r.Step != tt.wantStep || !r.SoakingSince.IsZero() != tt.wantSoak || !r.StableAt.IsZero() != tt.wantProof {
				t.Errorf("step %q, soaking since %v, stable at %v", r.Step, r.SoakingSince, r.StableAt)
			}
			got := p.Nodes[len(p.Nodes)-1]
			if got.Reason != tt.wantReason || got.Message != tt.wantMessage || !got.Until.Equal(tt.wantUntil) {
				t.Errorf(
					"z is %s: %s: %q until %v, want %s: %q until %v",
					got.State,
					got.Reason,
					got.Message,
					got.Until,
					tt.wantReason,
					tt.wantMessage,
					tt.wantUntil,
				)
			}
			if tt.wantWake != 0 && !p.WakeAt.Equal(now.Add(tt.wantWake)) {
				t.Errorf("wakes at %v, want in %v", p.WakeAt, tt.wantWake)
			}
			if !tt.wantUntil.IsZero() && !p.WakeAt.Equal(tt.wantUntil) {
				t.Errorf("wakes at %v, want %v", p.WakeAt, tt.wantUntil)
			}
		})
	}
}

func mayFailNodes(n int32) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxFailures = new(intstr.FromInt32(n)) }
}

func promotedTo(step string) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Spec.Rollout.PromoteTo = step }
}

func periodSeconds(seconds int32) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Spec.Rerun.PeriodSeconds = seconds }
}

func oneAtOnce(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromInt32(1)) }

func provenSince(seconds int) func(*rolloutState) {
	return func(r *rolloutState) { r.StableAt = metav1.Time{Time: ago(seconds)} }
}
