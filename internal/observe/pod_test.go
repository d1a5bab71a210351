// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestASilentKubelet covers a kubelet that reports a pod before it can start the container.
func TestASilentKubelet(t *testing.T) {
	creating := []corev1.ContainerStatus{{Name: "task", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	for name, tt := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"nothing is reported":           {corev1.PodStatus{Phase: corev1.PodPending}, true},
		"the container is created":      {corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: creating}, false},
		"the pod is rejected":           {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods"}, false},
		"an init container is reported": {corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: creating}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Pod(&corev1.Pod{Status: tt.status}).Silent; got != tt.want {
				t.Errorf("silent: %t, want %t", got, tt.want)
			}
		})
	}
}
