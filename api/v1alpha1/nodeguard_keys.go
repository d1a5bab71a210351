// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Keys that a NodeGuard writes, and that users write for it.
const (
	// NodeGuardLabel, on a companion, a check's pod and a budget, names their NodeGuard.
	NodeGuardLabel = Group + "/nodeguard"

	// GuardedNodeLabel, on a companion and a check's pod, is a hash of the node's name, which may be longer than a label's value.
	GuardedNodeLabel = Group + "/guarded-node"

	// GuardRoleLabel, on a pod of a NodeGuard, is "companion", "placeholder" or "check". A budget selects the first two.
	GuardRoleLabel = Group + "/guard-role"

	// NodeGuardUIDAnnotation, on each object that a NodeGuard creates, is the UID of the NodeGuard: owner references may be removed.
	NodeGuardUIDAnnotation = Group + "/nodeguard-uid"

	// RequestedAtAnnotation, on a budget, is a JSON object of the times at which the release requests of nodes were first observed, by the
	// hash of the node's name; on a check's pod, the request that the check belongs to.
	RequestedAtAnnotation = Group + "/requested-at"

	// EndedReleaseAnnotation, on a companion, identifies the release that has ended before the companion was deleted. A manager with a
	// stale view must not delete it for that release: its write meets another resource version.
	EndedReleaseAnnotation = Group + "/closed-after-release"

	// ApproveReleaseAnnotation, on a node, lists the NodeGuards, as namespace/name and separated by commas, that
	// may release the node if release.approval is Required. It is removed when the node is available again.
	ApproveReleaseAnnotation = Group + "/approve-release"

	// BreakGlassAnnotation, on a node with a release request, makes every NodeGuard release it immediately. The value is
	// the reason. It is removed when the node is available again.
	BreakGlassAnnotation = Group + "/break-glass"
)

// Roles of a NodeGuard's pods.
const (
	GuardRoleCompanion   = "companion"
	GuardRoleCheck       = "check"
	GuardRolePlaceholder = "placeholder"
)
