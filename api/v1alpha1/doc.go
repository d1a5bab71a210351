// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the everynode.dev/v1alpha1 API: the kinds NodeJob, NodeGuard and NodeDisruptionBudget, the reasons
// that their conditions, events and metrics carry, and the keys that Everynode writes on nodes and pods.
//
// +kubebuilder:object:generate=true
// +groupName=everynode.dev
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="../applyconfiguration"
package v1alpha1
