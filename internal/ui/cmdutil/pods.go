// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/ui/view"
)

// PodsNamed reads the pods that belong to a NodeJob of this name, including those of an earlier NodeJob with the same name.
func PodsNamed(ctx context.Context, c client.Reader, job *v1alpha1.NodeJob, opts ...client.ListOption) ([]corev1.Pod, error) {
	var all []corev1.Pod
	var page corev1.PodList
	err := EachPage(ctx, c, &page, func() { all = append(all, page.Items...) },
		append(opts, client.InNamespace(job.Namespace), client.MatchingLabels{v1alpha1.NodeJobLabel: job.Name})...)
	return all, err
}

// PodsOf reads the pods of the attempts of a NodeJob.
func PodsOf(ctx context.Context, c client.Reader, job *v1alpha1.NodeJob, opts ...client.ListOption) ([]corev1.Pod, error) {
	all, err := PodsNamed(ctx, c, job, opts...)
	return slices.DeleteFunc(all, func(pod corev1.Pod) bool { return !Owns(job, &pod) }), err
}

// NotEnded excludes pods that have ended. A run retains one of these on each node.
var NotEnded = client.MatchingFieldsSelector{Selector: fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))}

// Owns reports whether a pod belongs to this NodeJob, and not to an earlier one with the same name.
func Owns(job *v1alpha1.NodeJob, pod *corev1.Pod) bool {
	for i := range pod.OwnerReferences {
		if pod.OwnerReferences[i].UID == job.UID {
			return true
		}
	}
	return false
}

// AttemptOf returns what a view shows of an attempt that runs in this pod.
func AttemptOf(pod *corev1.Pod) view.Attempt {
	number, err := strconv.ParseInt(pod.Annotations[v1alpha1.AttemptAnnotation], 10, 32)
	if err != nil {
		number = 1
	}
	a := view.Attempt{Node: pod.Spec.NodeName, Phase: pod.Labels[v1alpha1.PhaseLabel], Number: int32(number), Created: pod.CreationTimestamp.Time}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := status.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			a.Waiting = w.Reason + ": " + cmp.Or(w.Message, status.Image)
		}
		if running := status.State.Running; running != nil {
			a.Started = running.StartedAt.Time
		}
	}
	return a
}

// Attempts returns the attempts of a NodeJob that have not ended: those that have not started first, then the oldest.
func Attempts(job *v1alpha1.NodeJob, pods []corev1.Pod) []view.Attempt {
	var attempts []view.Attempt
	for i := range pods {
		if pod := &pods[i]; Owns(job, pod) && !observe.Ended(pod) {
			attempts = append(attempts, AttemptOf(pod))
		}
	}
	slices.SortFunc(attempts, func(a, b view.Attempt) int {
		return cmp.Or(-cmp.Compare(min(len(a.Waiting), 1), min(len(b.Waiting), 1)), a.Created.Compare(b.Created), cmp.Compare(a.Node, b.Node))
	})
	return attempts
}
