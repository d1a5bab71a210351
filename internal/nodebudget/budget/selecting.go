// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"time"

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
	for _, b := range budgets {
		r := readRule(b, now)
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
