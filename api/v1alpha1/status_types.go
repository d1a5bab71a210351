// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// What the status of several kinds has in common.

// UnavailableNode is a node that uses the budget.
type UnavailableNode struct {
	// node is the name of the node.
	// +required
	Node string `json:"node,omitempty"`
	// since is the time at which the manager first observed that the node is unavailable.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// by describes who or what made the node unavailable, such as "NodeJob node-setup/no-thp" or "cordoned".
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	By string `json:"by,omitempty"`
}

// WaitingNode is a node that waits.
type WaitingNode struct {
	// node is the name of the node.
	// +required
	Node string `json:"node,omitempty"`
	// since is the time at which the manager first observed that the node waits.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// by describes who or what waits, such as "NodeJob node-setup/no-thp", "cordoned" or "tainted by Karpenter".
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	By string `json:"by,omitempty"`
	// reason is the reason in CamelCase, such as MaxUnavailableReached; Open if the disruption may begin now.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message describes why the node waits, and what ends that.
	// +optional
	Message string `json:"message,omitempty"`
	// until is the time at which the wait ends, or is decided otherwise. It is absent if it is not known.
	// +optional
	Until metav1.Time `json:"until,omitzero"`
}
