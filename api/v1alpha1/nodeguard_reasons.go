// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// ConditionReady is True when each guarded node has a companion that is ready and up to date.
	ConditionReady = "Ready"
)

// Reasons of a NodeGuard.
const (
	// ReasonCompanionsReady means that each guarded node has a ready companion.
	ReasonCompanionsReady = "CompanionsReady"
	// ReasonNodesHeld means that nodes wait for their release. Each guarded node has a ready companion.
	ReasonNodesHeld = "NodesHeld"
	// ReasonNoGuardedNodes means that no node has a pod of the target, or should have.
	ReasonNoGuardedNodes = "NoGuardedNodes"
	// ReasonCompanionsNotReady means that companions are missing, not ready or out of date.
	ReasonCompanionsNotReady = "CompanionsNotReady"
	// ReasonTargetNotFound means that the DaemonSet of spec.target does not exist.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonInvalidPodSelector means that spec.target.podSelector cannot be used.
	ReasonInvalidPodSelector = "InvalidPodSelector"
	// ReasonOverlappingBudget means that a PodDisruptionBudget of another owner also selects the companions, or the seats of a
	// NodeDisruptionBudget. Kubernetes does not evict a
	// pod with two PodDisruptionBudgets.
	ReasonOverlappingBudget = "OverlappingBudget"
	// ReasonTargetNotDaemonSet means that spec.target.podSelector selects pods that do not belong to a DaemonSet, so a drain evicts them.
	ReasonTargetNotDaemonSet = "TargetNotDaemonSet"
	// ReasonBudgetForbidden means that the API server rejects the PodDisruptionBudget (quota, policy), so the nodes are not held.
	ReasonBudgetForbidden = "BudgetForbidden"
	// ReasonForeignCompanion means that a pod of another owner has the labels of a companion.
	ReasonForeignCompanion = "ForeignCompanion"
	// ReasonNameTaken means that a pod of another owner has the name of a companion or a check.
	ReasonNameTaken = "NameTaken"
	// ReasonTerminating means that the NodeGuard is being deleted and no longer holds nodes.
	ReasonTerminating = "Terminating"

	// ReasonReleasesDisabled means that maxUnavailable is 0.
	ReasonReleasesDisabled = "ReleasesDisabled"
	// ReasonWaitingForTurn means that release.check runs for a node whose release was requested earlier.
	ReasonWaitingForTurn = "WaitingForTurn"
	// ReasonWaitingForOtherRelease means that another NodeGuard has released another node, which this NodeGuard still holds.
	ReasonWaitingForOtherRelease = "WaitingForOtherRelease"
	// ReasonHeldByOtherGuard means that this NodeGuard would release the node, but another NodeGuard still holds it.
	ReasonHeldByOtherGuard = "HeldByOtherGuard"
	// ReasonCheckRunning means that release.check runs, or is about to.
	ReasonCheckRunning = "CheckRunning"
	// ReasonCheckFailed means that release.check failed, or task.check after the task.
	ReasonCheckFailed = "CheckFailed"
	// ReasonCheckNotStarting means that the pod of release.check cannot be created.
	ReasonCheckNotStarting = "CheckNotStarting"
	// ReasonAwaitingApproval means that the release is not approved.
	ReasonAwaitingApproval = "AwaitingApproval"
	// ReasonReleasing means that all conditions are met, and the release is about to be written.
	ReasonReleasing = "Releasing"

	// ReasonConditionMet means that the node was released because its condition was met.
	ReasonConditionMet = "ConditionMet"
	// ReasonDeadlineReached means that the node was released at its deadline.
	ReasonDeadlineReached = "DeadlineReached"
	// ReasonBreakGlass means that the node was released because it has the break-glass annotation.
	ReasonBreakGlass = "BreakGlass"

	// ReasonNodeHeld means that a node with a release request is held.
	ReasonNodeHeld = "NodeHeld"
	// ReasonNodeReleased means that a node was released.
	ReasonNodeReleased = "NodeReleased"
	// ReasonNodeAvailable means that a released node is available again.
	ReasonNodeAvailable = "NodeAvailable"
	// ReasonHoldDeadlinePassed means that a node is held past its deadline.
	ReasonHoldDeadlinePassed = "HoldDeadlinePassed"
)
