// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// PodEnded reports whether no container of a pod in this phase runs or will run.
func PodEnded(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// PodReady reports whether a pod is ready.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// EvictedByAPI is the reason of the condition DisruptionTarget of a pod that a client has evicted. Source: k8s.io/kubernetes
// pkg/registry/core/pod/storage/eviction.go (addConditionAndDeletePod), which writes the condition before it deletes the pod.
const EvictedByAPI = "EvictionByEvictionAPI"

// IsEvicted reports whether the Eviction API has ended a pod.
func IsEvicted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == EvictedByAPI
	})
}

// ContainerStatus returns the status of a container; nil if the kubelet has not reported it.
func ContainerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == name {
			return status
		}
	}
	return nil
}

// ShortHash returns ten hexadecimal digits for a text, as used in names and revisions.
func ShortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:10]
}
