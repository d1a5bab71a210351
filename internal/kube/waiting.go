// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"

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
				return outcome.CleanHead("ImagePullBackOff: "+pulled(&statuses[i]), maxWaitingBytes)
			case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable":
				what = pulled(&statuses[i])
			}
			if what == "" {
				return outcome.CleanHead(w.Reason, maxWaitingBytes)
			}
			return outcome.CleanHead(w.Reason+": "+what, maxWaitingBytes)
		}
	}
	return ""
}

// pulled returns which image a container waits for. A kubelet reports the image of a volume as if it were that of the container, and
// names it only in the message. Source: kubernetes/pkg/kubelet/kuberuntime (getImageVolumes), kubernetes/pkg/kubelet/images.
func pulled(status *corev1.ContainerStatus) string {
	message := status.State.Waiting.Message
	switch image := byDigest(message); {
	case image != "" && !strings.HasSuffix(status.Image, image):
		return "image " + image + " of a volume"
	case image == "" && strings.Contains(message, `image "`) && !strings.Contains(message, lastPart(status.Image)):
		return "the image of a volume"
	}
	return "image " + status.Image
}

const (
	digestMark   = "@sha256:"
	digestDigits = 64
)

// byDigest returns the last part of the name of the first image with a digest in a message, and the digest; "" if there is none. Unlike
// its registry, they are the same in all messages about the image.
func byDigest(message string) string {
	name, digest, found := strings.Cut(message, digestMark)
	if !found || len(digest) < digestDigits {
		return ""
	}
	return lastPart(name) + digestMark + digest[:digestDigits]
}

// lastPart returns the last part of the name of an image at the end of a text.
func lastPart(text string) string { return text[strings.LastIndexAny(text, `/" `)+1:] }
