// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// maxReleased limits the length of status.released, and so the number of nodes released at once, regardless of maxUnavailable.
const maxReleased = 100

// trackReleased determines which released nodes are returning, are available again, or are deleted.
func (p *planner) trackReleased() {
	for _, entry := range p.in.Guard.Status.Released {
		n := p.byName[entry.Node]
		switch {
		case p.removeAnnotations(n):
		case !n.guarded || n.stage == notReleased:
			// The Node is deleted or recreated, or the target no longer selects it.
			if p.isUndone(n.entry) {
				p.markAvailable(n, "its Node is deleted or no longer guarded")
			}
		case n.active() && n.requestEnded():
			p.markReturning(n)
		case n.isAvailableAgain() && p.isUndone(n.entry):
			p.markAvailable(n, "its companion and its pod of the target are ready again")
		}
	}
}

// removeAnnotations removes what users have set for a release that has ended. It reports whether the node waits for that.
func (p *planner) removeAnnotations(n *nodePlan) bool {
	approval := p.approvalToRemove(n)
	switch {
	case approval == nil:
		return p.retainsBreakGlass(n)
	case approval.BreakGlass && !p.in.Live:
		p.plan.Confirm = true // another NodeGuard may have released the node meanwhile
	default:
		p.plan.do(*approval)
	}
	return true
}

// isUndone reports whether no manager can delete a companion for a release any more: the one that it is of does not exist, or the end of the
// release is noted on it.
func (o observed) isUndone(entry *v1alpha1.ReleasedNode) bool {
	return !slices.ContainsFunc(o.in.Companions, func(c Pod) bool { return c.isReleasedBy(entry) })
}

// markReturning records that the release request of a released node has ended.
func (p *planner) markReturning(n *nodePlan) {
	if !p.in.Live {
		p.plan.Confirm = true
		return
	}
	n.markReturning()
	p.plan.Moves = append(p.plan.Moves, Move{Node: n.Name, UID: n.entry.UID, Kind: MoveReturning, Reason: v1alpha1.ReasonNodeAvailable, Note: "its release request has ended"})
}

// markAvailable removes a node from status.released, only based on a live read of the API server. A stale view may show
// the node as it was before it was drained.
func (p *planner) markAvailable(n *nodePlan, note string) {
	if !p.in.Live {
		p.plan.Confirm = true
		return
	}
	p.plan.Moves = append(p.plan.Moves, Move{Node: n.Name, UID: n.entry.UID, Kind: MoveAvailable, Reason: v1alpha1.ReasonNodeAvailable, Note: note})
	n.markAvailable()
}

// releasedList returns the future status.released, the oldest release first.
func (p *planner) releasedList() []v1alpha1.ReleasedNode {
	var list []v1alpha1.ReleasedNode
	for _, nodes := range [][]*nodePlan{p.capacity.nodes, p.capacity.unguarded} {
		for _, n := range nodes {
			if n.entry != nil {
				list = append(list, *n.entry)
			}
		}
	}
	slices.SortFunc(list, func(a, b v1alpha1.ReleasedNode) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), strings.Compare(a.Node, b.Node))
	})
	return list
}

// endedAfter reports whether the companion says that a release has ended, or a later one of the same Node.
func (p *Pod) endedAfter(entry *v1alpha1.ReleasedNode) bool {
	uid, at, _ := strings.Cut(p.EndedRelease, "/")
	since, err := time.Parse(time.RFC3339, at)
	return err == nil && uid == string(entry.UID) && !since.Before(entry.Since.Truncate(time.Second))
}

// releaseID identifies one release of a node.
func releaseID(entry v1alpha1.ReleasedNode) string {
	return string(entry.UID) + "/" + entry.Since.UTC().Format(time.RFC3339)
}
