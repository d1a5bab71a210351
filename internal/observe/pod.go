// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// maxSaidBytes limits the messages of a kubelet about a pod.
const maxSaidBytes = 256

// Pod returns the pod as the plan reads it. All text that a node or a task wrote is cleaned and limited here.
func Pod(pod *corev1.Pod) plan.Pod {
	view := plan.Pod{
		Name:          pod.Name,
		UID:           pod.UID,
		NodeName:      pod.Spec.NodeName,
		NodeUID:       types.UID(pod.Annotations[v1alpha1.NodeUIDAnnotation]),
		Machine:       pod.Annotations[v1alpha1.MachineAnnotation],
		Runs:          task.PhaseOf(pod.Labels[v1alpha1.PhaseLabel]),
		Reboot:        v1alpha1.RebootPolicy(pod.Annotations[v1alpha1.RebootAnnotation]),
		Disrupts:      pod.Annotations[v1alpha1.DisruptsAnnotation] == "true",
		ChecksBefore:  pod.Annotations[v1alpha1.CheckBeforeAnnotation] == "true",
		Revision:      pod.Labels[v1alpha1.RevisionLabel],
		Attempt:       attemptOf(pod),
		Retry:         pod.Annotations[v1alpha1.RetryAnnotation],
		Inputs:        record.BoundInputs(pod.Annotations[v1alpha1.InputsAnnotation]),
		ChangedBy:     record.ChangedBy(pod.Annotations),
		OutsideWindow: outcome.Clean(pod.Annotations[v1alpha1.OutsideWindowAnnotation], maxSaidBytes),
		Archive:       record.ValidLocation(pod.Annotations[v1alpha1.ArchiveAnnotation]),
		Confirm:       pod.Annotations[v1alpha1.ConfirmAnnotation] != "",
		Confirmed:     isConfirmed(pod),
		Created:       pod.CreationTimestamp.Time,
		Recorded:      pod.Annotations[v1alpha1.RecordedAnnotation] != "",
		Finalized:     slices.Contains(pod.Finalizers, v1alpha1.PodFinalizer),
		Phase:         pod.Status.Phase,
		PastDeadline:  pod.Status.Reason == deadlineExceeded,
		StatusReason:  outcome.Clean(pod.Status.Reason, 128),
		StatusMessage: outcome.CleanHead(pod.Status.Message, maxSaidBytes),
		Waiting:       kube.Waiting(pod),
		Initializing:  initializing(pod),
		Silent:        isSilent(pod),
		DeleteGrace:   deleteGrace(pod),
	}
	if pod.DeletionTimestamp != nil {
		// The deletion timestamp is when the grace period ends.
		view.DeleteRequested = pod.DeletionTimestamp.Add(-view.DeleteGrace)
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			view.Disrupted = c.LastTransitionTime.Time
			view.DisruptedReason = outcome.Clean(c.Reason, 128)
		}
	}
	own := task.Containers(pod)
	view.Images, view.NotStarted = imagesOf(pod, own), noneStarted(pod)
	if status := taskContainer(pod, own); status != nil {
		viewContainer(&view, pod, own, status)
	}
	return view
}

// viewContainer adds the state of the container that represents the pod.
func viewContainer(view *plan.Pod, pod *corev1.Pod, own []string, status *corev1.ContainerStatus) {
	switch {
	case status.State.Terminated != nil:
		only := len(own) == 1 && own[0] == status.Name
		// For a container that could not be started, this is the start of Unix time.
		if started := status.State.Terminated.StartedAt; started.Unix() > 0 {
			view.Started = started.Time
		}
		view.Exit = viewExit(status.State.Terminated, status.Image, only)
		view.NotStarted = view.NotStarted || only && view.Exit.NotStarted
		viewEnd(view, pod, own, only)
	case status.State.Running != nil:
		view.Started = status.State.Running.StartedAt.Time
		view.Confirming = view.Confirm && status.Ready
	}
}

// imagesOf returns the digests of the images of a pod's own containers.
func imagesOf(pod *corev1.Pod, own []string) record.Images {
	var images record.Images
	for _, name := range own {
		if status := kube.ContainerStatus(pod, name); status != nil && len(images) < record.MaxImages {
			if digest := record.ImageDigest(status.ImageID); digest != "" {
				if images == nil {
					images = record.Images{}
				}
				images[name] = digest
			}
		}
	}
	return images
}

// isConfirmed reports whether the manager has confirmed the node of a pod.
func isConfirmed(pod *corev1.Pod) bool {
	confirmation := pod.Annotations[v1alpha1.ConfirmedAnnotation]
	return confirmation != "" && contract.ConfirmDigest(confirmation) == pod.Annotations[v1alpha1.ConfirmAnnotation]
}

// viewEnd decides whether Exit is the outcome of the pod.
func viewEnd(view *plan.Pod, pod *corev1.Pod, own []string, only bool) {
	added := task.AddedContainers(pod)
	known := only && view.Exit.Reported && initEnded(pod)
	if len(added) > 0 {
		view.Added = strings.Join(slices.DeleteFunc(added, func(name string) bool { return hasEnded(pod, name) }), ", ")
		known = concludedBeside(view, pod, own, only)
	}
	view.Concluded = known && view.Exit.Reason != outcome.ReasonDisrupted && neverRestarts(pod, own)
	if view.Concluded && view.Added != "" {
		noteAdded(view)
	}
}

// concludedBeside reports whether the outcome of a pod to which containers were added is known. The added ones may run for ever,
// or fail, so the phase of the pod says nothing. The task has ended when all its own containers have. A container that did not
// report its outcome may have been ended together with the pod, so then nothing else may end the pod.
func concludedBeside(view *plan.Pod, pod *corev1.Pod, own []string, only bool) bool {
	if view.Exit.Lost || slices.ContainsFunc(own, func(name string) bool { return !hasEnded(pod, name) }) {
		return false
	}
	if view.Added == "" && !initEnded(pod) {
		return false
	}
	isEnded := pod.DeletionTimestamp != nil || pod.Status.Reason != "" || !view.Disrupted.IsZero()
	return only && view.Exit.Reported || !isEnded
}

// hasEnded reports whether a container has ended.
func hasEnded(pod *corev1.Pod, name string) bool {
	status := kube.ContainerStatus(pod, name)
	return status != nil && status.State.Terminated != nil
}

// noteAdded names the containers that were added to a pod, and still run when the task has ended.
func noteAdded(view *plan.Pod) {
	kind, it := "the container ", "it"
	if strings.Contains(view.Added, ",") {
		kind, it = "the containers ", "them"
	}
	o := outcome.Outcome{Message: view.Exit.Message}
	o.Note(outcome.CleanHead(kind+view.Added, maxSaidBytes) + " still ran when the task had ended: an admission webhook or policy added " + it + " to the pod")
	view.Exit.Message = o.Message
}

// Ended reports whether the outcome of a pod is known: no container of it runs or will run, or its own containers have ended, see
// plan.Pod.
func Ended(pod *corev1.Pod) bool {
	return kube.PodEnded(pod.Status.Phase) || Pod(pod).Concluded
}

// neverRestarts reports whether the containers of a pod that have ended are not restarted. The phase of a pod with one container
// that was restricted in this way follows from its exit code, unless the kubelet ends the pod for another reason in between.
func neverRestarts(pod *corev1.Pod, own []string) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever && !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.RestartPolicy != nil && slices.Contains(own, c.Name)
	})
}

// initEnded reports whether no init container runs, which includes sidecars.
func initEnded(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Terminated == nil })
}

// initializing returns the last init container that runs: one that must end, or a sidecar that must have started. The kubelet reports
// them in the order of the spec.
func initializing(pod *corev1.Pod) string {
	for _, status := range slices.Backward(pod.Status.InitContainerStatuses) {
		if status.State.Running != nil {
			return outcome.Clean(status.Name, 128)
		}
	}
	return ""
}

// isSilent reports whether the kubelet has reported nothing about a pod. It reports on each container, or why it rejects
// the pod.
func isSilent(pod *corev1.Pod) bool {
	status := &pod.Status
	return len(status.ContainerStatuses)+len(status.InitContainerStatuses) == 0 && status.Phase != corev1.PodFailed && status.Reason == ""
}

// deleteGrace returns the grace period of a pod that is being deleted; 0 for any other pod.
func deleteGrace(pod *corev1.Pod) time.Duration {
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil && pod.DeletionTimestamp != nil {
		return time.Duration(*seconds) * time.Second
	}
	return 0
}

func attemptOf(pod *corev1.Pod) int32 {
	n, err := strconv.ParseInt(pod.Annotations[v1alpha1.AttemptAnnotation], 10, 32)
	if err != nil || n < 1 {
		return 1
	}
	return int32(n)
}

// taskContainer returns the container that represents the pod: the first of its own containers that failed, or if none failed,
// the first of them. Init containers are considered after the others, because they include sidecars, which are ended by a signal
// after the others have ended.
func taskContainer(pod *corev1.Pod, own []string) *corev1.ContainerStatus {
	if pod.Status.Phase != corev1.PodSucceeded {
		statuses := slices.DeleteFunc(slices.Clone(pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool { return !slices.Contains(own, s.Name) })
		statuses = append(statuses, pod.Status.InitContainerStatuses...)
		known := func(t *corev1.ContainerStateTerminated) bool { return !lost(t) }
		// A container with an unknown end may never have started, because another one failed before it.
		for _, kind := range []func(*corev1.ContainerStateTerminated) bool{known, lost} {
			for i := range statuses {
				if t := statuses[i].State.Terminated; t != nil && t.ExitCode != 0 && kind(t) {
					return &statuses[i]
				}
			}
		}
	}
	// The kubelet sorts statuses by name; the spec has the user's order.
	for _, name := range own {
		if status := kube.ContainerStatus(pod, name); status != nil {
			return status
		}
	}
	return nil
}

// lost reports whether the exit code is not that of the container itself. Sources: k8s.io/kubernetes pkg/kubelet,
// the state of a container that is gone; containerd internal/cri/server, unknownExitReason.
func lost(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "ContainerStatusUnknown" || t.Reason == "Unknown"
}

// noneStarted reports whether the kubelet, which has ended the pod, has started none of its containers. What it does not know may have
// started.
func noneStarted(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodFailed || len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	added := task.AddedContainers(pod)
	return !slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return !slices.Contains(added, s.Name) && !couldNotStart(&s) && !neverCreated(&s, pod.Status.Reason)
	})
}

// neverCreated reports whether the kubelet has never created a container of a pod that it has ended for a reason. The state of such a
// container is lost then. If it waits, another client may have ended the pod, unless the reason is one of the kubelet.
// Source: k8s.io/kubernetes pkg/kubelet/status, TerminatePod.
func neverCreated(s *corev1.ContainerStatus, reason string) bool {
	hasRun := s.ContainerID != "" || s.RestartCount > 0 || s.LastTerminationState.Terminated != nil || s.State.Running != nil
	return !hasRun && (reason == deadlineExceeded || s.State.Terminated != nil && lost(s.State.Terminated))
}

// couldNotStart reports whether the container runtime has created a container and could not start it. Its start is that of Unix time.
func couldNotStart(s *corev1.ContainerStatus) bool {
	t := s.State.Terminated
	return t != nil && (t.Reason == startError || t.Reason == "ContainerCannotRun") && t.StartedAt.Unix() <= 0 && s.RestartCount == 0
}

// deadlineExceeded is the reason of a pod that the kubelet has ended after its activeDeadlineSeconds.
const deadlineExceeded = "DeadlineExceeded"

// oomKilled is the reason that the container runtime sets for a container that exceeded its memory limit. With cgroup
// v1 the kernel kills only one process of it: the runner continues, and only sees that its script failed.
const oomKilled = "OOMKilled"

// mayBeMemory are the reasons of the runner that the memory limit may have caused.
var mayBeMemory = []string{outcome.ReasonTaskFailed, outcome.ReasonCheckFailed, outcome.ReasonSignaled, outcome.ReasonRunnerError}

// viewExit reads how a container ended. A task may have restarted the container runtime: a container that ended while
// the runtime was not running has an unknown exit status, and the code 255 instead. The kubelet has read the outcome
// nevertheless, and if there is only one container, that outcome is the one of the pod.
func viewExit(t *corev1.ContainerStateTerminated, image string, only bool) *plan.Exit {
	exit := &plan.Exit{
		Code:     t.ExitCode,
		Finished: t.FinishedAt.Time,
		Lost:     lost(t),
	}
	if o, ok := outcome.Decode(t.Message); ok && exit.Lost && only {
		exit.Lost, exit.OwnWord, exit.Code = false, true, int32(o.ExitCode)
	}
	if exit.Lost {
		exit.Message = outcome.Clean("the kubelet found no container of image "+image+" when the pod ended: it may never have started", maxSaidBytes)
		return exit
	}
	if o, ok := outcome.Decode(t.Message); ok {
		o = o.WithExitCode(int(exit.Code))
		exit.Reported = true
		exit.Reason, exit.Message, exit.Results, exit.Truncated, exit.Archive = o.Reason, o.Message, o.Results, o.Truncated, o.Archive
		exit.RollbackExitCode, exit.NotStarted = o.RollbackExitCode, o.NotStarted
		if t.Reason == oomKilled && slices.Contains(mayBeMemory, o.Reason) {
			exit.Reason = oomKilled
		}
		return exit
	}
	exit.Reason = outcome.Clean(t.Reason, 128)
	exit.Message = outcome.Clean(t.Message, outcome.MaxMessageBytes)
	if isTooLarge(t) {
		o := outcome.Outcome{Message: exit.Message}
		o.Note(TooLargeToStart)
		exit.Reason, exit.Message = startError, o.Message
	}
	return exit
}

// startError is the reason that the container runtime sets for a container that it could not start.
const startError = "StartError"

// TooLargeToStart says why a container could not be started, and what to do.
const TooLargeToStart = "the container could not be started, so the task has not run: its environment is too large for Linux. " +
	"One variable may have 128 KiB, and all together about 2 MiB: put large values of env, such as those of ConfigMaps, into files"

// isTooLarge reports whether a container did not start because its arguments and its environment are too large. runc executes the
// program of a container at the very end. If that fails, the container has started for the container runtime, and ends with an
// exit code and this line in its log.
func isTooLarge(t *corev1.ContainerStateTerminated) bool {
	said := strings.TrimSpace(t.Message)
	if !strings.HasSuffix(said, "argument list too long") {
		return false
	}
	return t.Reason == startError || strings.HasPrefix(said, "exec ") && !strings.Contains(said, "\n")
}
