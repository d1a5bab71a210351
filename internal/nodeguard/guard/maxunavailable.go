// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/plural"
)

// capacity is how many nodes may be unavailable (maxUnavailable), and which nodes are.
type capacity struct {
	// nodes are the guarded nodes. unguarded are the nodes in status.released that are deleted or no longer guarded. They
	// count until that is certain.
	nodes, unguarded []*nodePlan
	// unbound counts pods of the target that are not on a node. They count as unavailable.
	unbound int
	// max is spec.maxUnavailable as a number of nodes.
	max int
}

// limit is how many nodes may be unavailable.
func (c *capacity) limit() int { return min(c.max, maxReleased) }

// entries returns the length of the future status.released.
func (c *capacity) entries() int {
	many := 0
	for _, nodes := range [][]*nodePlan{c.nodes, c.unguarded} {
		for _, n := range nodes {
			if n.entry != nil {
				many++
			}
		}
	}
	return many
}

// usage counts nodes that are released, unavailable without a release, or about to be released if their check succeeds.
type usage struct{ released, unhealthy, reserved int }

// usedByOthers counts all nodes except one.
func (c *capacity) usedByOthers(n *nodePlan) usage {
	used := usage{unhealthy: c.unbound}
	for _, other := range c.nodes {
		switch {
		case other == n:
		case other.hasPlace() && !(other.expectsPlace() && n.retainsPlace()): // it gets no place that the node retains
			used.released++
		case other.reservesBefore(n):
			used.reserved++
		case other.isUnhealthy():
			used.unhealthy++
		}
	}
	for _, other := range c.unguarded {
		if other.hasPlace() {
			used.released++
		}
	}
	return used
}

// maxUnavailableReached holds a node while too many others are unavailable. Draining a node that is already unavailable
// removes no capacity: other nodes that are unavailable without a release do not hold it, so that several unhealthy nodes
// can be repaired at the same time. It still waits for released nodes. The same holds for a node whose deadline has passed:
// a released node is expected to be available again, an unhealthy one may never be.
func (r *releaseRules) maxUnavailableReached(n *nodePlan) *holding {
	used, limit := r.capacity.usedByOthers(n), r.capacity.limit()
	if n.isUnhealthy() || r.pastReleaseDeadline(n) {
		used.unhealthy = 0
	}
	if n.isUnhealthy() {
		used.reserved = 0 // an unhealthy node takes no capacity from one that is being checked
	}
	switch unavailable := used.released + used.unhealthy; {
	case unavailable >= limit:
		return &holding{
			Why:     hold.Why{Reason: v1alpha1.ReasonMaxUnavailableReached, Message: fmt.Sprintf("%s unavailable, and at most %d may be: %s", plural.CountAre(unavailable, "node"), limit, r.capacity.unavailableNames(n, used.unhealthy > 0))},
			release: "one of them is available again (its companion and its pod of the target are ready), or its Node is deleted",
		}
	case unavailable+used.reserved >= limit:
		return &holding{
			Why:     hold.Why{Reason: v1alpha1.ReasonWaitingForTurn, Message: "release.check runs for another node"},
			release: "that check fails, or that node is released and available again",
		}
	}
	return nil
}

// unavailableNames lists the unavailable nodes except one, released nodes first.
func (c *capacity) unavailableNames(but *nodePlan, all bool) string {
	var released, unhealthy []string
	for _, n := range c.nodes {
		switch {
		case n == but:
		case n.hasPlace():
			released = append(released, n.Name+" "+unavailableReason(n))
		case all && n.isUnhealthy():
			unhealthy = append(unhealthy, n.Name+" "+unavailableReason(n))
		}
	}
	for _, n := range c.unguarded {
		if n.hasPlace() {
			released = append(released, n.Name+" ("+releasedAtText(n)+")")
		}
	}
	if all && c.unbound > 0 {
		unhealthy = append(unhealthy, fmt.Sprintf("pods of the target that are on no node: %d", c.unbound))
	}
	return listed(append(released, unhealthy...))
}

// unavailableReason says why a node is unavailable.
func unavailableReason(n *nodePlan) string {
	switch {
	case !n.isReleased() && n.entry != nil:
		return "(an earlier Node of that name was " + releasedAtText(n) + ")"
	case !n.isReleased() && !n.Ready:
		return "(not Ready)"
	case !n.isReleased():
		return "(no ready pod of the target)"
	case n.stage == returning && !n.isUnhealthy():
		return "(" + releasedAtText(n) + "; its companion is not ready yet)"
	case n.stage == returning && n.Ready:
		return "(" + releasedAtText(n) + "; no ready pod of the target yet)"
	default:
		return "(" + releasedAtText(n) + ", not available again yet)"
	}
}

// releasedAtText says since when a node is released. A node that never becomes available again holds all others, so the
// user needs to find it.
func releasedAtText(n *nodePlan) string {
	switch {
	case n.entry != nil:
		return "released at " + n.entry.Since.UTC().Format(time.RFC3339)
	case n.requestsRelease():
		return "released by another NodeGuard"
	default:
		return "released"
	}
}
