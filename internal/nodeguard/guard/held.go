// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// hold is why a node is held.
type holding struct {
	// Until is when the reason ends without an event; zero if only an event can end it.
	hold.Why
	// release is what ends the reason, after "released when"; "" if the message says it.
	release string
	// late is true past the deadline, and note says so.
	late bool
	note string
	// reserves is true if the check of the node may start.
	reserves bool
}

// String returns the message, what ends the hold, and that the deadline has passed.
func (h *holding) String() string {
	said := h.Message
	if h.release != "" {
		said += "; released when: " + h.release
	}
	return said + h.note
}

// releaseRules decide whether a node is released. They have no access to the plan.
type releaseRules struct {
	observed
	capacity capacity
	peers    peers
}

// holdRule is a reason to hold a node.
type holdRule struct {
	// applies returns the hold, or nil if the rule does not hold the node.
	applies func(*releaseRules, *nodePlan) *holding
	// own is true if the rule does not depend on other NodeGuards, so that they can wait for it (Stances). The rules of a
	// check are not among them: Stances distinguishes a check from all other reasons.
	own bool
}

// holdRules are all reasons to hold a node. The first rule that applies is reported. If none applies, the node is released.
var holdRules = []holdRule{
	// NodeDisruptionBudgets decide first: a node that is released before its seat is evicted would make a node whose seat is evicted
	// wait here, while that one makes it wait for its seat.
	{applies: (*releaseRules).waitingForBudget},
	// No node is released, regardless of which nodes are unavailable.
	{applies: (*releaseRules).overlappingBudget, own: true},
	{applies: (*releaseRules).breakGlassElsewhere, own: true},
	{applies: (*releaseRules).releasesDisabled, own: true},
	// Releases that have started are completed before another one starts, so that two nodes do not wait for each other at
	// different NodeGuards.
	{applies: (*releaseRules).waitingForOtherRelease},
	{applies: (*releaseRules).releaseInProgress},
	// Too many other nodes are unavailable. No check runs meanwhile, because its result would expire.
	{applies: (*releaseRules).maxUnavailableReached, own: true},
	// The conditions in release.approval and release.check. A check that runs or has failed is reported even if another NodeGuard holds the node
	// too. A check does not start while another NodeGuard holds the node.
	{applies: (*releaseRules).awaitingApproval, own: true},
	{applies: (*releaseRules).checkRunningOrFailed},
	{applies: (*releaseRules).heldByOtherGuard},
	{applies: (*releaseRules).checkNotStarted},
	// The end of an earlier release is written in another pass than the next release.
	{applies: (*releaseRules).earlierReleaseEnds},
}

// firstHold returns why a node is not released now; nil if it is.
func (r *releaseRules) firstHold(n *nodePlan) *holding {
	for _, rule := range holdRules {
		if h := rule.applies(r, n); h != nil {
			return r.withDeadline(n, h)
		}
	}
	return nil
}

func (r *releaseRules) waitingForBudget(n *nodePlan) *holding {
	if !n.seated {
		return nil
	}
	return &holding{
		Why:     hold.Why{Reason: v1alpha1.ReasonWaitingForBudget, Message: "its seat is not evicted yet: NodeDisruptionBudgets limit the node, and decide before NodeGuards (kubectl everynode budgets)"},
		release: "a drain evicts the seat of the node, which its NodeDisruptionBudgets must allow, or the pod of the seat is deleted",
	}
}

func (r *releaseRules) overlappingBudget(*nodePlan) *holding {
	if r.overlapping == "" {
		return nil
	}
	return &holding{
		Why:     hold.Why{Reason: v1alpha1.ReasonOverlappingBudget, Message: "PodDisruptionBudget " + r.overlapping + " selects the companions as well, and Kubernetes evicts no pod that has two"},
		release: "that budget selects other pods, or spec.template has other labels",
	}
}

func (r *releaseRules) breakGlassElsewhere(*nodePlan) *holding {
	if !r.in.PeersUnknown {
		return nil
	}
	return &holding{
		Why:     hold.Why{Reason: v1alpha1.ReasonReleasing, Message: "another node has the break-glass annotation and is released first"},
		release: "that release is written",
	}
}

func (r *releaseRules) releasesDisabled(*nodePlan) *holding {
	if r.capacity.max > 0 {
		return nil
	}
	return &holding{
		Why:     hold.Why{Reason: v1alpha1.ReasonReleasesDisabled, Message: "spec.maxUnavailable is 0, so no node is released"},
		release: "spec.maxUnavailable is raised, or the node has the annotation " + v1alpha1.BreakGlassAnnotation,
	}
}

// earlierReleaseEnds holds a node while this pass ends an earlier release of it. The other NodeGuards must see that before they
// are asked about the next one.
func (r *releaseRules) earlierReleaseEnds(n *nodePlan) *holding {
	if !n.ends {
		return nil
	}
	return &holding{
		Why:     hold.Why{Reason: v1alpha1.ReasonReleasing, Message: "the end of its earlier release is recorded first"},
		release: "that is written",
	}
}

// waitingForOtherRelease holds a node while another node, which another NodeGuard has released, is still held here.
func (r *releaseRules) waitingForOtherRelease(n *nodePlan) *holding {
	first := r.peers.first
	if first == nil || n == first || r.mayFollow(n) {
		return nil
	}
	return &holding{
		Why: hold.Why{Reason: v1alpha1.ReasonWaitingForOtherRelease, Message: "NodeGuard " + first.peerRelease.guard + " has released node " + first.Name +
			" while this NodeGuard still holds it; that node is released first"},
		release: "node " + first.Name + " is released here too, or its release request ends",
	}
}

// releaseInProgress holds a node while this pass releases another node that other NodeGuards guard too. They must see one
// release before the next one.
func (r *releaseRules) releaseInProgress(*nodePlan) *holding {
	if r.peers.releasing == nil {
		return nil
	}
	return &holding{
		Why:     hold.Why{Reason: v1alpha1.ReasonReleasing, Message: "the release of node " + r.peers.releasing.Name + " is in progress"},
		release: "that release is written and the other NodeGuards see it",
	}
}
