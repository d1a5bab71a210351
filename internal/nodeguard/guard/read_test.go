// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestPodsOfTheTarget(t *testing.T) {
	ready := []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}
	for name, tt := range map[string]struct {
		pod       corev1.Pod
		want      bool
		wantReady bool
	}{
		"ready":                 {corev1.Pod{Status: corev1.PodStatus{Conditions: ready}}, true, true},
		"without a condition":   {corev1.Pod{}, true, false},
		"not ready":             {corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse}}}}, true, false},
		"ready and terminating": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(t0))}, Status: corev1.PodStatus{Conditions: ready}}, true, false},
		"ended":                 {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Conditions: ready}}, false, false},
	} {
		if got, is := ViewTarget(&tt.pod); is != tt.want || got.Ready != tt.wantReady {
			t.Errorf("%s: %t, ready: %t; want %t, ready: %t", name, is, got.Ready, tt.want, tt.wantReady)
		}
	}
}

// The phase of a pod counts, unless containers were added to it.
func TestHowAPodHasEnded(t *testing.T) {
	ended := func(name string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name:  name,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		}
	}
	mesh := corev1.ContainerStatus{Name: "mesh", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	for name, tt := range map[string]struct {
		role        string
		status      corev1.PodStatus
		terminating bool
		want        corev1.PodPhase
		wantCode    int32
		wantMessage string
	}{
		"a check runs":                           {v1alpha1.GuardRoleCheck, corev1.PodStatus{Phase: corev1.PodRunning}, false, corev1.PodRunning, 0, ""},
		"a check of one container has ended":     {v1alpha1.GuardRoleCheck, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{ended(ContainerName, 3)}}, false, corev1.PodRunning, 0, ""},
		"a check has failed":                     {v1alpha1.GuardRoleCheck, corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{ended(ContainerName, 3)}}, false, corev1.PodFailed, 3, ""},
		"a check of two containers is deleted":   {v1alpha1.GuardRoleCheck, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{ended(ContainerName, 0), mesh}}, true, corev1.PodRunning, 0, ""},
		"a check was evicted before it started":  {v1alpha1.GuardRoleCheck, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", ContainerStatuses: []corev1.ContainerStatus{{Name: ContainerName}}}, false, corev1.PodFailed, -1, "Evicted"},
		"a companion of two containers restarts": {v1alpha1.GuardRoleCompanion, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{ended(ContainerName, 1), mesh}}, false, corev1.PodRunning, 0, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.GuardRoleLabel: tt.role}}, Status: tt.status}
		if tt.terminating {
			pod.DeletionTimestamp = new(metav1.NewTime(t0))
		}
		if got := ViewPod(pod); got.Phase != tt.want || got.ExitCode != tt.wantCode || got.Message != tt.wantMessage {
			t.Errorf(
				"%s: %s with %d %q, want %s with %d %q",
				name,
				got.Phase,
				got.ExitCode,
				got.Message,
				tt.want,
				tt.wantCode,
				tt.wantMessage,
			)
		}
	}
}
