// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/kube"
)

// simSeat is the seat of a node. A drain must evict it, like a companion.
type simSeat struct {
	uid, node types.UID
	// pending seats have not joined a group, so that nothing holds them.
	pending bool
}

// disruption is a NodeDisruptionBudget for all nodes, in half of the histories. The API server decides on evictions of seats.
type disruption struct {
	// limit is how many nodes may be unavailable; 0 without a budget.
	limit int
	// frozen is true while no disruption may begin.
	frozen bool
	// late are writes of the manager that it has decided before, such as for a node that is cordoned meanwhile.
	late []func()
}

func (h *history) addDisruptionBudget() {
	if !h.chance(50) {
		return
	}
	h.disruption.limit = 1 + h.rng.Intn(2)
	for _, name := range sorted(h.nodes) {
		h.seats[name] = simSeat{uid: types.UID(h.uid()), node: h.nodes[name].UID}
	}
}

// changeDisruptions is a user who freezes nodes, or creates or deletes the budget.
func (h *history) changeDisruptions() {
	d := &h.disruption
	switch {
	case d.limit == 0 || h.chance(20):
		d.limit = h.rng.Intn(3)
	default:
		d.frozen = h.chance(40)
	}
	h.say("the budget allows %d nodes to be unavailable, frozen %v", d.limit, d.frozen)
}

// keepSeats is the manager of budgets: it gives a node its seat back when it is Ready and uncordoned, in two steps, and deletes those of
// nodes that no budget limits, or that are broken.
func (h *history) keepSeats() {
	late := h.disruption.late
	h.disruption.late = nil
	for _, write := range late {
		write()
	}
	for _, name := range sorted(h.seats) {
		s, node := h.seats[name], h.nodes[name]
		switch {
		case h.disruption.limit == 0,
			node.UID != s.node,
			s.pending && requests(&node),
			!node.Ready && !h.disruption.frozen && (h.calm || h.chance(30)):
			h.happened++
			delete(h.seats, name)
		case s.pending && node.Ready:
			h.soon(func() { h.joinSeat(name, s) })
		}
	}
	for _, name := range sorted(h.nodes) {
		node := h.nodes[name]
		if _, has := h.seats[name]; !has && h.disruption.limit > 0 && node.Ready && !requests(&node) {
			h.soon(func() { h.createSeat(name, node.UID) })
		}
	}
}

// soon makes a write that was decided for an available node, in some cases later.
func (h *history) soon(write func()) {
	if !h.calm && h.chance(20) {
		h.disruption.late = append(h.disruption.late, write)
		return
	}
	write()
}

func (h *history) createSeat(name string, node types.UID) {
	if _, has := h.seats[name]; has || h.nodes[name].UID != node {
		return
	}
	h.happened++
	h.seats[name] = simSeat{uid: types.UID(h.uid()), node: node, pending: true}
}

func (h *history) joinSeat(name string, s simSeat) {
	if h.seats[name] != s {
		return
	}
	h.happened++
	s.pending = false
	h.seats[name] = s
	if node := h.nodes[name]; requests(&node) {
		h.met["seat joins a cordoned node"]++
		h.asked[string(node.UID)]++ // for NodeGuards, the request is another one
	}
}

func requests(n *kube.Node) bool { return n.Unschedulable || n.Deleting || len(n.Taints) > 0 }

// evictSeat evicts the seat of a node that a tool drains, and reports whether it still waits for that.
func (h *history) evictSeat(t *tool) bool {
	s, has := h.seats[t.node]
	if !has || !slices.Contains(t.pods, string(s.uid)) {
		return false
	}
	if !h.grantsSeat(t.node) {
		h.met["seat refused"]++
		return true
	}
	h.met["seat evicted"]++
	h.say("%s evicts the seat of %s", t.name, t.node)
	h.happened++
	delete(h.seats, t.node)
	return false
}

// grantsSeat is the decision of the API server.
func (h *history) grantsSeat(node string) bool {
	if h.seats[node].pending {
		return true
	}
	unavailable := 0
	for name, n := range h.nodes {
		if s, has := h.seats[name]; name != node && (!has || s.pending || !n.Ready) {
			unavailable++
		}
	}
	return !h.disruption.frozen && unavailable < h.disruption.limit
}

// seated are the nodes whose seats must be evicted before they are drained.
func (c *cluster) seated() map[types.UID]bool {
	held := map[types.UID]bool{}
	for _, s := range c.seats {
		if !s.pending {
			held[s.node] = true
		}
	}
	return held
}
