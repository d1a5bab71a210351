// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/fakeapi"
)

// together has a NodeJob that drains and reboots, a NodeGuard and a budget of one node on the same nodes, of which a tool drains one.
var together = scenario{nodes: 3, fails: failsAt("n2 check", 1), play: func(w *sweep) {
	w.budget("all", func(*v1alpha1.NodeDisruptionBudgetSpec) {})
	w.guard(func(g *v1alpha1.NodeGuardSpec) {
		g.Release.Check = &v1alpha1.ReleaseCheck{Script: "may", PeriodSeconds: new(int32(20))}
	})
	w.apply("job", func(s *v1alpha1.NodeJobSpec) {
		s.Maintenance = v1alpha1.MaintenanceSpec{
			Drain:  drains,
			Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, TimeoutSeconds: new(int32(1800))},
		}
		s.Task.TimeoutSeconds = new(int32(1800))
	})
	w.drainAll("n1")
	w.awaitComplete("job")
}}

// others are what users, nodes and tools do for some minutes, beginning with a change. It does not change how the scenario ends.
var others = map[fakeapi.Fault]func(w *sweep){
	"a freeze begins with change": func(w *sweep) {
		w.setBudget("freeze", &v1alpha1.NodeDisruptionBudgetSpec{
			Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(0))}}, JoiningNodes: v1alpha1.JoiningNodesIncluded,
		})
		time.Sleep(5 * time.Minute)
		w.do(w.api.Remove(fakeapi.Get[*v1alpha1.NodeDisruptionBudget](w.api, "", "freeze")))
	},
	"the limit is 2 from change": func(w *sweep) {
		limit := func(n int32) {
			if b := fakeapi.Get[*v1alpha1.NodeDisruptionBudget](w.api, "", "all"); b != nil {
				fakeapi.Edit(w.api, b, func(b *v1alpha1.NodeDisruptionBudget) {
					b.Spec.Limits[0].MaxUnavailable = new(intstr.FromInt32(n))
				})
			}
		}
		limit(2)
		time.Sleep(5 * time.Minute)
		limit(1)
	},
	"n2 is not Ready from change": func(w *sweep) {
		w.kubelets.SetReady(w.node("n2"), corev1.ConditionFalse)
		time.Sleep(3 * time.Minute)
		w.kubelets.SetReady(w.node("n2"), corev1.ConditionTrue)
	},
	"a tool drains n3 from change": func(w *sweep) {
		if node := w.node("n3"); !node.Spec.Unschedulable {
			w.drain(node, time.Time{})
		}
	},
	"the NodeJob is suspended from change": func(w *sweep) {
		suspend := func(now bool) { w.editJob("job", func(j *v1alpha1.NodeJob) { j.Spec.Suspend = now }) }
		suspend(true)
		time.Sleep(5 * time.Minute)
		suspend(false)
	},
}

// pairsPerStride is of how many pairs one is played for each in -stride.
const pairsPerStride = 4000

// TestTogether plays a NodeJob, a NodeGuard and a budget on the same nodes, with what others do at each change in turn, and with a second
// fault at each write of the manager. The rules of the histories of the manager are checked after each change, and the final state must be
// that without faults. The planners themselves are explored separately, because they share nothing but the objects of the cluster.
//
// make test plays one of 40 of what others do, and one of 160,000 pairs; make sweep all of the first, and one of 4,000 pairs.
func TestTogether(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	calm := playSweep(t, together, nil, "")
	if calm.broken != "" {
		t.Fatalf("without faults: %s", calm.broken)
	}
	writes := writeFaults(calm)
	var chosen [][]meets
	for what := range others {
		for _, other := range changesMeet(calm, what) {
			switch {
			case *onlyFault != "":
				if other.String() == *onlyFault {
					chosen = append(chosen, []meets{other})
				}
				continue
			case roll(every(), other.String()) == 0:
				chosen = append(chosen, []meets{other})
			}
			for _, write := range writes {
				if roll(every()*pairsPerStride, other.String()+write.String()) == 0 {
					chosen = append(chosen, []meets{other, write})
				}
			}
		}
	}
	slices.SortFunc(chosen, func(a, b []meets) int { return cmp.Compare(len(a), len(b)) })
	t.Logf("%d writes, %d changes; %d histories are played", len(calm.writes), calm.ended-calm.began, len(chosen))
	playFaults(t, together, chosen, calm)
}
