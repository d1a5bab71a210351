// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// maxReleased limits the length of status.released, and so the number of nodes released at once, regardless of maxUnavailable.
const maxReleased = 100

// trackReleased determines which released nodes are returning, are available again, or are deleted.
func (s *planner) trackReleased() {
	for _, g := range s.in.Guard.Status.Released {
		w := s.byName[g.Node]
		switch {
		case s.consumed(s.all[g.Node]):
		case w == nil || !w.released:
			// The Node is deleted or recreated, or the target no longer selects it.
			if s.unopenable(g) {
				s.unmarkReleased(g, "its Node is deleted or no longer guarded")
			}
		case w.active() && !w.requestsRelease():
			s.markReturning(w, g)
		case s.isAvailableAgain(w) && s.closed(w, g):
			if s.unmarkReleased(g, "its companion and its pod of the target are ready again") {
				w.released, w.returning = false, false
			}
		}
	}
}

// consumed reports whether annotations that users set for the release are still being removed from a returning node: they
// were for this release, not for the next request. They are also removed from a node that is no longer guarded, because it
// may be guarded again later.
func (s *planner) consumed(w *nodePlan) bool {
	if w == nil || !w.returning || w.requestsRelease() {
		return false
	}
	consume := s.approvalToRemove(w)
	if consume != nil {
		s.plan.do(*consume)
	}
	return consume != nil
}

// isAvailableAgain reports whether a returning node has its companion and its pod of the target ready again. It may have a
// new release request: while it is held, it is available.
func (s *planner) isAvailableAgain(w *nodePlan) bool {
	return w.returning && !w.isUnhealthy() && isReady(w.companion)
}

// closed reports whether a release is completely undone: the budget records that it was closed after this release, so no
// manager can open it for the same release again. If there is no budget, one is created that records this.
func (s *planner) closed(w *nodePlan, g v1alpha1.ReleasedNode) bool {
	return w.budget != nil && s.unopenable(g)
}

// unopenable reports whether no manager can open a budget for a release any more.
func (s *planner) unopenable(g v1alpha1.ReleasedNode) bool {
	for i := range s.in.Budgets {
		if b := &s.in.Budgets[i]; b.Node == g.Node && s.ours(b.Owner) {
			return !b.Open && b.Ended == releaseID(g)
		}
	}
	return true
}

// approvalToRemove returns what to remove from a returning node; nil if there is nothing to remove.
func (s *planner) approvalToRemove(w *nodePlan) *RemoveApproval {
	rest, approved := withoutApproval(w.Approved, s.key())
	if !approved && w.BreakGlass == "" {
		return nil
	}
	return &RemoveApproval{Node: w.Name, ResourceVersion: w.ResourceVersion, Approved: rest, BreakGlass: w.BreakGlass != ""}
}

// markReturning records that the release request of a released node has ended.
func (s *planner) markReturning(w *nodePlan, g v1alpha1.ReleasedNode) {
	if !s.in.Live {
		s.plan.Confirm = true
		return
	}
	g.Returning, w.returning = true, true
	s.released[g.Node] = g
	s.plan.Moves = append(s.plan.Moves, Move{Node: g.Node, UID: g.UID, Kind: MoveReturning, Reason: v1alpha1.ReasonNodeAvailable, Note: "its release request has ended"})
}

// unmarkReleased removes a node from status.released, only based on a live read of the API server. A stale view may show
// the node as it was before it was drained.
func (s *planner) unmarkReleased(g v1alpha1.ReleasedNode, note string) bool {
	if !s.in.Live {
		s.plan.Confirm = true
		return false
	}
	delete(s.released, g.Node)
	s.plan.Moves = append(s.plan.Moves, Move{Node: g.Node, UID: g.UID, Kind: MoveAvailable, Reason: v1alpha1.ReasonNodeAvailable, Note: note})
	return true
}

// release adds a node to status.released.
func (s *planner) release(w *nodePlan, reason, note string) {
	if s.isShared(w) {
		s.releasingShared = w.Name
	}
	w.releasing = true
	if !s.in.Live {
		s.plan.Confirm = true
		w.held = &hold{reason: v1alpha1.ReasonReleasing, message: "all release conditions are met", release: "the release is written"}
		return
	}
	since := s.in.Now.Truncate(time.Second)
	if before, let := s.released[w.Name]; let && !since.After(before.Since.Time) {
		since = before.Since.Add(time.Second) // the IDs of the two releases must differ
	}
	s.released[w.Name] = v1alpha1.ReleasedNode{
		Node: w.Name, UID: w.UID, Since: metav1.NewTime(since),
		RequestedAt: metav1.NewTime(w.requestedAt.Truncate(time.Second)), Reason: reason, Message: note,
	}
	s.plan.Moves = append(s.plan.Moves, Move{Node: w.Name, UID: w.UID, Kind: MoveReleased, Reason: reason, Note: note, Held: s.in.Now.Sub(w.requestedAt)})
}

// releaseID identifies one release of a node.
func releaseID(g v1alpha1.ReleasedNode) string {
	return string(g.UID) + "/" + g.Since.UTC().Format(time.RFC3339)
}
