// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
)

func TestTheInitContainerThatATaskWaitsFor(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	for name, tt := range map[string]struct {
		is   []corev1.ContainerStatus
		want string
	}{
		"none":                        {nil, ""},
		"one that runs":               {[]corev1.ContainerStatus{{Name: "a", State: ended}, {Name: "b", State: running}, {Name: "c", State: waiting}}, "b"},
		"one that runs, and sidecars": {[]corev1.ContainerStatus{{Name: "sidecar", State: running}, {Name: "b", State: running}}, "b"},
		"all have ended":              {[]corev1.ContainerStatus{{Name: "a", State: ended}}, ""},
	} {
		if got := Pod(&corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: tt.is}}).Initializing; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestContainersThatAdmissionAdds covers a webhook or a policy that adds a container to the pod of a task. Such a container
// neither decides how the task ended, nor when.
func TestContainersThatAdmissionAdds(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(code int32, message string) corev1.ContainerState {
		return corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: metav1.NewTime(time.Unix(9, 0))},
		}
	}
	lostEnd := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}
	success := string(outcome.Outcome{Message: "ok"}.Encode())
	failure := string(outcome.Outcome{ExitCode: 3, Reason: outcome.ReasonTaskFailed, Message: "no"}.Encode())
	interrupted := string(outcome.Outcome{ExitCode: 143, Reason: outcome.ReasonDisrupted}.Encode())
	type states map[string]corev1.ContainerState
	type changes []func(*corev1.Pod)
	phase := func(phase corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = phase } }
	for name, tt := range map[string]struct {
		made    string   // the containers that the manager has made
		spec    []string // those of the pod, in this order
		is      states
		changes changes
		// want is whether the outcome is known, and wantExit and wantMessage what it is.
		want        bool
		wantExit    int32
		wantMessage string
	}{
		"the task runs":                    {made: "task", spec: []string{"task", "mesh"}, is: states{"task": running, "mesh": running}},
		"a sidecar runs after a success":   {made: "task", spec: []string{"task", "mesh"}, is: states{"task": ended(0, success), "mesh": running}, want: true, wantMessage: "ok\nthe container mesh still ran when the task had ended: an admission webhook or policy added it to the pod"},
		"a sidecar runs after a failure":   {made: "task", spec: []string{"task", "mesh"}, is: states{"task": ended(3, failure), "mesh": running}, want: true, wantExit: 3, wantMessage: "no\nthe container mesh still ran"},
		"a sidecar before the task":        {made: "task", spec: []string{"mesh", "task"}, is: states{"mesh": running, "task": ended(0, success)}, want: true, wantMessage: "ok\n"},
		"a sidecar that never starts":      {made: "task", spec: []string{"mesh", "task"}, is: states{"mesh": {Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}, "task": ended(0, success)}, want: true, wantMessage: "ok\n"},
		"a sidecar whose state is unknown": {made: "task", spec: []string{"task", "mesh"}, is: states{"task": ended(0, success)}, changes: changes{func(p *corev1.Pod) { p.Status.ContainerStatuses = p.Status.ContainerStatuses[:1] }}, want: true, wantMessage: "ok\nthe container mesh still ran"},
		"a sidecar that may be restarted": {made: "task", spec: []string{"task", "mesh"}, is: states{"task": ended(0, success), "mesh": running}, changes: changes{func(p *corev1.Pod) {
			p.Spec.Containers[1].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}}, want: true, wantMessage: "ok\n"},
		"a sidecar that has ended, and a native one that runs": {made: "task", spec: []string{"task", "mesh"}, is: states{"task": ended(0, success), "mesh": ended(0, "")}, changes: changes{func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "native", State: running}}
		}}},
		"a template with two containers, whose pod is deleted": {made: "b,a", spec: []string{"b", "a", "mesh"}, is: states{"a": ended(0, success), "b": ended(0, success), "mesh": running}, changes: changes{func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }}},
		"two sidecars":                               {made: "task", spec: []string{"logs", "task", "mesh"}, is: states{"logs": running, "task": ended(0, success), "mesh": running}, want: true, wantMessage: "ok\nthe containers logs, mesh still ran"},
		"a sidecar that failed before":               {made: "task", spec: []string{"mesh", "task"}, is: states{"mesh": ended(1, "no network"), "task": ended(0, success)}, changes: changes{phase(corev1.PodFailed)}, want: true, wantMessage: "ok"},
		"a sidecar that failed, while the task runs": {made: "task", spec: []string{"mesh", "task"}, is: states{"mesh": ended(1, "no network"), "task": running}},
		"a sidecar beside a native one that runs": {made: "task", spec: []string{"task", "mesh"}, is: states{"task": ended(0, success), "mesh": running}, changes: changes{func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "native", State: running}}
		}}, want: true, wantMessage: "ok\n"},
		"an interrupted task":             {made: "task", spec: []string{"task", "mesh"}, is: states{"task": ended(143, interrupted), "mesh": running}, wantExit: 143},
		"a task whose end was lost":       {made: "task", spec: []string{"task", "mesh"}, is: states{"task": lostEnd, "mesh": running}, wantExit: 137},
		"a template without a report":     {made: "check", spec: []string{"check", "mesh"}, is: states{"check": ended(0, "fine"), "mesh": running}, want: true, wantMessage: "fine\nthe container mesh still ran"},
		"a template that failed":          {made: "check", spec: []string{"mesh", "check"}, is: states{"check": ended(4, "bad"), "mesh": running}, want: true, wantExit: 4, wantMessage: "bad\n"},
		"a template with two containers":  {made: "b,a", spec: []string{"mesh", "b", "a"}, is: states{"a": ended(0, "a"), "b": ended(0, "b"), "mesh": running}, want: true, wantMessage: "b\n"},
		"one of two containers runs":      {made: "b,a", spec: []string{"b", "a", "mesh"}, is: states{"a": running, "b": ended(0, "b"), "mesh": running}},
		"a template without a known end":  {made: "b,a", spec: []string{"b", "a", "mesh"}, is: states{"a": lostEnd, "b": ended(0, "b"), "mesh": running}, wantExit: 137},
		"a template whose pod is deleted": {made: "check", spec: []string{"check", "mesh"}, is: states{"check": ended(0, ""), "mesh": running}, changes: changes{func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }}},
		"a template whose pod is evicted": {made: "check", spec: []string{"check", "mesh"}, is: states{"check": ended(143, ""), "mesh": running}, changes: changes{func(p *corev1.Pod) { p.Status.Reason = "Evicted" }}, wantExit: 143},
		"a template whose pod is preempted": {made: "check", spec: []string{"check", "mesh"}, is: states{"check": ended(0, ""), "mesh": running}, changes: changes{func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		}}},
		"a report of a pod that is deleted":  {made: "task", spec: []string{"task", "mesh"}, is: states{"task": ended(0, success), "mesh": running}, changes: changes{func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }}, want: true, wantMessage: "ok\n"},
		"containers that are all the task's": {made: "task,mesh", spec: []string{"task", "mesh"}, is: states{"task": ended(0, success), "mesh": running}},
		"a pod of an earlier version":        {spec: []string{"task", "mesh"}, is: states{"task": ended(0, success), "mesh": running}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				Spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever},
				Status: corev1.PodStatus{Phase: corev1.PodRunning},
			}
			if tt.made != "" {
				pod.Annotations = map[string]string{v1alpha1.ContainersAnnotation: tt.made}
			}
			for _, name := range tt.spec {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, State: tt.is[name]})
			}
			for _, change := range tt.changes {
				change(pod)
			}
			got := Pod(pod)
			if got.Concluded != tt.want {
				t.Fatalf("concluded: %t, want %t", got.Concluded, tt.want)
			}
			if got.Exit == nil {
				if tt.want || tt.wantExit != 0 {
					t.Fatal("no exit")
				}
				return
			}
			if got.Exit.Code != tt.wantExit {
				t.Errorf("exit code %d, want %d", got.Exit.Code, tt.wantExit)
			}
			if tt.want && !strings.HasPrefix(got.Exit.Message, tt.wantMessage) {
				t.Errorf("message %q, want %q", got.Exit.Message, tt.wantMessage)
			}
			if noted := strings.Contains(got.Exit.Message, "still ran"); noted != strings.Contains(tt.wantMessage, "\n") {
				t.Errorf("message %q names a container that still ran: %t", got.Exit.Message, noted)
			}
		})
	}
}
