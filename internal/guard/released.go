package guard

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// maxReleased bounds status.going, and with it how many nodes are let go at once, whatever maxUnavailable says.
const maxReleased = 100

// trackReleased looks at the nodes that were let go: which return, which are back, and which are gone for good.
func (s *planner) trackReleased() {
	for _, g := range s.in.Guard.Status.Released {
		w := s.byName[g.Node]
		switch {
		case s.consumed(s.all[g.Node]):
		case w == nil || !w.released:
			// The Node is gone, made anew, or the target is not for it any more.
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

// consumed is true while what somebody wrote on a node that returns is being taken off: it was for this letting-go, and not
// for its next asking. Also off a node that is guarded no more: it may come to be again.
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

// isAvailableAgain is true for a node that returns and has all again that it had before. It may ask to go again: as long as it is
// held, it is there.
func (s *planner) isAvailableAgain(w *nodePlan) bool {
	return w.returning && !w.isUnhealthy() && isReady(w.companion)
}

// closed is true when nothing of a letting-go is left to be undone: its budget says that it was closed after it, so
// that nobody can open it for this once more. Without a budget, it is made anew, and says so.
func (s *planner) closed(w *nodePlan, g v1alpha1.ReleasedNode) bool {
	return w.budget != nil && s.unopenable(g)
}

// unopenable is true when nobody can open a budget for a letting-go any more.
func (s *planner) unopenable(g v1alpha1.ReleasedNode) bool {
	for i := range s.in.Budgets {
		if b := &s.in.Budgets[i]; b.Node == g.Node && s.ours(b.Owner) {
			return !b.Open && b.Ended == releaseID(g)
		}
	}
	return true
}

// approvalToRemove is what is to be taken off a node that is back; nil when nothing is.
func (s *planner) approvalToRemove(w *nodePlan) *RemoveApproval {
	rest, approved := withoutApproval(w.Approved, s.key())
	if !approved && w.BreakGlass == "" {
		return nil
	}
	return &RemoveApproval{Node: w.Name, ResourceVersion: w.ResourceVersion, Approved: rest, BreakGlass: w.BreakGlass != ""}
}

// markReturning notes that a node asks no more. What it was let go for is over.
func (s *planner) markReturning(w *nodePlan, g v1alpha1.ReleasedNode) {
	if !s.in.Live {
		s.plan.Confirm = true
		return
	}
	g.Returning, w.returning = true, true
	s.released[g.Node] = g
	s.plan.Moves = append(s.plan.Moves, Move{Node: g.Node, UID: g.UID, Kind: MoveReturning, Reason: v1alpha1.ReasonNodeAvailable, Note: "its release request has ended"})
}

// unmarkReleased takes a node out of status.going: only when the API server itself says so. A view that is behind may show a
// node as it was before it left.
func (s *planner) unmarkReleased(g v1alpha1.ReleasedNode, note string) bool {
	if !s.in.Live {
		s.plan.Confirm = true
		return false
	}
	delete(s.released, g.Node)
	s.plan.Moves = append(s.plan.Moves, Move{Node: g.Node, UID: g.UID, Kind: MoveAvailable, Reason: v1alpha1.ReasonNodeAvailable, Note: note})
	return true
}

// release puts a node into status.going.
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
		since = before.Since.Add(time.Second) // the two must not be taken for one
	}
	s.released[w.Name] = v1alpha1.ReleasedNode{
		Node: w.Name, UID: w.UID, Since: metav1.NewTime(since),
		RequestedAt: metav1.NewTime(w.requestedAt.Truncate(time.Second)), Reason: reason, Message: note,
	}
	s.plan.Moves = append(s.plan.Moves, Move{Node: w.Name, UID: w.UID, Kind: MoveReleased, Reason: reason, Note: note, Held: s.in.Now.Sub(w.requestedAt)})
}

// releaseID tells one letting-go of a node from the next.
func releaseID(g v1alpha1.ReleasedNode) string {
	return string(g.UID) + "/" + g.Since.UTC().Format(time.RFC3339)
}
