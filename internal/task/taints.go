package task

import (
	"slices"

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

// Untolerated returns the first taint that keeps a pod with these tolerations off a node, or nil. A
// PreferNoSchedule taint keeps nothing off.
func Untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range taints {
		taint := &taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		tolerates := func(t corev1.Toleration) bool { return tolerates(&t, taint) }
		if !slices.ContainsFunc(tolerations, tolerates) {
			return taint
		}
	}
	return nil
}

func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect {
		return false
	}
	if t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		return t.Key != "" && t.Value == taint.Value
	case corev1.TolerationOpExists:
		return true
	default:
		// Lt and Gt compare numbers behind a feature gate. Not to tolerate is the safe reading.
		return false
	}
}
