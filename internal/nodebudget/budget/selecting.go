// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Selecting is a budget that selects a node and has not expired.
type Selecting struct {
	Budget *v1alpha1.NodeDisruptionBudget
	// Unlimited is true if the budget does not limit the node although it selects it: it only reports, no seat can run there, or the
	// node joins. ExemptUntil is when the budget begins to limit a node that joins; zero for other nodes.
	Unlimited   bool
	ExemptUntil time.Time
	// Closed is why the spec allows no disruption now; nil if it allows one. The pace is not included, because it depends on seats.
	Closed *Closure
}

// SelectingNode returns the budgets that select a node, in the order of the input.
func SelectingNode(budgets []*v1alpha1.NodeDisruptionBudget, node *Node, now time.Time) []Selecting {
	var all []Selecting
	answers := ToldAnswers(budgets, now)
	for _, b := range budgets {
		r := readRule(b, answers[b.Name], now)
		if r.expired || !r.selects(node) {
			continue
		}
		s := Selecting{Budget: b, Unlimited: !r.enforced() || !canHaveSeat(node), Closed: r.closed}
		if !s.Unlimited && r.exempts(node, JoiningFor, now) {
			s.Unlimited, s.ExemptUntil = true, node.Created.Add(JoiningFor)
		}
		all = append(all, s)
	}
	return all
}

// Room returns how many of the nodes with these labels a budget allows to be unavailable at the same time; -1 if it has no limits. selects
// is true if it has an effect on any of them.
func Room(b *v1alpha1.NodeDisruptionBudget, nodes []map[string]string, now time.Time) (room int, selects bool) {
	r := readRule(b, Answers{}, now)
	var selected []map[string]string
	for _, node := range nodes {
		if r.enforced() && r.selector.Matches(labels.Set(node)) {
			selected = append(selected, node)
		}
	}
	room = -1
	for i := range b.Spec.Limits {
		l, counts, sum := &b.Spec.Limits[i], map[string]int{}, 0
		for _, node := range selected {
			counts[node[l.TopologyKey]]++ // "" without a key
		}
		for _, n := range counts {
			sum += most(l, n)
		}
		if room < 0 || sum < room {
			room = sum
		}
	}
	return room, len(selected) > 0
}
