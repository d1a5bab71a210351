// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import "k8s.io/apimachinery/pkg/util/intstr"

// MaxUnavailable is how many of some nodes a limit of NodeGuards and NodeDisruptionBudgets allows to be unavailable. Percentages are
// rounded down, but allow at least one node unless they are 0%. Without a value, and with one that the API server rejects, it is 0.
func MaxUnavailable(value *intstr.IntOrString, nodes int) int {
	if value == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, nodes, false)
	if hundred, _ := intstr.GetScaledValueFromIntOrPercent(value, 100, false); err != nil || hundred <= 0 {
		return 0
	}
	return max(n, 1)
}
