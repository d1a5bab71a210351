// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// releaseNodes decides which nodes with a release request are released, in the order of their requests.
//
// A node that another NodeGuard has already released comes first, and no other node is released before it. Decisions are
// made one after another, and each sees the earlier ones, so a release that any NodeGuard has started is completed before
// another one starts.
func (s *planner) releaseNodes() {
	queue, first := s.queue()
	for i, w := range queue {
		w.position, w.reserved = i, s.retainsTurn(w)
		if w.BreakGlass != "" && !w.active() && len(s.released) < maxReleased {
			s.release(w, v1alpha1.ReasonBreakGlass, bounded(w.BreakGlass)) // before others, so that it counts for them
		}
	}
	for _, w := range queue {
		if w.active() || w.releasing {
			continue
		}
		why := v1alpha1.ReasonConditionMet
		switch h := s.holdReason(w, first); {
		case h != nil:
			w.held = h
			s.noteDeadline(w)
			continue
		case s.pastReleaseDeadline(w):
			why = v1alpha1.ReasonDeadlineReached
		}
		s.release(w, why, "")
	}
}

// holdReason returns why a node is not released now; nil if it is.
func (s *planner) holdReason(w *nodePlan, first *peerRelease) *hold {
	switch h := s.ruledOut(); {
	case h != nil:
		return h
	case first != nil && w.Name != first.node && !s.mayFollow(w):
		return &hold{reason: v1alpha1.ReasonWaitingForOtherRelease,
			message: fmt.Sprintf("NodeGuard %s has released node %s while this NodeGuard still holds it; that node is released first", first.guard, first.node),
			release: "node " + first.node + " is released here too, or its release request ends"}
	case s.releasingShared != "":
		return &hold{reason: v1alpha1.ReasonReleasing, message: "the release of node " + s.releasingShared + " is in progress",
			release: "that release is written and the other NodeGuards see it"}
	}
	if h := s.maxUnavailableReached(w); h != nil {
		return h
	}
	other := s.heldByPeer(w)
	if other != nil && s.isChecked(w) && !s.isAnswering(w) {
		w.reserved = false
		return other // its check runs when that NodeGuard would release the node
	}
	if h := s.unmet(w); h != nil {
		return h
	}
	return other
}

// ruledOut returns a reason to release no node at all, regardless of which nodes are unavailable.
func (s *planner) ruledOut() *hold {
	switch {
	case s.blocked != "":
		return &hold{reason: v1alpha1.ReasonOverlappingBudget,
			message: fmt.Sprintf("PodDisruptionBudget %s selects the companions as well, and Kubernetes evicts no pod that has two", s.blocked),
			release: "that budget selects other pods, or spec.template has other labels"}
	case s.in.PeersUnknown:
		return &hold{reason: v1alpha1.ReasonReleasing, message: "another node has the break-glass annotation and is released first", release: "that release is written"}
	case s.max == 0:
		return &hold{reason: v1alpha1.ReasonReleasesDisabled, message: "spec.maxUnavailable is 0, so no node is released",
			release: "spec.maxUnavailable is raised, or the node has the annotation " + v1alpha1.BreakGlassAnnotation}
	}
	return nil
}

// unmet returns the condition of spec.release while it is not met; nil after a deadline that ends the wait for it.
func (s *planner) unmet(w *nodePlan) *hold {
	if s.pastReleaseDeadline(w) {
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

// maxUnavailableReached holds a node while too many others are unavailable. Draining a node that is already unavailable
// removes no capacity: other nodes that are unavailable without a release do not hold it, so that several unhealthy nodes
// can be repaired at the same time. It still waits for released nodes. The same holds for a node whose deadline has passed:
// a released node is expected to be available again, an unhealthy one may never be.
func (s *planner) maxUnavailableReached(w *nodePlan) *hold {
	n := s.others(w)
	limit := min(s.max, maxReleased)
	if w.isUnhealthy() || s.pastReleaseDeadline(w) {
		n.unhealthy = 0
	}
	if w.isUnhealthy() {
		n.reserved = 0 // an unhealthy node takes no capacity from one that is being checked
	}
	switch {
	case n.released+n.unhealthy >= limit:
		return &hold{reason: v1alpha1.ReasonMaxUnavailableReached,
			message: fmt.Sprintf("%s unavailable, and at most %d may be: %s", count(n.released+n.unhealthy), limit, s.unavailableNames(w, n.unhealthy > 0)),
			release: "one of them is available again (its companion and its pod of the target are ready), or its Node is deleted"}
	case n.released+n.unhealthy+n.reserved >= limit:
		return &hold{reason: v1alpha1.ReasonWaitingForTurn, message: "release.check runs for another node",
			release: "that check fails, or that node is released and available again"}
	}
	return nil
}

// unavailableCount counts nodes that are released, unavailable without a release, or about to be released if their
// check succeeds.
type unavailableCount struct{ released, unhealthy, reserved int }

// others counts all nodes except one.
func (s *planner) others(w *nodePlan) unavailableCount {
	n := unavailableCount{unhealthy: s.unbound}
	for _, other := range s.nodes {
		switch {
		case other == w:
		case s.isReleased(other) && !(s.isExpected(other) && w.retainsPlace()): // it gets no place that the node retains
			n.released++
		case other.reserved && (!w.reserved || other.position < w.position):
			n.reserved++
		case other.isUnhealthy():
			n.unhealthy++
		}
	}
	for name := range s.released { // a node that is no longer guarded counts until that is certain
		if s.byName[name] == nil {
			n.released++
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

// isReleased also counts a recreated Node of the same name, until the released one is removed from status.released.
func (s *planner) isReleased(w *nodePlan) bool {
	_, released := s.released[w.Name]
	return released || w.releasing
}

// isExpected reports whether a node has no place yet, and gets one because another NodeGuard has released it.
func (s *planner) isExpected(w *nodePlan) bool {
	_, released := s.released[w.Name]
	return w.expected && !released
}

// unavailableNames lists the unavailable nodes except one, released nodes first.
func (s *planner) unavailableNames(but *nodePlan, all bool) string {
	var released, hurt []string
	for _, w := range s.nodes {
		switch {
		case w == but:
		case s.isReleased(w):
			released = append(released, w.Name+" "+s.unavailableReason(w))
		case all && w.isUnhealthy():
			hurt = append(hurt, w.Name+" "+s.unavailableReason(w))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.released)) {
		if s.byName[name] == nil {
			released = append(released, name+" ("+s.releasedAtText(name)+")")
		}
	}
	if all && s.unbound > 0 {
		hurt = append(hurt, fmt.Sprintf("pods of the target that are on no node: %d", s.unbound))
	}
	return listed(append(released, hurt...))
}

// unavailableReason says why a node is unavailable.
func (s *planner) unavailableReason(w *nodePlan) string {
	switch {
	case !w.released && !w.releasing && !w.Ready:
		return "(not Ready)"
	case !w.released && !w.releasing:
		return "(no ready pod of the target)"
	case w.returning && !w.isUnhealthy():
		return "(" + s.releasedAtText(w.Name) + "; its companion is not ready yet)"
	case w.returning && w.Ready:
		return "(" + s.releasedAtText(w.Name) + "; no ready pod of the target yet)"
	default:
		return "(" + s.releasedAtText(w.Name) + ", not available again yet)"
	}
}

// releasedAtText says since when a node is released. A node that never becomes available again holds all others, so the
// user needs to find it.
func (s *planner) releasedAtText(name string) string {
	g, here := s.released[name]
	switch {
	case !here && s.byName[name] != nil && s.byName[name].requestsRelease():
		return "released by another NodeGuard"
	case !here:
		return "released"
	}
	return "released at " + g.Since.UTC().Format(time.RFC3339)
}

// unapproved holds a node whose release is not approved.
func (s *planner) unapproved(w *nodePlan) *hold {
	if _, approved := withoutApproval(w.Approved, s.key()); approved {
		return nil
	}
	return &hold{reason: v1alpha1.ReasonAwaitingApproval, message: "its release is not approved",
		release: fmt.Sprintf("it is approved: kubectl annotate node %s %s=%s", w.Name, v1alpha1.ApproveReleaseAnnotation, s.key())}
}

// key is the name of the NodeGuard as approvals contain it.
func (s *planner) key() string { return s.in.Guard.Namespace + "/" + s.in.Guard.Name }

// withoutApproval removes a NodeGuard from a list of approvals, and reports whether the list contained it.
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

// deadline returns when the release deadline of a held node passes; zero if there is none.
func (s *planner) deadline(w *nodePlan) time.Time {
	seconds := s.in.Guard.Spec.Release.DeadlineSeconds
	if seconds == nil {
		return time.Time{}
	}
	return w.requestedAt.Add(time.Duration(*seconds) * time.Second)
}

func (s *planner) late(w *nodePlan) bool {
	deadline := s.deadline(w)
	return !deadline.IsZero() && !s.in.Now.Before(deadline)
}

func (s *planner) onDeadline() v1alpha1.DeadlineAction {
	if s.in.Guard.Spec.Release.OnDeadline == "" {
		return v1alpha1.OnDeadlineHold
	}
	return s.in.Guard.Spec.Release.OnDeadline
}

// pastReleaseDeadline reports whether the deadline has passed. After it, a node no longer waits for its condition, nor
// for nodes that are unavailable without a release.
func (s *planner) pastReleaseDeadline(w *nodePlan) bool {
	return s.late(w) && s.onDeadline() == v1alpha1.OnDeadlineRelease
}

// noteDeadline schedules a pass for the deadline of a held node, and adds to the message when it has passed.
func (s *planner) noteDeadline(w *nodePlan) {
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
