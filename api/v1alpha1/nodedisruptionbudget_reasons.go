// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Reasons of a NodeDisruptionBudget.
const (
	// ReasonBudgetOpen means that a disruption may begin.
	ReasonBudgetOpen = "Open"
	// ReasonFrozen means that a limit is 0, so no disruption begins.
	ReasonFrozen = "Frozen"
	// ReasonFrozenWithoutEnd means that a limit is 0 and spec.expiresAt is unset, so no disruption begins until a user changes the budget.
	ReasonFrozenWithoutEnd = "FrozenWithoutEnd"
	// ReasonWindowClosed means that no window is open, or the date is excepted.
	ReasonWindowClosed = "WindowClosed"
	// ReasonPaceNotReached means that spec.paceSeconds has not passed since the last disruption ended.
	ReasonPaceNotReached = "PaceNotReached"
	// ReasonRequirementNotMet means that a requirement of spec.requirements is not met.
	ReasonRequirementNotMet = "RequirementNotMet"
	// ReasonRequirementUnknown means that a requirement of spec.requirements cannot be checked. Then no disruption begins.
	ReasonRequirementUnknown = "RequirementUnknown"
	// ReasonExpired means that spec.expiresAt has passed. On a node of a NodeJob, it means that the task is no longer needed there
	// (spec.expires), and is rolled back if it had run.
	ReasonExpired = "Expired"
	// ReasonNoSelectedNodes means that the budget selects no node.
	ReasonNoSelectedNodes = "NoSelectedNodes"
	// ReasonSeatsNotReady means that seats are missing or not ready, so those nodes are not held, or count as unavailable, or that the
	// PodDisruptionBudgets of a freeze do not hold all seats yet.
	ReasonSeatsNotReady = "SeatsNotReady"
	// ReasonSeatRefused means that the API server rejects a seat or a PodDisruptionBudget.
	ReasonSeatRefused = "SeatRefused"
	// ReasonInvalidSpec means that a window, a time zone, a date or a requirement cannot be used. Then no disruption begins.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonWindowNeverOpens means that no window opens within a year.
	ReasonWindowNeverOpens = "WindowNeverOpens"
	// ReasonWindowsNeverOverlap means that another budget selects the same nodes, and both are never open at the same time within a year.
	ReasonWindowsNeverOverlap = "WindowsNeverOverlap"
	// ReasonTooManyGroups means that the limits of all budgets divide the nodes into more groups than the manager supports. Then no
	// disruption begins.
	ReasonTooManyGroups = "TooManyGroups"
	// ReasonWaitingForBudget means that a node waits for a NodeDisruptionBudget.
	ReasonWaitingForBudget = "WaitingForBudget"
	// ReasonNodeUnavailable means that a node uses a NodeDisruptionBudget.
	ReasonNodeUnavailable = "NodeUnavailable"
	// ReasonBudgetBypassed means that the seat of a node was deleted instead of evicted while a NodeDisruptionBudget was closed.
	ReasonBudgetBypassed = "BudgetBypassed"
	// ReasonBudgetClosed means that a NodeDisruptionBudget is closed: it is frozen, no window is open that is long
	// enough, or a requirement is not met.
	ReasonBudgetClosed = "BudgetClosed"
	// ReasonWindowTooShort means that a run can take longer than each window of a NodeDisruptionBudget, so it never starts.
	ReasonWindowTooShort = "WindowTooShort"
)
