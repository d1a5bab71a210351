// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// Drain returns which pods a drain evicts.
func Drain(spec *v1alpha1.DrainSpec) (selector labels.Selector, deleteEmptyDirData bool, err error) {
	if spec == nil {
		return labels.Everything(), false, nil
	}
	if spec.PodSelector == nil {
		return labels.Everything(), spec.DeleteEmptyDirData, nil
	}
	if selector, err = metav1.LabelSelectorAsSelector(spec.PodSelector); err != nil {
		return nil, false, fmt.Errorf("reading drain.podSelector: %w", err)
	}
	return selector, spec.DeleteEmptyDirData, nil
}

// EvictedByDrain reports whether a drain has to wait for a pod. The rules are those of kubectl drain, except that a pod
// that has ended may stay, because nothing of it runs. The code of kubectl (k8s.io/kubectl pkg/drain) is not used: it
// reports the pods that it rejects only in one text for all of them, reads the DaemonSet of each pod on the node, and
// adds kustomize and cobra to the dependencies of the manager.
func EvictedByDrain(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == "apps/v1" {
		return false // it would be recreated on the same node
	}
	if owner != nil && owner.APIVersion == v1alpha1.GroupVersion.String() {
		switch {
		case owner.Kind == "NodeJob":
			return false // a task, which must run on this node
		case owner.Kind == "NodeGuard" && pod.Labels[v1alpha1.GuardRoleLabel] == v1alpha1.GuardRoleCheck:
			return false // it decides whether the drain goes ahead, and would start again and again
		}
	}
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// cordon is the taint of a cordoned node.
var cordon = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// DrainPod returns such a pod as the plan reads it.
func DrainPod(pod *corev1.Pod, deleteEmptyDirData bool) plan.DrainPod {
	view := plan.DrainPod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Terminating: !pod.DeletionTimestamp.IsZero()}
	owner := metav1.GetControllerOf(pod)
	if ours := owner != nil && owner.APIVersion == v1alpha1.GroupVersion.String(); !ours && kube.Tolerated(&cordon, pod.Spec.Tolerations) {
		view.Placed = pod.CreationTimestamp.Time
	}
	hasEmptyDir := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
	switch {
	case hasEmptyDir && !deleteEmptyDirData:
		view.EvictionRefused = "it has an emptyDir volume, whose content would be lost: set drain.deleteEmptyDirData, or delete it"
	case owner == nil:
		view.EvictionRefused = "it has no controller that would recreate it: delete it if it is not needed"
	}
	return view
}
