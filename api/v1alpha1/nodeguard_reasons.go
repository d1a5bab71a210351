// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// ConditionReady is True when each guarded node has a companion that is ready and up to date.
	ConditionReady = "Ready"
)

// Reasons of a NodeGuard.
const (
	// ReasonCompanionsReady : each guarded node has a ready companion.
	ReasonCompanionsReady = "CompanionsReady"
	// ReasonNoGuardedNodes : no node has a pod of the target, or should have.
	ReasonNoGuardedNodes = "NoGuardedNodes"
	// ReasonCompanionsNotReady : companions are missing, not ready or out of date.
	ReasonCompanionsNotReady = "CompanionsNotReady"
	// ReasonTargetNotFound : the DaemonSet of spec.target does not exist.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonInvalidPodSelector : spec.target.podSelector cannot be used.
	ReasonInvalidPodSelector = "InvalidPodSelector"
	// ReasonOverlappingBudget : somebody else's PodDisruptionBudget selects the companions too, and Kubernetes
	// evicts no pod that has two.
	ReasonOverlappingBudget = "OverlappingBudget"
	// ReasonTargetNotDaemonSet : pods that spec.target.podSelector selects are of no DaemonSet, and a drain evicts them itself.
	ReasonTargetNotDaemonSet = "TargetNotDaemonSet"
	// ReasonBudgetForbidden : the API server takes no PodDisruptionBudget (quota, a policy), and nothing holds the nodes.
	ReasonBudgetForbidden = "BudgetForbidden"
	// ReasonForeignCompanion : a pod of another owner has the labels of a companion.
	ReasonForeignCompanion = "ForeignCompanion"
	// ReasonNameTaken : a pod of another owner has the name that a companion or a check was to have.
	ReasonNameTaken = "NameTaken"
	// ReasonTerminating : the NodeGuard is being deleted, and holds nothing more.
	ReasonTerminating = "Terminating"

	// ReasonReleasesDisabled : maxUnavailable is 0.
	ReasonReleasesDisabled = "ReleasesDisabled"
	// ReasonWaitingForTurn : a node that asked before is being checked.
	ReasonWaitingForTurn = "WaitingForTurn"
	// ReasonWaitingForOtherRelease : another NodeGuard has let another node go, which this one holds.
	ReasonWaitingForOtherRelease = "WaitingForOtherRelease"
	// ReasonHeldByOtherGuard : this NodeGuard would let the node go, and another one would not yet.
	ReasonHeldByOtherGuard = "HeldByOtherGuard"
	// ReasonCheckRunning : release.check runs, or is about to.
	ReasonCheckRunning = "CheckRunning"
	// ReasonCheckFailed : release.check says no.
	ReasonCheckFailed = "CheckFailed"
	// ReasonCheckNotStarting : the pod of release.check cannot be made.
	ReasonCheckNotStarting = "CheckNotStarting"
	// ReasonAwaitingApproval : nobody has approved that the node goes.
	ReasonAwaitingApproval = "AwaitingApproval"
	// ReasonReleasing : all conditions are met, and the decision is about to be written.
	ReasonReleasing = "Releasing"

	// ReasonConditionMet : the node was let go since its condition was met.
	ReasonConditionMet = "ConditionMet"
	// ReasonDeadlineReached : the node was let go at its deadline.
	ReasonDeadlineReached = "DeadlineReached"
	// ReasonBreakGlass : the node was let go since somebody broke the glass.
	ReasonBreakGlass = "BreakGlass"

	// ReasonNodeHeld : a node that asks to go is held.
	ReasonNodeHeld = "NodeHeld"
	// ReasonNodeReleased : a node was let go.
	ReasonNodeReleased = "NodeReleased"
	// ReasonNodeAvailable : a node that was let go is back.
	ReasonNodeAvailable = "NodeAvailable"
	// ReasonHoldDeadlinePassed : a node is held past its deadline.
	ReasonHoldDeadlinePassed = "HoldDeadlinePassed"
)
