package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// release decides which of the nodes that ask may go, in the order in which they asked.
//
// A node that another NodeGuard has let go already comes first, and until it goes no other does: as all decisions are
// made one after another, and each sees those before, what was begun anywhere is ended before something else is begun.
func (s *survey) release() {
	queue, first := s.queue()
	s.first = first
	for i, w := range queue {
		w.turn, w.reserved = i, s.keepsItsPlace(w)
		if w.BreakGlass != "" && !w.active() && len(s.going) < maxGoing {
			s.letGo(w, v1alpha1.ReasonBreakGlass, bounded(w.BreakGlass)) // before others, so that it counts for them
		}
	}
	for _, w := range queue {
		if w.active() || w.letNow {
			continue
		}
		why := v1alpha1.ReasonConditionMet
		switch h := s.holds(w, first); {
		case h != nil:
			w.held = h
			s.mindDeadline(w)
			continue
		case s.released(w):
			why = v1alpha1.ReasonDeadlineReached
		}
		s.letGo(w, why, "")
	}
}

// holds is why a node may not go now; nil when it may.
func (s *survey) holds(w *work, first *begun) *hold {
	switch h := s.ruledOut(); {
	case h != nil:
		return h
	case first != nil && w.Name != first.node && !s.mayFollow(w):
		return &hold{reason: v1alpha1.ReasonWaitingForOtherRelease,
			message: fmt.Sprintf("NodeGuard %s has let node %s go, which this one still holds: that comes first", first.guard, first.node),
			release: "node " + first.node + " goes, or asks no more"}
	case s.begins != "":
		return &hold{reason: v1alpha1.ReasonReleasing, message: "node " + s.begins + " is let go just now", release: "that is written, and other NodeGuards see it"}
	}
	if h := s.tooManyAway(w); h != nil {
		return h
	}
	other := s.heldElsewhere(w)
	if other != nil && s.isChecked(w) && !s.isAnswering(w) {
		w.reserved = false
		return other // its check runs when that one would let it go
	}
	if h := s.unmet(w); h != nil {
		return h
	}
	return other
}

// ruledOut is what lets no node go, whoever is away.
func (s *survey) ruledOut() *hold {
	switch {
	case s.blocked != "":
		return &hold{reason: v1alpha1.ReasonOverlappingBudget,
			message: fmt.Sprintf("PodDisruptionBudget %s selects the companions as well, and Kubernetes evicts no pod that has two", s.blocked),
			release: "that budget must select other pods, or spec.template other labels"}
	case s.in.PeersUnasked:
		return &hold{reason: v1alpha1.ReasonReleasing, message: "another node breaks its glass, which comes first", release: "that is written"}
	case s.max == 0:
		return &hold{reason: v1alpha1.ReasonReleasesDisabled, message: "spec.maxUnavailable is 0, which lets no node go",
			release: "raise spec.maxUnavailable, or annotate the node with " + v1alpha1.BreakGlassAnnotation}
	}
	return nil
}

// unmet is the condition of spec.release, as long as it does not hold; nil past a deadline that waits no longer for it.
func (s *survey) unmet(w *work) *hold {
	if s.released(w) {
		return nil
	}
	switch s.in.Guard.Spec.Release.When {
	case v1alpha1.ReleaseWhenApproval:
		return s.unapproved(w)
	case v1alpha1.ReleaseWhenCheck:
		return s.unchecked(w)
	case v1alpha1.ReleaseWhenTargetsReady:
	}
	return nil
}

// tooManyAway is the budget. A node that is away by itself takes nothing from anybody by leaving: others that are away
// do not hold it, so that a sick node can be repaired beside another sick one. But it waits for those that were let go.
// So does a node whose deadline has passed: what was let go will be back, what died may not.
func (s *survey) tooManyAway(w *work) *hold {
	n := s.others(w)
	limit := min(s.max, maxGoing)
	if w.hurt() || s.released(w) {
		n.hurt = 0
	}
	if w.hurt() {
		n.reserved = 0 // a sick node takes nothing from one that is being checked
	}
	switch {
	case n.gone+n.hurt >= limit:
		return &hold{reason: v1alpha1.ReasonMaxUnavailableReached,
			message: fmt.Sprintf("%s away, of at most %d: %s", count(n.gone+n.hurt), limit, s.namesAway(w, n.hurt > 0)),
			release: "one of them is back with a ready companion and a ready pod of the target, or its Node is deleted"}
	case n.gone+n.hurt+n.reserved >= limit:
		return &hold{reason: v1alpha1.ReasonWaitingForTurn, message: "another node is being checked", release: "that check says no, or that node has gone and is back"}
	}
	return nil
}

// away counts nodes that are going, that are away by themselves, and that are about to go if their check says yes.
type away struct{ gone, hurt, reserved int }

// others counts them, but for one node.
func (s *survey) others(w *work) away {
	n := away{hurt: s.unbound}
	for _, other := range s.nodes {
		switch {
		case other == w:
		case s.isGoing(other):
			n.gone++
		case other.reserved && (!w.reserved || other.turn < w.turn):
			n.reserved++
		case other.hurt():
			n.hurt++
		}
	}
	for name := range s.going { // what is not guarded any more counts until that is certain
		if s.byName[name] == nil {
			n.gone++
		}
	}
	return n
}

func count(n int) string {
	if n == 1 {
		return "1 node is"
	}
	return fmt.Sprintf("%d nodes are", n)
}

// isGoing counts a Node of the same name that was made anew, too, until what was let go is out of status.going.
func (s *survey) isGoing(w *work) bool {
	_, going := s.going[w.Name]
	return going || w.letNow
}

// namesAway says who is away, but for one; those that were let go first.
func (s *survey) namesAway(but *work, all bool) string {
	var going, hurt []string
	for _, w := range s.nodes {
		switch {
		case w == but:
		case s.isGoing(w):
			going = append(going, w.Name+" "+s.whereabouts(w))
		case all && w.hurt():
			hurt = append(hurt, w.Name+" "+s.whereabouts(w))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.going)) {
		if s.byName[name] == nil {
			going = append(going, name+" ("+s.letGoAt(name)+")")
		}
	}
	if all && s.unbound > 0 {
		hurt = append(hurt, fmt.Sprintf("pods of the target that are on no node: %d", s.unbound))
	}
	return listed(append(going, hurt...))
}

// whereabouts says what is the matter with a node that is away.
func (s *survey) whereabouts(w *work) string {
	switch {
	case !w.let && !w.letNow && !w.Ready:
		return "(not Ready)"
	case !w.let && !w.letNow:
		return "(no ready pod of the target)"
	case w.returning && !w.hurt():
		return "(" + s.letGoAt(w.Name) + "; its companion is not ready again)"
	case w.returning && w.Ready:
		return "(" + s.letGoAt(w.Name) + "; no ready pod of the target yet)"
	default:
		return "(" + s.letGoAt(w.Name) + ", not back)"
	}
}

// letGoAt says since when a node is away: one that never comes back holds all others, and somebody has to see which it is.
func (s *survey) letGoAt(name string) string {
	g, here := s.going[name]
	switch {
	case !here && s.byName[name] != nil && s.byName[name].asks():
		return "let go by another NodeGuard"
	case !here:
		return "let go"
	}
	return "let go at " + g.Since.UTC().Format(time.RFC3339)
}

// unapproved holds a node that nobody has approved.
func (s *survey) unapproved(w *work) *hold {
	if _, approved := withoutApproval(w.Approved, s.key()); approved {
		return nil
	}
	return &hold{reason: v1alpha1.ReasonAwaitingApproval, message: "nobody has approved that it goes",
		release: fmt.Sprintf("kubectl annotate node %s %s=%s", w.Name, v1alpha1.ApproveReleaseAnnotation, s.key())}
}

// key is the NodeGuard's name as an approval says it.
func (s *survey) key() string { return s.in.Guard.Namespace + "/" + s.in.Guard.Name }

// withoutApproval takes a NodeGuard out of a list of approvals, and says whether it was in it.
func withoutApproval(list, key string) (rest string, approved bool) {
	var others []string
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); name {
		case "":
		case key:
			approved = true
		default:
			others = append(others, name)
		}
	}
	return strings.Join(others, ","), approved
}

// deadline is when a held node's time is over; zero without one.
func (s *survey) deadline(w *work) time.Time {
	seconds := s.in.Guard.Spec.Release.DeadlineSeconds
	if seconds == nil {
		return time.Time{}
	}
	return w.requestedAt.Add(time.Duration(*seconds) * time.Second)
}

func (s *survey) late(w *work) bool {
	deadline := s.deadline(w)
	return !deadline.IsZero() && !s.in.Now.Before(deadline)
}

func (s *survey) onDeadline() v1alpha1.DeadlineAction {
	if s.in.Guard.Spec.Release.OnDeadline == "" {
		return v1alpha1.OnDeadlineHold
	}
	return s.in.Guard.Spec.Release.OnDeadline
}

// released is true past a deadline at which a node waits no longer for its condition, nor for nodes that are away by themselves.
func (s *survey) released(w *work) bool {
	return s.late(w) && s.onDeadline() == v1alpha1.OnDeadlineRelease
}

// mindDeadline looks again at a held node's deadline, and says when that has passed.
func (s *survey) mindDeadline(w *work) {
	w.held.late = s.late(w)
	switch {
	case w.held.late && s.onDeadline() == v1alpha1.OnDeadlineHold:
		w.held.message += deadlinePassed + ", and release.onDeadline is Hold"
	case w.held.late:
		w.held.message += deadlinePassed + ", and it waits for nothing else"
	default:
		s.plan.wake(s.deadline(w))
	}
}
