// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// ViewTarget returns what the plan reads of a pod of the target. It returns false if the pod has ended or is
// terminating.
func ViewTarget(p *corev1.Pod) (TargetPod, bool) {
	if kube.PodEnded(p.Status.Phase) {
		return TargetPod{}, false
	}
	pod := TargetPod{Node: p.Spec.NodeName, Ready: kube.PodReady(p) && p.DeletionTimestamp.IsZero()}
	if ref := metav1.GetControllerOf(p); ref != nil {
		pod.OwnerKind = ref.Kind
	}
	return pod, true
}

// ViewPod returns what the plan reads of a companion or a check.
func ViewPod(p *corev1.Pod) Pod {
	view := Pod{
		Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Node: p.Spec.NodeName, EndedRelease: p.Annotations[v1alpha1.EndedReleaseAnnotation],
		Owner: owner(p), Revision: p.Labels[v1alpha1.RevisionLabel],
		Created: p.CreationTimestamp.Time, Phase: phaseOf(p), Ready: kube.PodReady(p), Terminating: !p.DeletionTimestamp.IsZero(),
		RequestedAt: p.Annotations[v1alpha1.RequestedAtAnnotation], Waiting: kube.Waiting(p),
	}
	if view.ended() {
		view.Ended, view.ExitCode, view.Message = ended(p)
	}
	return view
}

// owner is the UID of the NodeGuard that created an object, also if its owner reference was removed.
func owner(o metav1.Object) types.UID {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return ref.UID
	}
	return types.UID(o.GetAnnotations()[v1alpha1.NodeGuardUIDAnnotation])
}

// phaseOf returns the phase of a companion or a check. An admission webhook or policy may have added containers to a check, which
// may run for ever, or fail: then the phase follows from how its own container ended, unless the kubelet has ended it.
func phaseOf(p *corev1.Pod) corev1.PodPhase {
	own := checkContainer(p)
	if own == nil || own.State.Terminated == nil || len(p.Status.ContainerStatuses) == 1 {
		return p.Status.Phase
	}
	_, reported := outcome.Decode(own.State.Terminated.Message)
	switch isEnded := p.Status.Reason != "" || !p.DeletionTimestamp.IsZero(); {
	case isEnded && !reported:
		return p.Status.Phase
	case own.State.Terminated.ExitCode == 0:
		return corev1.PodSucceeded
	}
	return corev1.PodFailed
}

// checkContainer returns the container of a check, which is not always the only one; nil if there is none.
func checkContainer(p *corev1.Pod) *corev1.ContainerStatus {
	if p.Labels[v1alpha1.GuardRoleLabel] != v1alpha1.GuardRoleCheck {
		return nil
	}
	if status := kube.ContainerStatus(p, task.ContainerName); status != nil {
		return status
	}
	return kube.ContainerStatus(p, ContainerName)
}

// ended returns how a check ended. A check that the kubelet ended has no end time: then its creation time is used, so
// that the next check starts sooner.
func ended(p *corev1.Pod) (at time.Time, code int32, message string) {
	at, code, message = p.CreationTimestamp.Time, -1, p.Status.Reason
	statuses := p.Status.ContainerStatuses
	if own := checkContainer(p); own != nil {
		statuses = []corev1.ContainerStatus{*own}
	}
	for i := range statuses {
		if t := statuses[i].State.Terminated; t != nil {
			at, code, message = p.CreationTimestamp.Add(took(p, t.FinishedAt)), t.ExitCode, t.Message
			if o, reported := outcome.Decode(t.Message); reported {
				message = o.Message
			}
		}
	}
	return at, code, message
}

// took returns how long a pod ran until a time of its node. The clock of a node can be wrong, so only a duration that
// the node measured is used, together with the time at which the API server created the pod.
func took(p *corev1.Pod, until metav1.Time) time.Duration {
	if p.Status.StartTime == nil {
		return 0
	}
	return max(until.Sub(p.Status.StartTime.Time), 0)
}
