// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"slices"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/explore"
)

// What can happen in a small world.

type stepper struct {
	*explored
	faults int
	all    []explore.Step[explored]
}

func (w *explored) steps(faults int) []explore.Step[explored] {
	s := &stepper{explored: w, faults: faults}
	s.manages()
	s.controls()
	for i := range w.tools {
		s.tool(i)
	}
	for _, e := range s.inFlight {
		s.add(0, func(w *explored) { w.continueEviction(e, false) }, "the API server deletes %s, which %s has evicted", e.pod, e.by)
		s.add(1, func(w *explored) { w.continueEviction(e, true) }, "the API server crashes before it deletes %s", e.pod)
	}
	s.job()
	for _, name := range sorted(w.nodes) {
		s.node(name)
	}
	if len(w.nodes) < w.size {
		s.add(0, func(w *explored) { w.addNode(0) }, "a node joins")
	}
	s.users()
	if wake := w.wake; w.manager != nil && w.idle && wake.After(w.now) {
		s.add(0, func(w *explored) { w.now = wake }, "%s pass", wake.Sub(w.now))
		s.all[len(s.all)-1].Last = true
	}
	return s.all
}

func (s *stepper) add(faults int, do func(*explored), format string, args ...any) {
	if faults > s.faults {
		return
	}
	s.all = append(s.all, explore.Step[explored]{Name: fmt.Sprintf(format, args...), Faults: faults, Do: func(w *explored) {
		w.throws.Show()
		do(w)
		w.throws.Show()
		w.check()
	}})
}

// manages are passes of the manager: a whole one, and with a fault those in which each random decision of the simulation is the rare one.
func (s *stepper) manages() {
	if s.manager == nil {
		s.add(0, func(w *explored) { w.throws.Show(); w.wakeUp() }, "a manager starts")
		return
	}
	s.add(0, func(w *explored) { w.plan(true) }, "the manager plans")
	if s.faults == 0 {
		return
	}
	s.add(1, func(w *explored) { w.plan(false) }, "the manager plans on what it saw last")
	s.add(1, (*explored).crash, "the manager crashes")
	trial := explore.Clone(copies, s.explored)
	trial.throws.Show()
	trial.plan(true)
	for i := range trial.throws.Count {
		s.add(1, func(w *explored) { w.throws.ShowOne(i, 0); w.plan(true) }, "the manager plans, and decision %d fails", i)
		s.add(1, func(w *explored) { w.throws.ShowOne(i, 5); w.plan(true) }, "the manager plans, and crashes at decision %d", i)
	}
}

// plan is a pass, a moment after what it has seen: the rules tell times apart.
func (w *explored) plan(live bool) {
	w.now = w.now.Add(time.Millisecond)
	if live {
		w.catchUp()
		w.askAll(CheckEvery)
	}
	w.pass()
}

// controls are the steps of kubelets, of the disruption controller, and of the garbage collector.
func (s *stepper) controls() {
	s.add(0, func(w *explored) {
		w.calm = true
		w.controllers()
		w.calm = false
	}, "kubelets and controllers catch up")
	for _, name := range sorted(s.pods) {
		s.add(1, func(w *explored) { w.kubelet(name) }, "only the kubelet of %s is in time", name)
	}
}

func (s *stepper) tool(i int) {
	t := s.tools[i]
	act := func(throws ...int) func(*explored) {
		return func(w *explored) { w.throws.Show(throws...); w.toolStep(w.tools[i]) }
	}
	switch {
	case t.phase == idle && s.begun < s.world.begin:
		for n, name := range sorted(s.nodes) {
			s.add(0, func(w *explored) { w.begun++; act(n)(w) }, "%s begins to drain %s", t.name, name)
		}
	case t.phase == cordoned:
		s.add(0, act(), "%s lists the pods of %s", t.name, t.node)
	case t.phase == asking:
		s.add(0, act(), "%s evicts the pods of %s", t.name, t.node)
		s.add(1, act(-1, 0), "%s evicts the pods of %s, and the API server has not deleted them yet", t.name, t.node)
		s.add(1, act(0), "%s gives up its drain of %s", t.name, t.node)
	case t.phase == working && t.karpenter:
		s.add(0, act(-1, -1, 0), "%s is done with %s", t.name, t.node)
		s.add(1, func(w *explored) { w.deleteNode(t.node) }, "%s deletes %s", t.name, t.node)
	case t.phase == working:
		s.add(0, act(-1, 0), "%s is done with %s", t.name, t.node)
		s.add(1, act(0), "%s breaks %s", t.name, t.node)
	}
}

func (s *stepper) job() {
	if s.manager == nil {
		return
	}
	work := func(throws ...int) func(*explored) {
		return func(w *explored) { w.throws.Show(throws...); w.jobStep(w.jobs[0]) }
	}
	if len(s.jobs[0].work) > 0 {
		s.add(0, work(-1, -1, -1, 0), "the NodeJob continues")
		s.add(1, work(-1, -1, 0), "the NodeJob continues, and its node breaks")
		return
	}
	s.add(0, work(), "the NodeJob reports")
	for n, name := range sorted(s.nodes) {
		if s.begun < s.world.begin {
			s.add(0, func(w *explored) { w.begun++; work(n, 0, 0)(w) }, "the NodeJob wants to cordon %s", name)
			s.add(0, func(w *explored) { w.begun++; work(n, 0, -1)(w) }, "the NodeJob wants to reboot %s", name)
		}
	}
}

func (s *stepper) node(name string) {
	if s.nodes[name].Ready {
		s.add(1, func(w *explored) { w.setReady(name, false) }, "%s is not Ready", name)
		s.add(1, func(w *explored) { w.throws.Show(0); w.setReady(name, false) }, "%s is unreachable", name)
	} else {
		s.add(0, func(w *explored) { w.setReady(name, true) }, "%s is Ready again", name)
	}
	s.add(1, func(w *explored) { w.deleteNode(name) }, "%s is deleted", name)
	if s.sick[name] {
		s.add(0, func(w *explored) { delete(w.sick, name) }, "the seat of %s can be ready again", name)
	} else {
		s.add(1, func(w *explored) { w.sick[name] = true }, "no seat becomes ready on %s", name)
	}
}

func (s *stepper) users() {
	switch {
	case s.budgets["freeze"] != nil:
		s.add(0, func(w *explored) { w.deleteBudget("freeze") }, "a user ends the freeze")
	case s.frozen == 0:
		s.add(1, func(w *explored) { w.frozen++; w.freeze() }, "a user freezes all nodes")
	}
	if s.revised > 0 {
		return
	}
	for _, limit := range []simLimit{{number: 2}, {number: 1, zone: true}, {percent: 25}} {
		s.add(1, func(w *explored) {
			w.revised++
			b := *w.budgets["b0"]
			b.limits = []simLimit{limit}
			w.setBudget("b0", &b)
		}, "a user changes the limit to %+v", limit)
	}
	s.add(1, func(w *explored) { w.revised++; w.deleteBudget("b0") }, "a user deletes the budget")
	if slices.ContainsFunc(s.budgetObjects(), func(b *v1alpha1.NodeDisruptionBudget) bool { return len(b.Spec.Requirements) > 0 }) {
		s.add(1, func(w *explored) { w.requirement = v1alpha1.RequirementNotMet }, "the requirement is not met")
		s.add(0, func(w *explored) { w.requirement = v1alpha1.RequirementMet }, "the requirement is met")
	}
}
