// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Fresh has all nodes of a plan, by UID. It is true for a node that has joined since the first plan of the manager, under a budget, and
// has had no seat that counted. Such a node uses no budget, because it takes away nothing that was there: otherwise an autoscaler that
// replaces nodes would hold its own drains with the nodes that it adds. Of a node that has existed before the first plan, it is not known
// whether it had a seat, so it is not fresh.
type Fresh map[types.UID]bool

// readFresh notes which nodes are fresh.
func (p *planner) readFresh() {
	if len(p.in.Nodes) == 0 {
		return // nodes are not read while there are no budgets
	}
	p.plan.Fresh = make(Fresh, len(p.in.Nodes))
	for i := range p.nodes {
		node := &p.nodes[i]
		was, known := p.in.Fresh[node.UID]
		p.plan.Fresh[node.UID] = p.in.Fresh != nil && (was || !known) && slices.ContainsFunc(p.rules, func(r *rule) bool {
			return r.enforced() && r.selects(node)
		})
	}
}

// readFirstSeat notes whether a node is fresh. It counts when its first seat can join a group, or has joined it, or if the seat does not
// start although the node is Ready: then workloads may run there.
func (p *planner) readFirstSeat(m *member) {
	if !p.plan.Fresh[m.UID] {
		return
	}
	due := m.ReadyChanged.Add(p.settleFor() + p.minute())
	p.wake(due)
	m.fresh = (m.seat == nil || !p.isUsable(m)) && (!m.Ready || p.in.Now.Before(due))
	p.plan.Fresh[m.UID] = m.fresh
}
