// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/outcome"
)

// TestConcluded covers the time between the end of a container and the end of its pod.
func TestConcluded(t *testing.T) {
	report := func(o outcome.Outcome) string { return string(o.Encode()) }
	pod := func(code int32, message string, changes ...func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "task"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "task", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}},
			}},
		}
		for _, change := range changes {
			change(pod)
		}
		return pod
	}
	success, failure := report(outcome.Outcome{Message: "ok"}), report(outcome.Outcome{ExitCode: 3, Reason: outcome.ReasonTaskFailed})
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	always := corev1.ContainerRestartPolicyAlways
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a reported success":             {pod(0, success), true},
		"a reported failure":             {pod(3, failure), true},
		"a success of an ended pod":      {pod(0, success, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), true},
		"a success of a pod that failed": {pod(0, success, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), true},
		"a success whose exit code the runtime has lost": {pod(255, success, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated.Reason = "Unknown"
		}), true},
		"an init container has ended": {pod(0, success, func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: p.Status.ContainerStatuses[0].State}}
		}), true},
		"an exit code without a report":         {pod(0, "done"), false},
		"a task that was interrupted":           {pod(143, report(outcome.Outcome{ExitCode: 143, Reason: outcome.ReasonDisrupted})), false},
		"a container that was lost":             {pod(137, "", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Terminated.Reason = "ContainerStatusUnknown" }), false},
		"a container that runs":                 {pod(0, success, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = running }), false},
		"a pod that restarts its containers":    {pod(0, success, func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }), false},
		"a pod that restarts failed containers": {pod(3, failure, func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }), false},
		"a container that has its own rules":    {pod(3, failure, func(p *corev1.Pod) { p.Spec.Containers[0].RestartPolicy = &always }), false},
		"another container":                     {pod(0, success, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "other"}) }), false},
		"a sidecar that runs": {pod(0, success, func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar", State: running}}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Pod(tt.pod).Concluded; got != tt.want {
				t.Errorf("concluded: %t, want %t", got, tt.want)
			}
			ended := tt.want || tt.pod.Status.Phase != corev1.PodRunning
			if got := Ended(tt.pod); got != ended {
				t.Errorf("ended: %t, want %t", got, ended)
			}
		})
	}
}

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
