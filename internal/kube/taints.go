// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"

	"github.com/go-logr/logr" //nolint:depguard // a function of k8s.io/api asks for a logger; it gets one that discards
	corev1 "k8s.io/api/core/v1"
)

// Untolerated returns the first taint that excludes a pod with these tolerations from a node, or nil. A
// PreferNoSchedule taint excludes no pod.
func Untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range taints {
		if !Tolerated(&taints[i], tolerations) {
			return &taints[i]
		}
	}
	return nil
}

// Tolerated reports whether a taint does not prevent a task with these tolerations from running on the node.
func Tolerated(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	if taint.Effect == corev1.TaintEffectPreferNoSchedule {
		return true
	}
	// The operators Lt and Gt, which are behind a feature gate, tolerate nothing here, which is the safe interpretation.
	tolerates := func(t corev1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), taint, false) }
	return slices.ContainsFunc(tolerations, tolerates)
}
