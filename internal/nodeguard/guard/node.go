// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

// observedNode is what was observed about one node. It does not change during a pass.
type observedNode struct {
	*kube.Node
	// targets and readyTargets count the target's pods on the node.
	targets, readyTargets int
	companion             *Pod
	check                 *Pod
	// surplus are further companions. succeeds is true while there is the companion of an earlier NodeGuard of the same name, which must
	// terminate first.
	surplus  []*Pod
	succeeds bool
	// requestedBy is the source of the release request; "" if there is none.
	requestedBy string
	// requestedAt is when the request was first observed, and storedAt what the budget says about that.
	requestedAt, storedAt time.Time
	// seated is true while the node has a seat, which a drain must evict first.
	seated bool
	// peerRelease is the first release of the node by another NodeGuard; nil if there is none.
	peerRelease *peerRelease
}

// isUnhealthy reports whether the node is unavailable without a release.
func (n *observedNode) isUnhealthy() bool { return !n.Ready || n.readyTargets == 0 }

func (n *observedNode) requestsRelease() bool { return n.requestedBy != "" }

// breaksGlass reports whether the node is released at once.
func (n *observedNode) breaksGlass() bool { return n.BreakGlass != "" && !n.seated }

// isRequestStored reports whether the release request is recorded on the budget: a check belongs to that request.
func (n *observedNode) isRequestStored() bool {
	return !n.storedAt.IsZero() && n.storedAt.Equal(n.requestedAt)
}

func isReady(pod *Pod) bool {
	return pod != nil && !pod.Terminating && pod.Ready && pod.Phase == corev1.PodRunning
}

// isAlive reports whether a pod can be ready.
func isAlive(pod *Pod) bool { return pod != nil && !pod.Terminating && !pod.ended() }

// stage is how far the release of a node is.
type stage int

const (
	// notReleased nodes have no entry in the stored status.released. An entry of an earlier Node of the same name does
	// not count.
	notReleased stage = iota
	// released nodes have an entry, and may be drained.
	released
	// returning nodes have an entry, and their release request has ended.
	returning
)

// nodePlan is the plan for one node. Only its own methods change it: those in this file are its transitions.
type nodePlan struct {
	observedNode
	// guarded is false for a node that is only needed for its entry in status.released.
	guarded bool
	stage   stage
	// entry is the entry with the name of the node in the future status.released; nil if there is none. It can be that of
	// an earlier Node of the same name.
	entry *v1alpha1.ReleasedNode
	// releasing is true if this pass adds the node to status.released. expected is true if this is only assumed, because
	// another NodeGuard has released the node.
	releasing, expected bool
	// ends is true if this pass records that the release request of the node has ended.
	ends bool
	// held is why the node is not released; nil if it has no request or is released.
	held *holding
	// reserved is true while its check may still lead to its release; position is its position in the queue.
	reserved bool
	position int
}

// load sets the entry of the stored status.released that has the name of the node.
func (n *nodePlan) load(entry *v1alpha1.ReleasedNode) {
	n.entry = entry
	switch {
	case entry.UID != n.UID:
		n.stage = notReleased
	case entry.Returning:
		n.stage = returning
	default:
		n.stage = released
	}
}

// enqueue gives the node its position among those with a release request. It reserves a place while it is being checked.
func (n *nodePlan) enqueue(position int, reserved bool) { n.position, n.reserved = position, reserved }

// hold holds the node. It reserves a place if its check may start.
func (n *nodePlan) hold(h *holding) {
	n.held = h
	n.reserved = n.reserved || h.reserves
}

// release adds the node to the future status.released.
func (n *nodePlan) release(entry v1alpha1.ReleasedNode) { n.releasing, n.entry = true, &entry }

// announceRelease holds the node until its release is based on a live read of the API server. For other nodes, it
// already counts as released.
func (n *nodePlan) announceRelease() {
	n.releasing = true
	n.held = &holding{Why: hold.Why{Reason: v1alpha1.ReasonReleasing, Message: "all release conditions are met"}, release: "the release is written"}
}

// expectRelease counts the node as released, because another NodeGuard has released it.
func (n *nodePlan) expectRelease() { n.releasing, n.expected = true, true }

// markReturning records that the release request of a released node has ended.
func (n *nodePlan) markReturning() {
	entry := *n.entry // it is that of the input
	entry.Returning = true
	n.stage, n.entry, n.ends = returning, &entry, true
}

// markAvailable removes the entry of the node from the future status.released.
func (n *nodePlan) markAvailable() { n.stage, n.entry = notReleased, nil }

// active reports whether the companion of the node should be deleted, and not be created again.
func (n *nodePlan) active() bool { return n.stage == released }

// awaitsRelease reports whether the node requests a release that is not stored yet.
func (n *nodePlan) awaitsRelease() bool { return n.requestsRelease() && !n.active() }

// isUnavailable reports whether the node counts against maxUnavailable.
func (n *nodePlan) isUnavailable() bool { return n.isReleased() || n.isUnhealthy() }

// isReleased reports whether this Node is released, by now or in this pass.
func (n *nodePlan) isReleased() bool { return n.stage != notReleased || n.releasing }

// hasPlace reports whether the node counts as released. A recreated Node counts as well, until the released one of the
// same name is removed from status.released.
func (n *nodePlan) hasPlace() bool { return n.entry != nil || n.releasing }

// expectsPlace reports whether the node has no place yet, and gets one because another NodeGuard has released it.
func (n *nodePlan) expectsPlace() bool { return n.expected && n.entry == nil }

// retainsPlace reports whether the node counts as released although it is not, because it has not become available again
// since then. A second release takes capacity from no other node, and may be needed to repair it.
func (n *nodePlan) retainsPlace() bool { return n.stage == returning && n.isUnhealthy() }

// reservesBefore reports whether the node has reserved a place that another node does not get. Of two nodes that are
// checked, the first in the queue gets it.
func (n *nodePlan) reservesBefore(other *nodePlan) bool {
	return n.reserved && (!other.reserved || n.position < other.position)
}

// isAvailableAgain reports whether a returning node has its companion and its pod of the target ready again. It may have
// a new release request: while it is held, it is available.
func (n *nodePlan) isAvailableAgain() bool {
	return n.stage == returning && !n.isUnhealthy() && isReady(n.companion)
}

// isLetGo reports whether the companion of the node is about to be deleted for its release.
func (n *nodePlan) isLetGo() bool {
	return (n.active() || n.releasing && !n.expected) && isAlive(n.companion)
}

// requestEnded reports whether the release request of a released node has ended. A seat returns only to a node that is not cordoned, so
// the request has ended even if there is another one now.
func (n *nodePlan) requestEnded() bool { return !n.requestsRelease() || n.seated || n.isOver() }

// isOver reports whether the node has another companion than when it was released, or one on which the end of that release is noted. Then
// the entry is of a stale view, or of an earlier status that a user has restored, or another manager has created a companion meanwhile.
func (n *nodePlan) isOver() bool { return n.companion != nil && !n.companion.isReleasedBy(n.entry) }

// isReleasedBy reports whether a companion is the one that a release is of, and may be deleted for it.
func (p *Pod) isReleasedBy(entry *v1alpha1.ReleasedNode) bool {
	return p.UID == entry.CompanionUID && !p.endedAfter(entry)
}
