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

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestAnotherEffectOfTheGate tests what happens to the taint on a node when spec.gate.effect has changed.
func TestAnotherEffectOfTheGate(t *testing.T) {
	const changed = "GateClosed n, taints [example.com/prefers:PreferNoSchedule ns.everynode.dev/job=everynode:%s]"
	const noExecute, noSchedule = v1alpha1.GateNoExecute, v1alpha1.GateNoSchedule
	added, stops := ownTaint, taint("ns.everynode.dev/job", v1alpha1.GateValue, corev1.TaintEffectNoExecute)
	added.TimeAdded = new(metav1.NewTime(ago(600)))
	otherGate := taint("other.everynode.dev/job", v1alpha1.GateValue, corev1.TaintEffectNoExecute)
	closed := newNode("n", made(7200), withTaints(prefers, ownTaint))
	for name, tt := range map[string]struct {
		effect v1alpha1.GateEffect
		node   Node
		in     func(*Input)
		want   []string
		// wantTime is the time of the taint; zero if it has none.
		wantTime time.Time
	}{
		"a taint since the creation of the node has no time": {effect: noExecute, node: closed, want: []string{fmt.Sprintf(changed, noExecute)}},
		"a later taint has its new time":                     {effect: noExecute, node: newNode("n", made(7200), withTaints(prefers, added)), want: []string{fmt.Sprintf(changed, noExecute)}, wantTime: now},
		"the other direction":                                {effect: noSchedule, node: newNode("n", made(7200), withTaints(prefers, stops)), want: []string{fmt.Sprintf(changed, noSchedule)}},
		"another gate has the effect": {effect: noExecute, node: newNode("n", made(7200), withTaints(otherGate, ownTaint)),
			want: []string{"GateClosed n, taints [other.everynode.dev/job=everynode:NoExecute ns.everynode.dev/job=everynode:NoExecute]"}},
		"it has the effect":            {effect: noSchedule, node: closed},
		"the namespace is not allowed": {effect: noExecute, node: closed, in: refuseNamespace},
		"the manager would end":        {effect: noExecute, node: closed, in: func(in *Input) { in.OwnNode = "n" }},
		"the task of a node that does not match any more": {effect: noSchedule, node: newNode("n", inPool("b"), withTaints(prefers, stops)),
			in: func(in *Input) { in.Pods = []Pod{newPod(in.Nodes[0])} }},
	} {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(inPoolA, onHold, gated(v1alpha1.GateSpec{Effect: tt.effect})), []Node{tt.node})
			if tt.in != nil {
				tt.in(&in)
			}
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Fatalf("actions (-want +got):\n%s", diff)
			}
			if len(tt.want) == 0 {
				return
			}
			taints := p.Actions[0].(PatchNode).Taints.All
			if got := taints[len(taints)-1].TimeAdded; !tt.wantTime.Equal(ptrTime(got)) {
				t.Errorf("the taint has the time %v, want %v", got, tt.wantTime)
			}
		})
	}
}

func ptrTime(at *metav1.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.Time
}

// A plan wakes when an excluded node no longer counts as joining, if it has a gate that is opened then.
func TestWakesWhenANodeIsNoLongerJoining(t *testing.T) {
	gate := gated(v1alpha1.GateSpec{})
	for name, tt := range map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node func(*Node)
		want time.Time
	}{
		"an excluded node":           {gate, func(*Node) {}, ago(5).Add(joiningFor)},
		"a node that is done":        {gate, labelled(rev), time.Time{}},
		"a NodeJob without a gate":   {func(*v1alpha1.NodeJob) {}, func(*Node) {}, time.Time{}},
		"a node that does not match": {gate, inPool("b"), time.Time{}},
	} {
		if p := Next(see(newJob(inPoolA, tt.job), []Node{newNode("n", made(5), withTaints(busy), tt.node)})); !p.WakeAt.Equal(tt.want) {
			t.Errorf("%s: wakes at %v, want %v", name, p.WakeAt, tt.want)
		}
	}
}

func TestGateConditionWithoutAStatus(t *testing.T) {
	g := &gate{job: &job{policy: policy{in: Input{GateWarning: "there is none: apply it"}}}}
	if c := g.gateCondition(nil); c.Status != metav1.ConditionFalse || c.Message != g.in.GateWarning {
		t.Errorf("%+v, want False with the warning", c)
	}
}
