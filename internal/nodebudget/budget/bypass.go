// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

// Bypass is a node whose seat was deleted instead of evicted while a budget of the node was closed, such as by a tool that respects
// PodDisruptionBudgets only for some time.
type Bypass struct {
	// Budget is the name of the budget, and Node that of the node. Message is why the budget is closed.
	Budget, Node, Message string
}

// findBypasses finds the nodes that were taken although they are closed. A node that does not exist any more has left no budget.
func (p *planner) findBypasses() {
	for _, m := range p.members {
		for _, r := range m.rules {
			if p.in.Deleted[m.UID] && r.closed != nil {
				p.plan.Bypasses = append(p.plan.Bypasses, Bypass{r.Name, m.Name, r.closed.Message})
			}
		}
	}
}
