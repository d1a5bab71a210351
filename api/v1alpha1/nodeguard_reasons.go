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
	// ReasonOverlappingBudget : a PodDisruptionBudget of another owner also selects the companions. Kubernetes does not evict a
	// pod with two PodDisruptionBudgets.
	ReasonOverlappingBudget = "OverlappingBudget"
	// ReasonTargetNotDaemonSet : spec.target.podSelector selects pods that do not belong to a DaemonSet, so a drain evicts them.
	ReasonTargetNotDaemonSet = "TargetNotDaemonSet"
	// ReasonBudgetForbidden : the API server rejects the PodDisruptionBudget (quota, policy), so the nodes are not held.
	ReasonBudgetForbidden = "BudgetForbidden"
	// ReasonForeignCompanion : a pod of another owner has the labels of a companion.
	ReasonForeignCompanion = "ForeignCompanion"
	// ReasonNameTaken : a pod of another owner has the name of a companion or a check.
	ReasonNameTaken = "NameTaken"
	// ReasonTerminating : the NodeGuard is being deleted and no longer holds nodes.
	ReasonTerminating = "Terminating"

	// ReasonReleasesDisabled : maxUnavailable is 0.
	ReasonReleasesDisabled = "ReleasesDisabled"
	// ReasonWaitingForTurn : release.check runs for a node whose release was requested earlier.
	ReasonWaitingForTurn = "WaitingForTurn"
	// ReasonWaitingForOtherRelease : another NodeGuard has released another node, which this NodeGuard still holds.
	ReasonWaitingForOtherRelease = "WaitingForOtherRelease"
	// ReasonHeldByOtherGuard : this NodeGuard would release the node, but another NodeGuard still holds it.
	ReasonHeldByOtherGuard = "HeldByOtherGuard"
	// ReasonCheckRunning : release.check runs, or is about to.
	ReasonCheckRunning = "CheckRunning"
	// ReasonCheckFailed : release.check failed.
	ReasonCheckFailed = "CheckFailed"
	// ReasonCheckNotStarting : the pod of release.check cannot be created.
	ReasonCheckNotStarting = "CheckNotStarting"
	// ReasonAwaitingApproval : the release is not approved.
	ReasonAwaitingApproval = "AwaitingApproval"
	// ReasonReleasing : all conditions are met, and the release is about to be written.
	ReasonReleasing = "Releasing"

	// ReasonConditionMet : the node was released because its condition was met.
	ReasonConditionMet = "ConditionMet"
	// ReasonDeadlineReached : the node was released at its deadline.
	ReasonDeadlineReached = "DeadlineReached"
	// ReasonBreakGlass : the node was released because it has the break-glass annotation.
	ReasonBreakGlass = "BreakGlass"

	// ReasonNodeHeld : a node with a release request is held.
	ReasonNodeHeld = "NodeHeld"
	// ReasonNodeReleased : a node was released.
	ReasonNodeReleased = "NodeReleased"
	// ReasonNodeAvailable : a released node is available again.
	ReasonNodeAvailable = "NodeAvailable"
	// ReasonHoldDeadlinePassed : a node is held past its deadline.
	ReasonHoldDeadlinePassed = "HoldDeadlinePassed"
)
