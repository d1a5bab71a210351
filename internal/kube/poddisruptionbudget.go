// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// DescriptionAnnotation says for people what an object is for.
// Source: https://kubernetes.io/docs/reference/labels-annotations-taints/#description
const DescriptionAnnotation = "kubernetes.io/description"

// AnyPod stands in status.disruptedPods of a PodDisruptionBudget that is cached for more pods than are kept.
const AnyPod = ""

// ForeignBudget is a PodDisruptionBudget that Everynode did not create.
type ForeignBudget struct {
	Name     string
	Selector labels.Selector
}

// SameSpec reports whether two PodDisruptionBudgets require the same of the same pods.
func SameSpec(a, b *policyv1.PodDisruptionBudgetSpec) bool {
	return a.MaxUnavailable == nil && a.MinAvailable != nil && *a.MinAvailable == *b.MinAvailable &&
		a.UnhealthyPodEvictionPolicy != nil && *a.UnhealthyPodEvictionPolicy == *b.UnhealthyPodEvictionPolicy &&
		metav1.FormatLabelSelector(a.Selector) == metav1.FormatLabelSelector(b.Selector)
}
