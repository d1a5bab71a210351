// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/seal"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))
}

// livePod returns a running pod with one container, as it is stored in the API.
func livePod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "ns",
			Name:              "job-0123456789",
			UID:               "pod-uid",
			ResourceVersion:   "10",
			CreationTimestamp: at(0),
			Finalizers:        []string{"somebody.example/keep", v1alpha1.PodFinalizer},
			Labels:            map[string]string{v1alpha1.NodeJobLabel: "job", v1alpha1.RevisionLabel: "rev"},
			Annotations: map[string]string{
				v1alpha1.AttemptAnnotation: "2",
				v1alpha1.NodeUIDAnnotation: "node-uid",
				v1alpha1.MachineAnnotation: "machine/boot",
			},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob", Name: "job", UID: "job-uid", Controller: new(true)},
			},
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "task", Image: "registry.example/x"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{
				Name:  "task",
				Image: "registry.example/x",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(1)}},
			},
		}},
	}
	for _, change := range changes {
		change(pod)
	}
	seal.Key{}.SealPod(pod)
	return pod
}

func terminated(name string, code int32, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:  name,
		Image: "registry.example/" + name,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: message, StartedAt: at(1), FinishedAt: at(5),
		}},
	}
}

func waitingFor(name, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:  name,
		Image: "registry.example/" + name,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}
}

func TestViewPod(t *testing.T) {
	running := plan.Pod{
		Name:      "job-0123456789",
		UID:       "pod-uid",
		NodeName:  "n",
		NodeUID:   "node-uid",
		Machine:   "machine/boot",
		Runs:      task.Task,
		Revision:  "rev",
		Attempt:   2,
		Created:   noon,
		Finalized: true,
		Phase:     corev1.PodRunning,
		Started:   noon.Add(time.Second),
	}
	grace := int64(30)
	tests := map[string]struct {
		pod  seenPod
		want func(p *plan.Pod)
	}{
		"one that runs":            {seenPod{Pod: livePod()}, func(*plan.Pod) {}},
		"its finalizer is removed": {seenPod{Pod: livePod(), finalized: true}, func(p *plan.Pod) { p.Finalized = false }},
		"one without our finalizer": {
			seenPod{Pod: livePod(func(p *corev1.Pod) { p.Finalizers = p.Finalizers[:1] })},
			func(p *plan.Pod) { p.Finalized = false },
		},
		"one that the manager deleted": {
			seenPod{Pod: livePod(), stopped: noon.Add(9 * time.Second)},
			func(p *plan.Pod) { p.DeleteRequested = noon.Add(9 * time.Second) },
		},
		"one that is deleted: its timestamp is when its grace ends": {
			seenPod{Pod: livePod(func(p *corev1.Pod) {
				deletion := at(40)
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &deletion, &grace
			})}, func(p *plan.Pod) { p.DeleteRequested, p.DeleteGrace = noon.Add(10*time.Second), 30*time.Second },
		},
		"one that is deleted without grace": {
			seenPod{Pod: livePod(func(p *corev1.Pod) { deletion := at(40); p.DeletionTimestamp = &deletion })},
			func(p *plan.Pod) { p.DeleteRequested = noon.Add(40 * time.Second) },
		},
		"one that is evicted": {
			seenPod{Pod: livePod(func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionTrue},
					{
						Type:               corev1.DisruptionTarget,
						Status:             corev1.ConditionTrue,
						Reason:             "EvictionByEvictionAPI",
						LastTransitionTime: at(3),
					},
				}
			})}, func(p *plan.Pod) { p.Disrupted, p.DisruptedReason = noon.Add(3*time.Second), "EvictionByEvictionAPI" },
		},
		"one with a disruption condition that is False": {
			seenPod{Pod: livePod(func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{
					{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, LastTransitionTime: at(3)},
				}
			})}, func(*plan.Pod) {},
		},
		"one that the kubelet ended for its deadline": {
			seenPod{Pod: livePod(func(p *corev1.Pod) { p.Status.Reason = "DeadlineExceeded" })},
			func(p *plan.Pod) { p.PastDeadline, p.StatusReason = true, "DeadlineExceeded" },
		},
		"one that the kubelet rejected": {
			seenPod{Pod: livePod(func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "no\x1b room"}
			})}, func(p *plan.Pod) {
				p.Phase, p.Started, p.StatusReason, p.StatusMessage = corev1.PodFailed, time.Time{}, "OutOfpods", `no\x1b room`
			},
		},
		"one that could not be started": {
			seenPod{Pod: livePod(func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 128, Reason: "StartError", Message: "no such file", StartedAt: metav1.Unix(0, 0), FinishedAt: at(5),
				}}
			})}, func(p *plan.Pod) {
				p.Started = time.Time{}
				p.Exit = &plan.Exit{Code: 128, Reason: "StartError", Message: "no such file", Finished: noon.Add(5 * time.Second)}
			},
		},
		"one that runs the rollback, after a user has requested a retry": {
			seenPod{Pod: livePod(func(p *corev1.Pod) {
				p.Labels[v1alpha1.PhaseLabel], p.Annotations[v1alpha1.RetryAnnotation] = "rollback", "0123456789"
			})}, func(p *plan.Pod) { p.Runs, p.Retry = task.Rollback, "0123456789" },
		},
		"one that runs the task": {
			seenPod{Pod: livePod(func(p *corev1.Pod) { p.Labels[v1alpha1.PhaseLabel] = "task" })}, func(*plan.Pod) {},
		},
		"one whose annotations were removed": {
			seenPod{Pod: livePod(func(p *corev1.Pod) { p.Annotations = nil })},
			func(p *plan.Pod) { p.NodeUID, p.Machine, p.Attempt = "", "", 1 },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := running
			tt.want(&want)
			if diff := cmp.Diff(want, viewPod(tt.pod)); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAttemptOf(t *testing.T) {
	for value, want := range map[string]int32{"1": 1, "101": 101, "": 1, "0": 1, "-1": 1, "two": 1, "2147483647": 2147483647, "2147483648": 1} {
		t.Run(fmt.Sprintf("%q is attempt %d", value, want), func(t *testing.T) {
			pod := livePod(func(p *corev1.Pod) { p.Annotations[v1alpha1.AttemptAnnotation] = value })
			if got := viewPod(seenPod{Pod: pod}).Attempt; got != want {
				t.Errorf("attempt %d, want %d", got, want)
			}
		})
	}
}

// TestExit checks which container determines the outcome of a pod, and what is read from its status.
func TestExit(t *testing.T) {
	ended := func(phase corev1.PodPhase, statuses ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = phase, statuses
			p.Spec.Containers = nil
			for _, s := range statuses {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: s.Name})
			}
		}
	}
	beside := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = append([]corev1.Container{{Name: name}}, p.Spec.Containers...)
		}
	}
	initially := func(statuses ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.InitContainerStatuses = statuses }
	}
	const (
		lost = "ContainerStatusUnknown"
		word = `{"exitCode":0,"message":"did it","results":{"kernel":"6.12"}}`
	)
	noContainer := func(image string) string {
		return "the kubelet found no container of image registry.example/" + image + " when the pod ended: it may never have started"
	}
	finished := noon.Add(5 * time.Second)
	tests := map[string]struct {
		pod  *corev1.Pod
		want *plan.Exit
	}{
		"a running task has no outcome": {livePod(), nil},
		"the outcome of the runner": {
			livePod(ended(corev1.PodSucceeded, terminated("task", 0, "Completed", word))),
			&plan.Exit{Finished: finished, Reported: true, Message: "did it", Results: map[string]string{"kernel": "6.12"}},
		},
		"the exit code is that of the kubelet": {
			livePod(ended(corev1.PodFailed, terminated("task", 137, "Error", word))),
			&plan.Exit{
				Code:     137,
				Finished: finished,
				Reported: true,
				Reason:   outcome.ReasonTaskFailed,
				Message:  "did it",
				Results:  map[string]string{"kernel": "6.12"},
			},
		},
		"a script that exceeded its memory limit": {
			livePod(
				ended(
					corev1.PodFailed,
					terminated(
						"task",
						137,
						"OOMKilled",
						`{"exitCode":137,"reason":"Signaled","message":"the script was killed by SIGKILL"}`,
					),
				),
			),
			&plan.Exit{Code: 137, Finished: finished, Reported: true, Reason: "OOMKilled", Message: "the script was killed by SIGKILL"},
		},
		"a script that failed because one of its processes exceeded the memory limit": {
			livePod(ended(corev1.PodFailed, terminated("task", 1, "OOMKilled", `{"exitCode":1,"reason":"TaskFailed"}`))),
			&plan.Exit{Code: 1, Finished: finished, Reported: true, Reason: "OOMKilled"},
		},
		"an interrupted script, regardless of its memory": {
			livePod(ended(corev1.PodFailed, terminated("task", 143, "OOMKilled", `{"exitCode":143,"reason":"Interrupted"}`))),
			&plan.Exit{Code: 143, Finished: finished, Reported: true, Reason: outcome.ReasonDisrupted},
		},
		"a script that succeeded although one of its processes exceeded the memory limit": {
			livePod(ended(corev1.PodSucceeded, terminated("task", 0, "OOMKilled", word))),
			&plan.Exit{Finished: finished, Reported: true, Message: "did it", Results: map[string]string{"kernel": "6.12"}},
		},
		"an unknown reason is dropped": {
			livePod(ended(corev1.PodFailed, terminated("task", 1, "Error", `{"exitCode":1,"reason":"Hacked\u001b[31m"}`))),
			&plan.Exit{Code: 1, Finished: finished, Reported: true, Reason: outcome.ReasonTaskFailed},
		},
		"results beyond the limit are reported as truncated": {
			livePod(ended(corev1.PodSucceeded, terminated("task", 0, "Completed", `{"results":{"a/b":"1","c":"2"}}`))),
			&plan.Exit{Finished: finished, Reported: true, Results: map[string]string{"c": "2"}, Truncated: true},
		},
		"a task without an outcome has its last lines": {
			livePod(ended(corev1.PodFailed, terminated("task", 3, "Error", "line 1\nline\x1b[31m 2\n"))),
			&plan.Exit{Code: 3, Finished: finished, Reason: "Error", Message: "line 1\nline\\x1b[31m 2\n"},
		},
		"JSON that is not an outcome is text": {
			livePod(ended(corev1.PodFailed, terminated("task", 3, "Error", `{"level":"error"}`))),
			&plan.Exit{Code: 3, Finished: finished, Reason: "Error", Message: `{"level":"error"}`},
		},
		"the runtime does not know the exit code": {
			livePod(ended(corev1.PodFailed, terminated("task", 137, lost, "The container could not be located"))),
			&plan.Exit{Code: 137, Finished: finished, Lost: true, Message: noContainer("task")},
		},
		"the runtime was not running, and the task has reported its outcome": {
			livePod(ended(corev1.PodFailed, terminated("task", 255, "Unknown", word))),
			&plan.Exit{Finished: finished, Reported: true, OwnWord: true, Message: "did it", Results: map[string]string{"kernel": "6.12"}},
		},
		"the runtime was not running, and the task has reported a failure": {
			livePod(ended(corev1.PodFailed, terminated("task", 255, "Unknown", `{"exitCode":3,"reason":"TaskFailed"}`))),
			&plan.Exit{Code: 3, Finished: finished, Reported: true, OwnWord: true, Reason: outcome.ReasonTaskFailed},
		},
		"the runtime was not running, and one of two containers has an outcome": {
			livePod(ended(corev1.PodFailed, terminated("task", 255, "Unknown", word)), beside("other")),
			&plan.Exit{Code: 255, Finished: finished, Lost: true, Message: noContainer("task")},
		},
		"the runtime was not running, and an init container has an outcome": {
			livePod(
				ended(corev1.PodFailed, waitingFor("task", "PodInitializing", "")),
				initially(terminated("init", 255, "Unknown", word)),
			),
			&plan.Exit{Code: 255, Finished: finished, Lost: true, Message: noContainer("init")},
		},

		"an environment that is too large for the runner": {
			livePod(ended(corev1.PodFailed, terminated("task", 255, "Error", "exec /everynode-runner: argument list too long\n"))),
			&plan.Exit{
				Code:     255,
				Finished: finished,
				Reason:   "StartError",
				Message:  "exec /everynode-runner: argument list too long\n" + observe.TooLargeToStart,
			},
		},
		"an environment that is too large, as the container runtime reports it": {
			livePod(
				ended(
					corev1.PodFailed,
					terminated("task", 128, "StartError", "failed to create containerd task: exec failed: argument list too long"),
				),
			),
			&plan.Exit{
				Code:     128,
				Finished: finished,
				Reason:   "StartError",
				Message:  "failed to create containerd task: exec failed: argument list too long\n" + observe.TooLargeToStart,
			},
		},
		"arguments that are too many for a program of the task": {
			livePod(ended(corev1.PodFailed, terminated("task", 1, "Error", "rm: argument list too long"))),
			&plan.Exit{Code: 1, Finished: finished, Reason: "Error", Message: "rm: argument list too long"},
		},
		"a script that reports the same": {
			livePod(
				ended(
					corev1.PodFailed,
					terminated(
						"task",
						126,
						"Error",
						`{"exitCode":126,"reason":"TaskFailed","message":"exec /bin/rm: argument list too long"}`,
					),
				),
			),
			&plan.Exit{
				Code:     126,
				Finished: finished,
				Reported: true,
				Reason:   outcome.ReasonTaskFailed,
				Message:  "exec /bin/rm: argument list too long",
			},
		},

		"of two containers that succeeded, the first of the template counts": {
			livePod(ended(corev1.PodSucceeded, terminated("a-sidecar", 0, "Completed", "a"), terminated("b-task", 0, "Completed", "b")),
				func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{{Name: "b-task"}, {Name: "a-sidecar"}} }),
			&plan.Exit{Finished: finished, Reason: "Completed", Message: "b"},
		},
		"of two containers, the failed one counts": {
			livePod(ended(corev1.PodFailed, terminated("a", 0, "Completed", "a"), terminated("b", 4, "Error", "b"))),
			&plan.Exit{Code: 4, Finished: finished, Reason: "Error", Message: "b"},
		},
		"a failed init container counts": {
			livePod(ended(corev1.PodFailed, waitingFor("task", "PodInitializing", "")), initially(terminated("init", 5, "Error", "no"))),
			&plan.Exit{Code: 5, Finished: finished, Reason: "Error", Message: "no"},
		},
		"a failed init container counts, although the task's container was not found": {
			livePod(ended(corev1.PodFailed, terminated("task", 137, lost, "")), initially(terminated("init", 5, "Error", "no"))),
			&plan.Exit{Code: 5, Finished: finished, Reason: "Error", Message: "no"},
		},
		"an init container that succeeded does not count": {
			livePod(ended(corev1.PodFailed, waitingFor("task", "ErrImagePull", "")), initially(terminated("init", 0, "Completed", "yes"))),
			nil,
		},
		"a sidecar that was stopped after a success does not count": {
			livePod(
				ended(corev1.PodSucceeded, terminated("task", 0, "Completed", word)),
				initially(terminated("sidecar", 143, "Error", "stopped")),
			),
			&plan.Exit{Finished: finished, Reported: true, Message: "did it", Results: map[string]string{"kernel": "6.12"}},
		},
		"a sidecar that was stopped after a failure does not count": {
			livePod(
				ended(corev1.PodFailed, terminated("task", 3, "Error", "no")),
				initially(terminated("sidecar", 143, "Error", "stopped")),
			),
			&plan.Exit{Code: 3, Finished: finished, Reason: "Error", Message: "no"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, viewPod(seenPod{Pod: tt.pod}).Exit); diff != "" {
				t.Errorf("exit (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWaiting(t *testing.T) {
	tests := map[string]struct {
		init, containers []corev1.ContainerStatus
		want             string
	}{
		"nothing is known yet":    {},
		"it is being created":     {containers: []corev1.ContainerStatus{waitingFor("task", "ContainerCreating", "")}},
		"its init containers run": {containers: []corev1.ContainerStatus{waitingFor("task", "PodInitializing", "")}},
		"a pull that failed": {
			containers: []corev1.ContainerStatus{waitingFor("task", "ErrImagePull", "rpc error: code 1, try 3")},
			want:       "ImagePullBackOff: image registry.example/task",
		},
		"a pull that is retried": {
			containers: []corev1.ContainerStatus{waitingFor("task", "ImagePullBackOff", "Back-off pulling image")},
			want:       "ImagePullBackOff: image registry.example/task",
		},
		"an invalid image name": {
			containers: []corev1.ContainerStatus{waitingFor("task", "InvalidImageName", "couldn't parse")},
			want:       "InvalidImageName: image registry.example/task",
		},
		"a missing Secret": {
			containers: []corev1.ContainerStatus{waitingFor("task", "CreateContainerConfigError", `secret "x" not found`)},
			want:       `CreateContainerConfigError: secret "x" not found`,
		},
		"an init container that waits": {
			init:       []corev1.ContainerStatus{waitingFor("init", "ErrImagePull", "")},
			containers: []corev1.ContainerStatus{waitingFor("task", "PodInitializing", "")},
			want:       "ImagePullBackOff: image registry.example/init",
		},
		"the second container waits": {
			containers: []corev1.ContainerStatus{terminated("a", 0, "Completed", ""), waitingFor("b", "ErrImagePull", "")},
			want:       "ImagePullBackOff: image registry.example/b",
		},
		"characters that hide text are escaped": {
			containers: []corev1.ContainerStatus{waitingFor("task", "RunContainerError", "a\u202eb\x00")},
			want:       `RunContainerError: a\u202eb\x00`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := livePod(func(p *corev1.Pod) {
				p.Status.InitContainerStatuses, p.Status.ContainerStatuses = tt.init, tt.containers
			})
			if got := viewPod(seenPod{Pod: pod}).Waiting; got != tt.want {
				t.Errorf("waiting %q, want %q", got, tt.want)
			}
		})
	}
}

// A kubelet or a task can write any text into a pod's status: the plan gets a limited part of it, with escapes.
func TestViewPodBoundsWhatNodesWrite(t *testing.T) {
	hostile := strings.Repeat("\x1b[31m\u202e\xff", 100_000)
	pod := livePod(func(p *corev1.Pod) {
		p.Status.Reason, p.Status.Message = hostile, hostile
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: hostile}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{waitingFor("init", hostile, hostile)}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{terminated("task", 1, hostile, hostile)}
	})
	got := viewPod(seenPod{Pod: pod})
	for field, text := range map[string]string{
		"status reason": got.StatusReason, "status message": got.StatusMessage, "disrupted reason": got.DisruptedReason,
		"waiting": got.Waiting, "reason": got.Exit.Reason, "message": got.Exit.Message,
	} {
		if text == "" || len(text) > outcome.MaxMessageBytes || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%s has %d bytes and begins with %q", field, len(text), text[:min(len(text), 40)])
		}
	}
}

func TestPodsAreReadAgainOnlyWhenTheyChange(t *testing.T) {
	views := newPodViews()
	job := client.ObjectKey{Namespace: "ns", Name: "job"}
	ended := func(version string, code int32) seenPod {
		return seenPod{Pod: livePod(func(p *corev1.Pod) {
			p.ResourceVersion = version
			p.Status.ContainerStatuses = []corev1.ContainerStatus{terminated("task", code, "", `{"exitCode":0}`)}
		})}
	}
	first := views.read(job, []seenPod{ended("10", 0)})[0]
	stopped := ended("10", 0)
	stopped.stopped = noon
	tests := []struct {
		name string
		pod  seenPod
		same bool
	}{
		{"an unchanged pod", ended("10", 0), true},
		{"an unchanged pod that was stopped meanwhile", stopped, true},
		{"a pod with a newer version", ended("11", 1), false},
		{"a pod without a version", ended("", 2), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := views.read(job, []seenPod{tt.pod})[0]
			if diff := cmp.Diff(viewPod(tt.pod), got); diff != "" {
				t.Errorf("the view (-want +got):\n%s", diff)
			}
			if same := got.Exit == first.Exit; same != tt.same {
				t.Errorf("taken from the last pass: %t, want %t", same, tt.same)
			}
		})
	}
	if views.read(job, nil); len(views.of[job]) != 0 {
		t.Error("a pod that is gone is still stored")
	}
	if views.forget(job); len(views.of) != 0 {
		t.Error("a NodeJob that is gone is still stored")
	}
}
