// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Keys that a NodeGuard writes, and that people write for it.
const (
	// NodeGuardLabel, on a companion, a check's pod and a budget, names their NodeGuard.
	NodeGuardLabel = Group + "/nodeguard"

	// GuardedNodeLabel, on the same, is a hash of the node's name, which may be longer than a label's value.
	// A budget selects its companion by both.
	GuardedNodeLabel = Group + "/guarded-node"

	// GuardRoleLabel, on a pod of a NodeGuard, is "companion" or "check".
	GuardRoleLabel = Group + "/guard-role"

	// NodeGuardUIDAnnotation, on all that a NodeGuard makes, is its UID: owner references may be taken off.
	NodeGuardUIDAnnotation = Group + "/nodeguard-uid"

	// GuardedNodeAnnotation, on a budget, is the name of its node.
	GuardedNodeAnnotation = Group + "/guarded-node"

	// RequestedAtAnnotation, on a budget, is when its node was first seen to ask to go; on a check's pod, which
	// asking it is for.
	RequestedAtAnnotation = Group + "/requested-at"

	// EndedReleaseAnnotation, on a budget, is the letting-go after which it was closed. A manager that slept through it
	// must not open the budget again: its write meets another version.
	EndedReleaseAnnotation = Group + "/ended"

	// ApproveReleaseAnnotation, on a node, lists the NodeGuards, as namespace/name and separated by commas, that
	// may let it go, where release.when is Approval. It is taken off when the node is back.
	ApproveReleaseAnnotation = Group + "/approve-release"

	// BreakGlassAnnotation, on a node that asks to go, has every NodeGuard let it go at once. The value is the reason. It
	// is taken off when the node is back.
	BreakGlassAnnotation = Group + "/break-glass"
)

// Roles of a NodeGuard's pods.
const (
	GuardRoleCompanion = "companion"
	GuardRoleCheck     = "check"
)
