// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Keys that the manager writes for NodeDisruptionBudgets, all in its own namespace.
const (
	// BudgetGroupLabel, on a seat and on its PodDisruptionBudget, is the group of nodes that are subject to the same limits. The
	// PodDisruptionBudget selects the seats of the group by it, and placeholders.
	BudgetGroupLabel = Group + "/budget-group"

	// PlaceholderGate is the scheduling gate of a placeholder: a pod that is never scheduled, and that the PodDisruptionBudgets of seats or
	// companions expect beside these.
	PlaceholderGate = Group + "/placeholder"

	// SeatNodeAnnotation, on a seat, is the UID of its Node.
	SeatNodeAnnotation = Group + "/seat-node-uid"

	// SeatReturnedAnnotation, on a seat, is "true" if the node returned with it from an absence that was granted. The time at which the
	// seat was created is then the end of a disruption.
	SeatReturnedAnnotation = Group + "/seat-returned"
)
