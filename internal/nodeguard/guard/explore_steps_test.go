// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"

	"github.com/everynode/everynode/internal/kube"
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
	for _, guard := range sorted(w.guards) {
		s.manages(guard)
	}
	s.add(0, (*explored).controls, "kubelets and controllers catch up")
	for i := range w.tools[:w.world.drains] {
		s.tool(i)
	}
	for i := range w.size {
		if name := fmt.Sprint("n", i); w.nodes[name].Name != "" {
			s.node(name)
		} else {
			s.add(0, func(w *explored) { w.join(name) }, "%s joins", name)
		}
	}
	s.companions()
	s.users()
	if w.wake.After(w.now) {
		s.add(0, func(w *explored) { w.now = w.wake }, "%s pass", w.wake.Sub(w.now))
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

// manages are passes for a NodeGuard: a whole one, and with a fault those in which each random decision of the simulation is the rare one.
func (s *stepper) manages(guard string) {
	s.add(0, func(w *explored) { w.plan(guard) }, "the manager plans %s", guard)
	if s.faults == 0 {
		return
	}
	s.add(1, func(w *explored) { w.pass(guard) }, "the manager plans %s on what it saw last", guard)
	for kind, what := range []string{"nodes", "pods", "budgets", "NodeGuards", "targets", "seats"} {
		s.add(1, func(w *explored) {
			w.throws.Show(kind)
			w.catchUpWith()
			w.pass(guard)
		}, "the manager plans %s when it has seen only the new %s", guard, what)
	}
	trial := explore.Clone(copies, s.explored)
	trial.throws.Show()
	trial.plan(guard)
	for i := range trial.throws.Count {
		s.add(1, func(w *explored) { w.throws.ShowOne(i, 0); w.plan(guard) }, "the manager plans %s, and decision %d fails", guard, i)
		s.add(1, func(w *explored) { w.throws.ShowOne(i, 6); w.plan(guard) }, "the manager plans %s, and crashes at decision %d", guard, i)
	}
}

func (s *stepper) tool(i int) {
	t := s.tools[i]
	act := func(throws ...int) func(*explored) {
		return func(w *explored) { w.throws.Show(throws...); w.toolStep(w.tools[i]) }
	}
	switch {
	case t.phase == idle && s.begun < s.world.drains:
		for n, name := range sorted(s.nodes) {
			s.add(0, func(w *explored) { w.begun++; act(n)(w) }, "%s begins to drain %s", t.name, name)
		}
	case t.phase == work_:
		s.add(0, act(-1, 0), "%s is done with %s", t.name, t.node)
		s.add(1, act(-1, -1), "%s breaks %s", t.name, t.node)
		s.add(1, func(w *explored) { delete(w.nodes, t.node) }, "%s removes %s", t.name, t.node)
	case t.phase == cordon:
		s.add(0, act(), "%s cordons %s", t.name, t.node)
		s.add(1, act(0), "%s taints %s", t.name, t.node)
	case t.phase != idle:
		s.add(0, act(0), "%s continues with %s", t.name, t.node)
	}
}

func (s *stepper) node(name string) {
	node := s.nodes[name]
	changes := func(change func(*kube.Node)) func(*explored) {
		return func(w *explored) {
			n := w.nodes[name]
			change(&n)
			w.setNode(n)
		}
	}
	if node.Ready {
		s.add(1, changes(func(n *kube.Node) { n.Ready = false }), "%s is not Ready", name)
	} else {
		s.add(0, changes(func(n *kube.Node) { n.Ready = true }), "%s is Ready again", name)
	}
	s.add(1, func(w *explored) { delete(w.nodes, name) }, "%s is deleted", name)
	s.add(1, func(w *explored) { delete(w.nodes, name); w.join(name) }, "%s is created again", name)
	if node.Approved == "" && requests(&node) {
		s.add(0, changes(func(n *kube.Node) { n.Approved = "ns/g1,ns/g2,ns/g3" }), "a user approves the release of %s", name)
		s.add(1, changes(func(n *kube.Node) { n.BreakGlass = "3 a.m." }), "a user breaks the glass of %s", name)
	}
	if requests(&node) {
		s.add(1, changes(func(n *kube.Node) { n.Unschedulable, n.Taints = false, nil }), "a user uncordons %s", name)
	}
	switch {
	case s.world.guards[0].Check == nil:
	case s.gate[name]:
		s.add(0, func(w *explored) { w.gate[name] = false }, "the check of %s fails", name)
	default:
		s.add(0, func(w *explored) { w.gate[name] = true }, "the check of %s succeeds again", name)
	}
	s.add(1, func(w *explored) { w.unready["a"+name] = true }, "the pod of the DaemonSet on %s is not ready", name)
}

func (s *stepper) companions() {
	for _, name := range sorted(s.pods) {
		if p := s.pods[name]; p.role == "companion" && !p.Terminating && !p.ended() {
			s.add(1, func(w *explored) {
				p := w.pods[name]
				p.Phase, p.Ready = "Failed", false
				w.pods[name] = p
			}, "the kubelet evicts the companion of %s", p.Node)
		}
	}
}

func (s *stepper) users() {
	if s.revised == 0 {
		s.add(1, func(w *explored) {
			w.revised++
			g := w.guards["g1"].DeepCopy()
			g.Labels = map[string]string{"revision": "r1"}
			g.Generation++
			g.ResourceVersion = w.uid()
			w.guards["g1"] = g
		}, "a user changes g1")
		s.add(1, func(w *explored) { w.revised++; delete(w.guards, "g1") }, "a user deletes g1")
	}
	if s.world.budget && !s.disruption.frozen {
		s.add(1, func(w *explored) { w.disruption.frozen = true }, "a user freezes all nodes")
	} else if s.world.budget {
		s.add(0, func(w *explored) { w.disruption.frozen = false }, "a user ends the freeze")
	}
}
