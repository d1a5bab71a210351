// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/testing/explore"
)

// TestExplore visits all states of small worlds, with the rules of the random histories after each step. From each state, the faults end,
// and the world must come to rest as a history must at its end.
//
// To explore one further: make explore WORLDS='^TestExplore/^limit$$' FAULTS=2
func TestExplore(t *testing.T) {
	for i := range smallWorlds {
		world := &smallWorlds[i]
		explore.Run(t, world.name, func(nodes int) (*explored, explore.Model[explored]) {
			return newExplored(world, max(nodes, world.nodes)), explore.Model[explored]{
				Steps:  (*explored).steps,
				Clone:  func(w *explored) *explored { return explore.Clone(copies, w) },
				Canon:  (*explored).canon,
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
	// tool drains nodes, beside the NodeJob. So many drains and runs begin in a history.
	tool  tool
	begin int
	// budgets are b0, b1 and so on.
	budgets []simBudget
}

var smallWorlds = []smallWorld{
	{"limit", 2, kubectl, 1, []simBudget{{limits: []simLimit{{number: 1}}}}},
	{"two_drains", 2, kubectl, 2, []simBudget{{limits: []simLimit{{number: 1}}}}},
	{"zones", 3, kubectl, 1, []simBudget{{limits: []simLimit{{number: 1, zone: true}}}}},
	{"requirement", 2, karpenter, 1, []simBudget{{limits: []simLimit{{number: 1}}, requires: true}}},
	{"two_budgets", 2, karpenter, 1, []simBudget{{limits: []simLimit{{number: 1}}}, {pool: "x", limits: []simLimit{{percent: 50}}}}},
}

var kubectl, karpenter = tool{name: "kubectl"}, tool{name: "Karpenter", karpenter: true}

// explored is a state of a small world.
type explored struct {
	history
	world  *smallWorld
	throws *explore.Dice
	// begun counts the drains and NodeJobs that have begun, and frozen and revised what the user has done.
	begun, frozen, revised int
	size                   int
}

var copies = explore.NewCloner(
	(*smallWorld)(nil),
	(*explore.Dice)(nil),
	(*rand.Rand)(nil),
	(*simBudget)(nil),
	Node{},
	simPod{},
	simFloor{},
	map[string]int(nil),
	map[types.UID]hold.Stance(nil),
	map[PaceKey]Paced(nil),
	map[types.UID]Counted(nil),
	Fresh{},
	report{},
	Answers{},
	[]Seat(nil),
)

// forms leaves out what only stories show, and what only grows.
var forms = explore.Canon{
	Skip: []string{
		"history.lines",
		"history.serial",
		"history.changes",
		"history.ownChanges",
		"history.passes",
		"history.answersChanges",
		"oracle.lines",
		"oracle.met",
		"paces.passed",
		"oracle.left",
		"manager.changes",
		"manager.ownChanges",
		"explored.world",
		"explored.throws",
		"Message",
		"Generation",
		"ObservedGeneration",
	},
	IDs: []string{"u", "nu", "node-nu", "seat-node-nu"},
	Old: 200 * time.Second, Grain: time.Second,
}

func newExplored(world *smallWorld, nodes int) *explored {
	throws, rng := explore.NewDice()
	w := &explored{history: *newHistory(rng, true), world: world, throws: throws, size: nodes}
	for i := range nodes {
		throws.Show(i%2, 0)
		w.addNode(10 * time.Hour)
	}
	for i := range world.budgets {
		b := world.budgets[i]
		w.setBudget(fmt.Sprint("b", i), &b)
	}
	throws.Show()
	w.tools = []*tool{new(world.tool)}
	w.jobs = []*job{{name: "job-1"}}
	w.manager = w.newManager()
	w.catchUp()
	w.synced, w.startedAt = w.now, w.now
	w.seatAll()
	return w
}

func (w *explored) told() []string {
	lines := w.lines
	w.lines = nil
	return lines
}

func (w *explored) canon() []byte {
	view := explore.View{Now: w.now, Seen: w.synced, Live: map[string]bool{}}
	see := func(c *cluster) {
		for name, n := range c.nodes {
			view.Live[name], view.Live[string(n.UID)] = true, true
		}
		for name, p := range c.pods {
			view.Live[name], view.Live[string(p.UID)] = true, true
		}
	}
	if see(&w.cluster); w.manager != nil {
		see(&w.manager.cache)
	}
	return forms.Bytes(view, w, w.manager == nil || w.manager.changes == w.changes)
}
