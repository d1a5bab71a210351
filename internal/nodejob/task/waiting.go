// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/outcome"
)

// maxWaitingBytes limits the message of a kubelet about a container that does not start.
const maxWaitingBytes = 256

// Waiting returns why a container of a pod does not start, or "". The two reasons that alternate while an image pull is
// retried become one. Otherwise the status would change with each retry.
func Waiting(pod *corev1.Pod) string {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			w := statuses[i].State.Waiting
			if w == nil {
				continue
			}
			what := w.Message
			switch w.Reason {
			case "", "ContainerCreating", "PodInitializing":
				continue
			case "ErrImagePull":
				return outcome.CleanHead("ImagePullBackOff: image "+statuses[i].Image, maxWaitingBytes)
			case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable":
				what = "image " + statuses[i].Image
			}
			if what == "" {
				return outcome.CleanHead(w.Reason, maxWaitingBytes)
			}
			return outcome.CleanHead(w.Reason+": "+what, maxWaitingBytes)
		}
	}
	return ""
}
