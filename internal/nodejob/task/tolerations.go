// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// always are the taints that every task on nodes tolerates: the task may fix their cause, or must run before they are
// removed. They are those that the DaemonSet controller tolerates for host network pods (k8s.io/kubernetes
// pkg/controller/daemon/util, AddOrUpdateDaemonPodTolerations).
var always = []string{
	corev1.TaintNodeNotReady,
	corev1.TaintNodeUnreachable,
	corev1.TaintNodeDiskPressure,
	corev1.TaintNodeMemoryPressure,
	corev1.TaintNodePIDPressure,
	corev1.TaintNodeUnschedulable,
	corev1.TaintNodeNetworkUnavailable,
}

// Tolerations returns the user's tolerations and those that every task has.
func Tolerations(users []corev1.Toleration) []corev1.Toleration {
	all := slices.Clone(users)
	for _, key := range always {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return all
}

// tolerating returns tolerations of taints by their keys.
func tolerating(keys []string) []corev1.Toleration {
	tolerations := make([]corev1.Toleration, 0, len(keys))
	for _, key := range keys {
		tolerations = append(tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return tolerations
}
