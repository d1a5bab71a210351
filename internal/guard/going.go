package guard

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// maxGoing bounds status.going, and with it how many nodes are let go at once, whatever maxUnavailable says.
const maxGoing = 100

// goOn looks at the nodes that were let go: which return, which are back, and which are gone for good.
func (s *survey) goOn() {
	for _, g := range s.in.Guard.Status.Released {
		w := s.byName[g.Node]
		switch {
		case s.consumed(s.all[g.Node]):
		case w == nil || !w.let:
			// The Node is gone, made anew, or the target is not for it any more.
			if s.unopenable(g) {
				s.drop(g, "its Node is gone, or is guarded no more")
			}
		case w.active() && !w.asks():
			s.turn(w, g)
		case s.back(w) && s.closed(w, g):
			if s.drop(g, "it is back, with a ready companion and a ready pod of the target") {
				w.let, w.returning = false, false
			}
		}
	}
}

// consumed is true while what somebody wrote on a node that returns is being taken off: it was for this letting-go, and not
// for its next asking. Also off a node that is guarded no more: it may come to be again.
func (s *survey) consumed(w *work) bool {
	if w == nil || !w.returning || w.asks() {
		return false
	}
	consume := s.consume(w)
	if consume != nil {
		s.plan.do(*consume)
	}
	return consume != nil
}

// back is true for a node that returns and has all again that it had before. It may ask to go again: as long as it is
// held, it is there.
func (s *survey) back(w *work) bool {
	return w.returning && !w.hurt() && isReady(w.companion)
}

// closed is true when nothing of a letting-go is left to be undone: its budget says that it was closed after it, so
// that nobody can open it for this once more. Without a budget, it is made anew, and says so.
func (s *survey) closed(w *work, g v1alpha1.ReleasedNode) bool {
	return w.budget != nil && s.unopenable(g)
}

// unopenable is true when nobody can open a budget for a letting-go any more.
func (s *survey) unopenable(g v1alpha1.ReleasedNode) bool {
	for i := range s.in.Budgets {
		if b := &s.in.Budgets[i]; b.Node == g.Node && s.ours(b.Owner) {
			return !b.Open && b.Ended == releaseID(g)
		}
	}
	return true
}

// consume is what is to be taken off a node that is back; nil when nothing is.
func (s *survey) consume(w *work) *Consume {
	rest, approved := withoutApproval(w.Approved, s.key())
	if !approved && w.BreakGlass == "" {
		return nil
	}
	return &Consume{Node: w.Name, ResourceVersion: w.ResourceVersion, Approved: rest, BreakGlass: w.BreakGlass != ""}
}

// turn notes that a node asks no more. What it was let go for is over.
func (s *survey) turn(w *work, g v1alpha1.ReleasedNode) {
	if !s.in.Live {
		s.plan.Confirm = true
		return
	}
	g.Returning, w.returning = true, true
	s.going[g.Node] = g
	s.plan.Moves = append(s.plan.Moves, Move{Node: g.Node, UID: g.UID, Kind: Returns, Reason: v1alpha1.ReasonNodeAvailable, Note: "it asks to go no more"})
}

// drop takes a node out of status.going: only when the API server itself says so. A view that is behind may show a
// node as it was before it left.
func (s *survey) drop(g v1alpha1.ReleasedNode, note string) bool {
	if !s.in.Live {
		s.plan.Confirm = true
		return false
	}
	delete(s.going, g.Node)
	s.plan.Moves = append(s.plan.Moves, Move{Node: g.Node, UID: g.UID, Kind: Back, Reason: v1alpha1.ReasonNodeAvailable, Note: note})
	return true
}

// letGo puts a node into status.going.
func (s *survey) letGo(w *work, reason, note string) {
	if s.isShared(w) {
		s.begins = w.Name
	}
	w.letNow = true
	if !s.in.Live {
		s.plan.Confirm = true
		w.held = &hold{reason: v1alpha1.ReasonReleasing, message: "all that it waited for is there", release: "the decision is about to be written"}
		return
	}
	since := s.in.Now.Truncate(time.Second)
	if before, let := s.going[w.Name]; let && !since.After(before.Since.Time) {
		since = before.Since.Add(time.Second) // the two must not be taken for one
	}
	s.going[w.Name] = v1alpha1.ReleasedNode{
		Node: w.Name, UID: w.UID, Since: metav1.NewTime(since),
		RequestedAt: metav1.NewTime(w.requestedAt.Truncate(time.Second)), Reason: reason, Message: note,
	}
	s.plan.Moves = append(s.plan.Moves, Move{Node: w.Name, UID: w.UID, Kind: LetGo, Reason: reason, Note: note, Held: s.in.Now.Sub(w.requestedAt)})
}

// releaseID tells one letting-go of a node from the next.
func releaseID(g v1alpha1.ReleasedNode) string {
	return string(g.UID) + "/" + g.Since.UTC().Format(time.RFC3339)
}
