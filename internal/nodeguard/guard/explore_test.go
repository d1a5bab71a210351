// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/testing/explore"
)

// TestExplore visits all states of small worlds, with the rules of the random histories after each step. From each state, the faults end,
// and the world must come to rest as a history must at its end.
//
// To explore one further: make explore WORLDS='^TestExplore/^check$$' FAULTS=2
func TestExplore(t *testing.T) {
	for i := range smallWorlds {
		world := &smallWorlds[i]
		explore.Run(t, world.name, func(nodes int) (*explored, explore.Model[explored]) {
			w := newExplored(world, max(nodes, world.nodes))
			forms := canonOf(w)
			return w, explore.Model[explored]{
				Steps:  (*explored).steps,
				Clone:  func(w *explored) *explored { return explore.Clone(copies, w) },
				Canon:  func(w *explored) []byte { return forms.Bytes(w.names(), w) },
				Broken: func(w *explored) string { return w.broken },
				Settle: func(w *explored) string {
					w.throws.Show()
					w.settle()
					return w.broken
				},
				Told: (*explored).told,
			}
		})
	}
}

// smallWorld is a small cluster whose histories are explored.
type smallWorld struct {
	name  string
	nodes int
	// drains is how many drains begin in a history.
	drains int
	// guards are the releases of g1, g2 and so on.
	guards []v1alpha1.ReleaseSpec
	// budget is true with a NodeDisruptionBudget that allows one node to be unavailable.
	budget bool
}

var (
	whenReady    = v1alpha1.ReleaseSpec{}
	whenApproved = v1alpha1.ReleaseSpec{Approval: v1alpha1.ApprovalRequired}
	whenChecked  = v1alpha1.ReleaseSpec{
		Check: &v1alpha1.ReleaseCheck{Script: "true", PeriodSeconds: new(int32(20))},
	}
	withDeadline = v1alpha1.ReleaseSpec{
		Approval: v1alpha1.ApprovalRequired, DeadlineSeconds: new(int32(60)), OnDeadline: v1alpha1.OnDeadlineRelease,
	}
)

var smallWorlds = []smallWorld{
	{name: "check", nodes: 2, drains: 1, guards: []v1alpha1.ReleaseSpec{whenChecked}},
	{name: "approval", nodes: 2, drains: 1, guards: []v1alpha1.ReleaseSpec{whenApproved}},
	{name: "deadline", nodes: 2, drains: 1, guards: []v1alpha1.ReleaseSpec{withDeadline}},
	{name: "two_guards", nodes: 1, drains: 1, guards: []v1alpha1.ReleaseSpec{whenReady, whenApproved}},
	{name: "budget", nodes: 2, drains: 1, guards: []v1alpha1.ReleaseSpec{whenReady}, budget: true},
}

// explored is a state of a small world.
type explored struct {
	history
	world  *smallWorld
	throws *explore.Dice
	// begun counts the drains that have begun, and revised what the user has changed.
	begun, revised int
	size           int
}

var copies = explore.NewCloner(
	(*smallWorld)(nil),
	(*explore.Dice)(nil),
	(*rand.Rand)(nil),
	(*v1alpha1.NodeGuard)(nil),
	kube.Node{},
	simPod{},
	simBudget{},
	(*hold.Why)(nil),
	map[string]int(nil),
)

// canonOf leaves out what only stories show, and what only grows.
func canonOf(w *explored) *explore.Canon {
	c := &explore.Canon{
		Skip: []string{
			"history.lines", "history.serial", "history.names", "history.decisions", "oracle.lines", "oracle.met", "oracle.happened",
			"explored.world", "explored.throws", "Message", "Generation", "ObservedGeneration",
		},
		IDs: []string{"u"},
		Old: 200 * time.Second, Grain: time.Second,
	}
	for _, g := range w.guards {
		c.IDs = append(c.IDs, "p"+string(g.UID)+"-u")
	}
	return c
}

func newExplored(world *smallWorld, nodes int) *explored {
	throws, rng := explore.NewDice()
	w := &explored{history: *newHistory(rng, true), world: world, throws: throws, size: nodes}
	w.cluster, w.prompt = newCluster(), true
	for i := range nodes {
		w.join(fmt.Sprint("n", i))
	}
	for i := range world.guards {
		g := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprint("g", i+1), UID: types.UID(w.uid()), ResourceVersion: w.uid(), Generation: 1,
			Labels: map[string]string{"revision": "r0"},
		}}
		g.Spec.Target.DaemonSet, g.Spec.Release = "a", world.guards[i]
		w.guards[g.Name] = g
	}
	if world.budget {
		w.throws.Show(0, 0)
		w.addDisruptionBudget()
	}
	w.throws.Show()
	w.tools = []*tool{{name: "tool-1"}, {name: "tool-2"}}
	w.catchUp()
	for range 4 {
		for _, name := range sorted(w.guards) {
			w.plan(name)
		}
		w.controls()
	}
	return w
}

// join adds a node whose check succeeds, and whose clock is right.
func (w *explored) join(name string) {
	w.throws.Show(0, 0)
	w.addNode(name)
	w.throws.Show()
}

// plan is a pass that sees everything.
func (w *explored) plan(guard string) {
	w.wake = time.Time{}
	w.catchUp()
	w.pass(guard)
}

// controls are the steps of all kubelets and controllers.
func (w *explored) controls() {
	w.calm = true
	w.kubelets()
	w.calm = false
}

func (w *explored) told() []string {
	lines := w.lines
	w.lines = nil
	return lines
}

func (w *explored) names() explore.View {
	view := explore.View{Now: w.now, Live: map[string]bool{}, Alias: map[string]string{}}
	for _, c := range []*cluster{&w.cluster, &w.cache} {
		for _, n := range c.nodes {
			view.Live[string(n.UID)] = true
		}
		for name, p := range c.pods {
			view.Live[string(p.UID)], view.Alias[name] = true, p.guard+"."+p.role+"."+p.Node+"/"+string(p.UID)
		}
	}
	return view
}
