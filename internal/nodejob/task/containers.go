// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// maxContainersBytes limits the annotation with the names of containers. A cache may drop longer ones.
const maxContainersBytes = 1024

// NameContainers notes on a pod which containers it is created with, so that those that an admission webhook or policy adds can be
// told apart. A pod without an annotation is read as if none were added.
func NameContainers(pod *corev1.Pod) {
	names := strings.Join(namesOf(pod.Spec.Containers), ",")
	if len(names) == 0 || len(names) > maxContainersBytes {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[v1alpha1.ContainersAnnotation] = names
}

// Containers returns the names of the containers that a pod was created with, in their order.
func Containers(pod *corev1.Pod) []string {
	if names := pod.Annotations[v1alpha1.ContainersAnnotation]; names != "" {
		return strings.Split(names, ",")
	}
	return namesOf(pod.Spec.Containers)
}

// AddedContainers returns the names of the containers that were added to a pod when it was created, in their order.
func AddedContainers(pod *corev1.Pod) []string {
	own := Containers(pod)
	return slices.DeleteFunc(namesOf(pod.Spec.Containers), func(name string) bool { return slices.Contains(own, name) })
}

func namesOf(containers []corev1.Container) []string {
	names := make([]string, 0, len(containers))
	for i := range containers {
		names = append(names, containers[i].Name)
	}
	return names
}
