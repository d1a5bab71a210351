// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWhyAContainerDoesNotStart(t *testing.T) {
	digits := strings.Repeat("a", 64)
	waits := func(reason, message string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{
			{
				Image: "registry.test/a:1",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
			},
		}
	}
	runs := []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	tests := map[string]struct {
		init, main []corev1.ContainerStatus
		want       string
	}{
		"it runs":                    {nil, runs, ""},
		"it is being created":        {nil, waits("ContainerCreating", ""), ""},
		"an init container runs":     {runs, waits("PodInitializing", ""), ""},
		"the image cannot be pulled": {nil, waits("ErrImagePull", "not found"), "ImagePullBackOff: image registry.test/a:1"},
		"the image pull backs off": {
			nil,
			waits("ImagePullBackOff", "Back-off pulling"),
			"ImagePullBackOff: image registry.test/a:1",
		},
		"the image of a volume cannot be pulled": {
			nil,
			waits("ErrImagePull", `failed to pull and unpack image "docker.io/library/tools@sha256:`+digits+`": not found`),
			"ImagePullBackOff: image tools@sha256:" + digits + " of a volume",
		},
		"the pull of the image of a volume backs off": {
			nil,
			waits("ImagePullBackOff", `Back-off pulling image "tools@sha256:`+digits+`": ErrImagePull: not found`),
			"ImagePullBackOff: image tools@sha256:" + digits + " of a volume",
		},
		"the image of a volume has a tag": {
			nil, waits("ImagePullBackOff", `Back-off pulling image "tools:1"`), "ImagePullBackOff: the image of a volume",
		},
		"the image with its registry": {
			nil,
			waits("ErrImagePull", `failed to pull and unpack image "registry.test/a:1": not found`),
			"ImagePullBackOff: image registry.test/a:1",
		},
		"it crashes": {nil, waits("CrashLoopBackOff", "back-off 10s"), "CrashLoopBackOff: back-off 10s"},
		"no message": {nil, waits("CreateContainerError", ""), "CreateContainerError"},
		"an init container crashes": {
			waits("CrashLoopBackOff", "back-off 10s"),
			waits("PodInitializing", ""),
			"CrashLoopBackOff: back-off 10s",
		},
		"the message of a kubelet is escaped": {nil, waits("RunContainerError", "\x1b[2J"), `RunContainerError: \x1b[2J`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: tt.init, ContainerStatuses: tt.main}}
			if got := Waiting(pod); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	long := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: waits("RunContainerError", strings.Repeat("x", 1000))}}
	if got := len(Waiting(long)); got > maxWaitingBytes {
		t.Errorf("%d bytes, of which %d are allowed", got, maxWaitingBytes)
	}
}
