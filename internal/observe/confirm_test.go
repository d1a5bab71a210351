// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/runner/contract"
)

func TestWhatAPodSaysAboutItsConfirmation(t *testing.T) {
	waits := map[string]string{v1alpha1.ConfirmAnnotation: contract.ConfirmDigest("word")}
	confirmed := func(word string) map[string]string {
		return map[string]string{v1alpha1.ConfirmAnnotation: contract.ConfirmDigest("word"), v1alpha1.ConfirmedAnnotation: word}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, tt := range map[string]struct {
		annotations          map[string]string
		state                corev1.ContainerState
		ready                bool
		confirming, confirms bool
	}{
		"a pod without confirm is ready":         {state: running, ready: true},
		"the task runs":                          {annotations: waits, state: running},
		"the task has ended":                     {annotations: waits, state: running, ready: true, confirming: true},
		"it is confirmed":                        {annotations: confirmed("word"), state: running, ready: true, confirming: true, confirms: true},
		"a user has written another word":        {annotations: confirmed("other"), state: running, ready: true, confirming: true},
		"a user has written the digest":          {annotations: confirmed(contract.ConfirmDigest("word")), state: running, ready: true, confirming: true},
		"a user confirms a pod without confirm":  {annotations: map[string]string{v1alpha1.ConfirmedAnnotation: "word"}, state: running, ready: true},
		"the container has ended, and was ready": {annotations: waits, state: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}, ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := Pod(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Annotations: tt.annotations},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "task"}}},
				Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "task", State: tt.state, Ready: tt.ready}}},
			})
			if got.Confirming != tt.confirming || got.Confirmed != tt.confirms {
				t.Errorf("confirming %v, confirmed %v; want %v, %v", got.Confirming, got.Confirmed, tt.confirming, tt.confirms)
			}
		})
	}
}
