// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
)

// TestConcluded covers the time between the end of a container and the end of its pod.
func TestConcluded(t *testing.T) {
	report := func(o outcome.Outcome) string { return string(o.Encode()) }
	pod := func(code int32, message string, changes ...func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "task"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{
					Name:  "task",
					State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}},
				},
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
		"an exit code without a report, of an ended pod": {pod(0, "done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), false},
		"an exit code without a report":                  {pod(0, "done"), false},
		"a task that was interrupted":                    {pod(143, report(outcome.Outcome{ExitCode: 143, Reason: outcome.ReasonDisrupted})), false},
		"a container that was lost":                      {pod(137, "", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Terminated.Reason = "ContainerStatusUnknown" }), false},
		"a container that runs":                          {pod(0, success, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = running }), false},
		"a pod that restarts its containers":             {pod(0, success, func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }), false},
		"a pod that restarts failed containers":          {pod(3, failure, func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }), false},
		"a container that has its own rules":             {pod(3, failure, func(p *corev1.Pod) { p.Spec.Containers[0].RestartPolicy = &always }), false},
		"another container":                              {pod(0, success, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "other"}) }), false},
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
	creating := []corev1.ContainerStatus{
		{Name: "task", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
	}
	for name, tt := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"nothing is reported":           {corev1.PodStatus{Phase: corev1.PodPending}, true},
		"the container is created":      {corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: creating}, false},
		"the pod has failed":            {corev1.PodStatus{Phase: corev1.PodFailed}, false},
		"the pod has a reason":          {corev1.PodStatus{Phase: corev1.PodPending, Reason: "NodeLost"}, false},
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

// TestTimesOfAPod covers when a pod started, and when something else ended it.
func TestTimesOfAPod(t *testing.T) {
	at := func(seconds int64) metav1.Time { return metav1.Unix(seconds, 0) }
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, seconds int64) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: at(seconds)}
	}
	is := func(state corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Name: "task"}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "task", State: state}}
		}
	}
	type times struct {
		Started, Disrupted, DeleteRequested time.Time
		DeleteGrace                         time.Duration
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   times
	}{
		"it is created":    {func(*corev1.Pod) {}, times{}},
		"it waits":         {is(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}), times{}},
		"it runs":          {is(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(5)}}), times{Started: at(5).Time}},
		"it has ended":     {is(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(5)}}), times{Started: at(5).Time}},
		"it never started": {is(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(0)}}), times{}},
		"it is evicted": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{condition(corev1.DisruptionTarget, corev1.ConditionTrue, 7), condition(corev1.PodReady, corev1.ConditionTrue, 9)}
		}, times{Disrupted: at(7).Time}},
		"it is not evicted": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{condition(corev1.DisruptionTarget, corev1.ConditionFalse, 7)}
		}, times{}},
		"it is deleted": {func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(at(40)), new(int64(30))
		}, times{DeleteRequested: at(10).Time, DeleteGrace: 30 * time.Second}},
		"it has a grace period and is not deleted": {func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64(30)) }, times{}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			tt.change(pod)
			got := Pod(pod)
			if diff := cmp.Diff(tt.want, times{got.Started, got.Disrupted, got.DeleteRequested, got.DeleteGrace}); diff != "" {
				t.Errorf("times (-want +got):\n%s", diff)
			}
		})
	}
}

// The first of the containers whose end is known represents a pod that has succeeded.
func TestAContainerWithoutAState(t *testing.T) {
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "b"}, {Name: "a"}}},
		Status: corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "a", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: "fine"}}},
		}},
	}
	if diff := cmp.Diff(&plan.Exit{Reason: "Completed", Message: "fine"}, Pod(pod).Exit); diff != "" {
		t.Errorf("exit (-want +got):\n%s", diff)
	}
}

func TestContainersThatAreTooLargeToStart(t *testing.T) {
	for name, tt := range map[string]struct {
		reason, message string
		want            bool
	}{
		"the last step of runc":        {"Error", "exec /everynode-runner: argument list too long\n", true},
		"the container runtime":        {startError, "failed to create containerd task: argument list too long", true},
		"another error of the runtime": {startError, "no such file", false},
		"a program of the task":        {"Error", "rm: argument list too long", false},
		"a line of several":            {"Error", "exec rm\nrm: argument list too long", false},
		"a program that is executed":   {"Error", "exec /bin/a: no such file", false},
	} {
		if got := isTooLarge(&corev1.ContainerStateTerminated{Reason: tt.reason, Message: tt.message}); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// TestImagesOfAPod leaves out the images of containers that were added to the pod, and of those that have not started.
func TestImagesOfAPod(t *testing.T) {
	digest := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ContainersAnnotation: "a,b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}, {Name: "mesh"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "a", ImageID: "registry.example/a@" + digest("1")}, {Name: "b"}, {Name: "mesh", ImageID: digest("2")},
		}},
	}
	if diff := cmp.Diff(record.Images{"a": digest("1")}, Pod(pod).Images); diff != "" {
		t.Error(diff)
	}
}

// TestWhetherTheTaskHasStarted believes a runner and the last word of a kubelet. What is not known may have started.
func TestWhetherTheTaskHasStarted(t *testing.T) {
	lost := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}
	ended := func(reason, message string, started int64) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 128, Reason: reason, Message: message, StartedAt: metav1.Unix(started, 0),
		}}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	pulling := waiting("ImagePullBackOff")
	notStarted := string(outcome.Outcome{ExitCode: 127, Reason: outcome.ReasonInterpreterNotFound, NotStarted: true}.Encode())
	for name, tt := range map[string]struct {
		reason   string
		statuses []corev1.ContainerStatus
		init     []corev1.ContainerStatus
		want     bool
	}{
		"the runner has not started it":                 {statuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c", State: ended("Error", notStarted, 1)}}, want: true},
		"the runner does not say so":                    {statuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c", State: ended("Error", "", 1)}}},
		"the runtime cannot start it":                   {statuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c", State: ended("StartError", "no such file", 0)}}, want: true},
		"the runtime cannot start it a second time":     {statuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c", RestartCount: 1, State: ended("StartError", "no such file", 0)}}},
		"the runtime has started it after all":          {statuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c", State: ended("StartError", "", 1)}}},
		"another container has started":                 {statuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c", State: ended("StartError", "", 0)}, {Name: "b", ContainerID: "c", State: ended("Error", "", 1)}}},
		"an init container has started":                 {statuses: []corev1.ContainerStatus{{Name: "a", State: pulling}}, init: []corev1.ContainerStatus{{Name: "i", ContainerID: "c", State: ended("Completed", "", 1)}}, reason: deadlineExceeded},
		"its image is not there in time":                {statuses: []corev1.ContainerStatus{{Name: "a", State: lost}}, reason: deadlineExceeded, want: true},
		"its image is not there, and the kubelet says":  {statuses: []corev1.ContainerStatus{{Name: "a", State: pulling}}, reason: deadlineExceeded, want: true},
		"its image is not there when it is deleted":     {statuses: []corev1.ContainerStatus{{Name: "a", State: lost}}, want: true},
		"a Secret of it is missing":                     {statuses: []corev1.ContainerStatus{{Name: "a", State: waiting("CreateContainerConfigError")}}, reason: deadlineExceeded, want: true},
		"its image has no valid name":                   {statuses: []corev1.ContainerStatus{{Name: "a", State: waiting("InvalidImageName")}}, reason: deadlineExceeded, want: true},
		"its volume cannot be mounted":                  {statuses: []corev1.ContainerStatus{{Name: "a", State: waiting("ContainerCreating")}}, reason: deadlineExceeded, want: true},
		"another runtime cannot start it":               {statuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c", State: ended("ContainerCannotRun", "exec format error", 0)}}, want: true},
		"one of two images is not there":                {statuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c", State: ended("Completed", "", 1)}, {Name: "b", State: pulling}}, reason: deadlineExceeded},
		"neither of two images is there":                {statuses: []corev1.ContainerStatus{{Name: "a", State: pulling}, {Name: "b", State: lost}}, reason: deadlineExceeded, want: true},
		"an init container cannot be started":           {statuses: []corev1.ContainerStatus{{Name: "a", State: waiting("PodInitializing")}}, init: []corev1.ContainerStatus{{Name: "i", ContainerID: "c", State: ended("StartError", "no such file", 0)}}, reason: deadlineExceeded, want: true},
		"it was created, and its start is not reported": {statuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c", State: waiting("CreateContainerError")}}, reason: deadlineExceeded},
		"another client has ended the pod":              {statuses: []corev1.ContainerStatus{{Name: "a", State: pulling}}},
		"it ran, and its container is gone": {statuses: []corev1.ContainerStatus{{
			Name: "a", State: pulling, LastTerminationState: lost,
		}}, reason: deadlineExceeded},
		"it ran, and its end is unknown":   {statuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "c", State: lost}}, reason: deadlineExceeded},
		"the kubelet has reported nothing": {reason: deadlineExceeded},
	} {
		pod := &corev1.Pod{
			Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "a"}, {Name: "b"}}[:max(1, len(tt.statuses))],
			},
			Status: corev1.PodStatus{
				Phase:                 corev1.PodFailed,
				Reason:                tt.reason,
				ContainerStatuses:     tt.statuses,
				InitContainerStatuses: tt.init,
			},
		}
		if got := Pod(pod).NotStarted; got != tt.want {
			t.Errorf("%s: not started: %t, want %t", name, got, tt.want)
		}
	}
}
