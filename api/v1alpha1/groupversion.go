// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of every Everynode kind, and the suffix of every key it writes on a node.
const Group = "everynode.dev"

var (
	// GroupVersion is everynode.dev/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

	// SchemeGroupVersion is GroupVersion, under the name that generated code uses.
	SchemeGroupVersion = GroupVersion

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the kinds of this package.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NodeJob{}, &NodeJobList{}, &NodeGuard{}, &NodeGuardList{}, &NodeDisruptionBudget{}, &NodeDisruptionBudgetList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
