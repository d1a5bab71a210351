// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"slices"

	"github.com/go-logr/logr" //nolint:depguard // a function of k8s.io/api asks for a logger; it gets one that discards
	corev1 "k8s.io/api/core/v1"
)

// always are the taints that no node-level task waits for: the task may be what mends them, or has
// to run before they go. They are those that the DaemonSet controller tolerates for host network
// pods (k8s.io/kubernetes pkg/controller/daemon/util, AddOrUpdateDaemonPodTolerations).
var always = []string{
	corev1.TaintNodeNotReady,
	corev1.TaintNodeUnreachable,
	corev1.TaintNodeDiskPressure,
	corev1.TaintNodeMemoryPressure,
	corev1.TaintNodePIDPressure,
	corev1.TaintNodeUnschedulable,
	corev1.TaintNodeNetworkUnavailable,
}

// Tolerations returns the user's with those that every task has.
func Tolerations(users []corev1.Toleration) []corev1.Toleration {
	all := slices.Clone(users)
	for _, key := range always {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return all
}

// tolerating are the tolerations of taints by their keys.
func tolerating(keys []string) []corev1.Toleration {
	tolerations := make([]corev1.Toleration, 0, len(keys))
	for _, key := range keys {
		tolerations = append(tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return tolerations
}

// Untolerated returns the first taint that keeps a pod with these tolerations off a node, or nil. A
// PreferNoSchedule taint keeps nothing off.
func Untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range taints {
		taint := &taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		// The operators Lt and Gt, which are behind a feature gate, tolerate nothing here: the safe reading.
		tolerates := func(t corev1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), taint, false) }
		if !slices.ContainsFunc(tolerations, tolerates) {
			return taint
		}
	}
	return nil
}
