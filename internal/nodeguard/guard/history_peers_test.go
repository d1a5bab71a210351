// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Two or three NodeGuards for the same nodes: the decision of each, computed in a different way than in the planner.

func (h *history) isGoingFor(guard, node string) bool {
	g, n := h.guards[guard], h.nodes[node]
	return slices.ContainsFunc(
		h.status(g).Released,
		func(o v1alpha1.ReleasedNode) bool { return o.Node == node && o.UID == n.UID && !o.Returning },
	)
}

// isFor reports whether a guard has to release a node.
func (h *history) isFor(guard, node string) bool {
	g := h.guards[guard]
	if h.missing[g.Spec.Target.DaemonSet] || !g.DeletionTimestamp.IsZero() || holdsNothing(guard) {
		return false // a guarded node stays guarded, which only the planner knows
	}
	all, _ := h.guarded(&h.cluster, g)
	return slices.Contains(all, node)
}

// hasRoom reports whether the documented rules allow the release of another node. released is true if its deadline may
// have passed.
func (h *history) hasRoom(guard, node string, released bool) bool {
	g := h.guards[guard]
	all, sound := h.guarded(&h.cluster, g)
	away := map[string]bool{}
	for _, o := range h.status(g).Released {
		away[o.Node] = true
	}
	if slices.Contains(sound, node) && !released {
		for _, n := range all {
			if !slices.Contains(sound, n) {
				away[n] = true
			}
		}
	}
	delete(away, node)
	return !h.foreign && len(away) < h.limit(g)
}

func (h *history) mayRelease(guard string) bool {
	return h.guards[guard].Spec.Release.OnDeadline == v1alpha1.OnDeadlineRelease
}

// othersAgree checks, when a guard releases a node, that no other guard would hold it by its own rules: otherwise it
// would be released by one, and held by the other as long as anything is not ready.
func (h *history) othersAgree(name, node string) {
	if slices.ContainsFunc(sorted(h.guards), func(other string) bool {
		return other != name && (h.isGoingFor(other, node) || h.mayKnowRelease(h.guards[other], h.nodes[node]))
	}) {
		h.met["released by two guards"]++
		return // a release that has started is completed
	}
	for _, other := range sorted(h.guards) {
		if other == name || h.barred[other] || !h.isFor(other, node) {
			continue
		}
		if !h.hasCompanion(other, node) {
			h.met["released without a guard that holds nothing"]++
			continue // a drain would not wait for it
		}
		g := h.guards[other]
		if !h.hasRoom(other, node, h.mayRelease(other)) {
			h.fail("%s releases %s, and maxUnavailable of %s is reached", name, node, other)
		}
		if g.Spec.Release.Approval == v1alpha1.ApprovalRequired && !h.mayRelease(other) &&
			!strings.Contains(h.nodes[node].Approved, "ns/"+other) {
			h.fail("%s releases %s, without an approval for %s", name, node, other)
		}
		if check := h.checkOf(
			other,
			node,
		); g.Spec.Release.Check != nil && !h.mayRelease(other) && h.nodes[node].Ready &&
			check.Phase != "Succeeded" {
			h.fail("%s releases %s, whose check for %s has not succeeded", name, node, other)
		}
	}
}

// hasCompanion reports whether a companion of a guard is on a node.
func (h *history) hasCompanion(guard, node string) bool {
	for _, p := range h.pods {
		if p.guard == guard && p.role == "companion" && p.Node == node && p.Owner == h.guards[guard].UID && !p.forged {
			return true
		}
	}
	return false
}

// mayHold reports whether a guard has its own reason to hold a node.
func (h *history) mayHold(guard, node string) bool {
	g := h.guards[guard]
	released := h.mayRelease(guard) // at the end all deadlines have passed
	switch {
	case !g.DeletionTimestamp.IsZero() || holdsNothing(guard):
		return false
	case h.missing[g.Spec.Target.DaemonSet], h.seated()[h.nodes[node].UID]:
		return true
	case !h.isFor(guard, node):
		return false
	case !h.hasRoom(guard, node, released):
		return true
	case released:
		return false
	case g.Spec.Release.Approval == v1alpha1.ApprovalRequired && !strings.Contains(h.nodes[node].Approved, "ns/"+guard):
		return true
	case g.Spec.Release.Check != nil:
		return h.nodes[node].Ready && (!h.gate[node] || h.refuses[node] || node == h.evil)
	}
	return false
}

// goOnWhileSick : an unhealthy node remains so, and no drain waits for another one forever. Each node with a release
// request that no guard has its own reason to hold is released.
func (h *history) goOnWhileSick() {
	stuck := h.heldForNothing()
	rounds := 15
	if h.evil != "" || len(h.refuses) > 0 {
		rounds = 60 // a check that never ends makes others wait for its time limit
	}
	for range rounds {
		if len(stuck) == 0 {
			return
		}
		h.round()
		now := h.heldForNothing()
		stuck = slices.DeleteFunc(stuck, func(name string) bool { return !slices.Contains(now, name) })
	}
	if len(stuck) > 0 {
		h.fail("while nodes are unhealthy, no guard has a reason to hold %v, and they are not released", stuck)
	}
}

func (h *history) heldForNothing() []string {
	var found []string
	for _, node := range sorted(h.nodes) {
		n := h.nodes[node]
		if (n.Unschedulable || len(n.Taints) > 0) && node != h.evil {
			found = append(found, h.heldInVain(node, n.UID)...)
		}
	}
	return found
}

func (h *history) heldInVain(node string, uid types.UID) []string {
	var let, held []string
	for _, name := range sorted(h.guards) {
		switch {
		case h.isGoingFor(name, node):
			let = append(let, name)
		case h.mayHold(name, node):
			return nil
		case h.isFor(name, node) && !h.waitsInOrder(name, node):
			held = append(held, name)
		}
	}
	switch {
	case len(held) == 0:
		return nil
	case len(let) == 0 && h.releasedByPeers():
		return nil // it waits for a release that has started, which is checked separately
	}
	return []string{node + "/" + string(uid) + " of " + strings.Join(held, ", ")}
}

// waitsInOrder reports whether a node waits for nodes that another guard has released earlier, and that its guard has its
// own reasons to hold: all NodeGuards use the same order. An unhealthy node waits only if they use all of maxUnavailable.
func (h *history) waitsInOrder(guard, node string) bool {
	since := h.releasedSince(guard, node)
	if since.IsZero() {
		return false
	}
	places, waits := len(h.status(h.guards[guard]).Released), false
	for _, other := range sorted(h.nodes) {
		at := h.releasedSince(guard, other)
		before := at.Before(since) || (at.Equal(since) && other < node)
		if !at.IsZero() && before && !h.isGoingFor(guard, other) && h.mayHold(guard, other) {
			places, waits = places+1, true
		}
	}
	_, sound := h.guarded(&h.cluster, h.guards[guard])
	return waits && (slices.Contains(sound, node) || places >= h.limit(h.guards[guard]))
}

// keepsPlaces reports whether a guard could release a node, other than one, that another guard has released and that it
// has not.
func (h *history) keepsPlaces(guard, but string) bool {
	return slices.ContainsFunc(sorted(h.nodes), func(node string) bool {
		return node != but && h.isFor(guard, node) && !h.isGoingFor(guard, node) && !h.releasedSince(guard, node).IsZero()
	})
}

// releasedSince is when another guard has released a node; zero when none has. The releases of a guard that is being deleted do not
// count, because it no longer holds nodes.
func (h *history) releasedSince(guard, node string) (since time.Time) {
	for name, g := range h.guards {
		for _, o := range h.status(g).Released {
			if name != guard && g.DeletionTimestamp.IsZero() && o.Node == node && o.UID == h.nodes[node].UID && !o.Returning &&
				(since.IsZero() || o.Since.Time.Before(since)) {
				since = o.Since.Time
			}
		}
	}
	return since
}

// releasedByPeers reports whether a guard has released a node and another one has not.
func (h *history) releasedByPeers() bool {
	for node := range h.nodes {
		let, held := false, false
		for name := range h.guards {
			let = let || h.isGoingFor(name, node)
			held = held || (h.isFor(name, node) && !h.isGoingFor(name, node))
		}
		if let && held {
			return true
		}
	}
	return false
}
