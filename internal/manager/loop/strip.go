// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/outcome"
)

// Limits of what is cached of objects that others write: users of any namespace, and the kubelet of a compromised node. The API server
// accepts 1.5 MiB for each.
const (
	// MaxText is more than is shown of a text.
	MaxText = 1024
	// maxContainers is more containers than pods have.
	maxContainers = 64
	// maxTermination fits a termination message, which kubelets truncate to outcome.MaxBytes. With more than eight containers, all of them
	// together have maxTexts.
	maxTermination, maxTexts = outcome.MaxBytes, 8 * outcome.MaxBytes
	// maxDigest fits the digest with which the imageID of a container ends.
	maxDigest = len("sha256:") + 64
	// maxMetadata limits labels, annotations, owners and finalizers together, in bytes. Of an object with more, only those of Everynode stay.
	maxMetadata = 8 << 10
	// maxPlacement limits what says on which nodes the pods of a DaemonSet run, and which pods a selector selects, in bytes of JSON.
	maxPlacement = 16 << 10
)

// Strip keeps of an object the fields that NodeGuards and NodeDisruptionBudgets read, within bounds. It modifies its argument, which must not be
// in a cache yet. It returns an error for other kinds: a new kind needs a list of its fields here.
func Strip(o any) (any, error) {
	if trimmed, is := o.(metav1.Object); is && IsTrimmed(trimmed) {
		return o, nil // an informer may transform an object more than once
	}
	switch o := o.(type) {
	case *corev1.Pod:
		o.ObjectMeta = boundedMetadata(&o.ObjectMeta)
		o.Spec, o.Status = corev1.PodSpec{NodeName: o.Spec.NodeName, Tolerations: tolerationsOfSeat(o)},
			BoundedStatus(&o.Status, corev1.PodReady, corev1.DisruptionTarget)
	case *appsv1.DaemonSet:
		stripDaemonSet(o)
	case *policyv1.PodDisruptionBudget:
		stripBudget(o)
	default:
		return nil, fmt.Errorf("%T has no list of the fields to cache", o)
	}
	return o, nil
}

// tolerationsOfSeat returns the tolerations of a pod with the label of seats: those of a seat are never larger.
func tolerationsOfSeat(pod *corev1.Pod) []corev1.Toleration {
	if pod.Labels[v1alpha1.BudgetGroupLabel] == "" || sizeOf(pod.Spec.Tolerations) > maxPlacement {
		return nil
	}
	return pod.Spec.Tolerations
}

// stripDaemonSet keeps what says on which nodes the pods run. If that is too large, the object must be read from the API server (IsTrimmed).
func stripDaemonSet(ds *appsv1.DaemonSet) {
	pods := &ds.Spec.Template.Spec
	kept := appsv1.DaemonSetSpec{Selector: ds.Spec.Selector, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		NodeSelector: pods.NodeSelector, Affinity: pods.Affinity, Tolerations: pods.Tolerations, PriorityClassName: pods.PriorityClassName,
	}}}
	*ds = appsv1.DaemonSet{TypeMeta: ds.TypeMeta, ObjectMeta: identity(&ds.ObjectMeta), Spec: kept}
	if sizeOf(kept) > maxPlacement {
		ds.Spec = appsv1.DaemonSetSpec{}
		markTrimmed(ds, "true")
	}
}

// stripBudget keeps what limits evictions. One whose selector is too large counts as one that selects all pods of its namespace.
func stripBudget(b *policyv1.PodDisruptionBudget) {
	status := &b.Status
	*b = policyv1.PodDisruptionBudget{TypeMeta: b.TypeMeta, ObjectMeta: boundedMetadata(&b.ObjectMeta), Spec: b.Spec, Status: policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: status.ObservedGeneration, DisruptionsAllowed: status.DisruptionsAllowed, CurrentHealthy: status.CurrentHealthy,
		DesiredHealthy: status.DesiredHealthy, ExpectedPods: status.ExpectedPods, DisruptedPods: boundedPods(status.DisruptedPods),
	}}
	if sizeOf(b.Spec.Selector) > maxPlacement {
		b.Spec.Selector = &metav1.LabelSelector{}
	}
}

// boundedPods returns the pods whose evictions are under way. More than fit become kube.AnyPod.
func boundedPods(pods map[string]metav1.Time) map[string]metav1.Time {
	size := 0
	for name := range pods {
		size += len(name)
	}
	if size > maxPlacement {
		return map[string]metav1.Time{kube.AnyPod: {}}
	}
	return pods
}

// identity returns which version of which object it is.
func identity(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
	}
}

// boundedMetadata returns metadata without managed fields. It is whole otherwise, because what was read is written back, unless it is
// larger than that of any object of Everynode.
func boundedMetadata(m *metav1.ObjectMeta) metav1.ObjectMeta {
	kept := identity(m)
	kept.Labels, kept.Annotations, kept.OwnerReferences, kept.Finalizers = m.Labels, m.Annotations, m.OwnerReferences, m.Finalizers
	if sizeOf(kept) <= maxMetadata {
		return kept
	}
	kept.Labels, kept.Annotations, kept.Finalizers = OurKeys(m.Labels), OurKeys(m.Annotations), nil
	kept.OwnerReferences = slices.DeleteFunc(m.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Controller == nil || !*r.Controller })
	if sizeOf(kept) > maxMetadata {
		return identity(m) // then it is none of Everynode
	}
	return kept
}

// OurKeys returns the entries whose keys belong to Everynode. Other entries can be large, such as the copy of the whole object that kubectl
// stores.
func OurKeys(all map[string]string) map[string]string {
	ours := map[string]string{}
	for key, value := range all {
		if prefix, _, found := strings.Cut(key, "/"); found && prefix == v1alpha1.Group {
			ours[key] = value
		}
	}
	return ours
}

// BoundedStatus returns what is read of the status of a pod, with the conditions of these types.
func BoundedStatus(status *corev1.PodStatus, conditions ...corev1.PodConditionType) corev1.PodStatus {
	bounded := corev1.PodStatus{
		Phase: status.Phase, StartTime: status.StartTime, Reason: Cut(status.Reason, MaxText), Message: Cut(status.Message, MaxText),
		ContainerStatuses: boundedContainers(status.ContainerStatuses), InitContainerStatuses: boundedContainers(status.InitContainerStatuses),
	}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; slices.Contains(conditions, c.Type) && len(bounded.Conditions) < len(conditions) {
			bounded.Conditions = append(bounded.Conditions,
				corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: Cut(c.Reason, MaxText), LastTransitionTime: c.LastTransitionTime})
		}
	}
	return bounded
}

func boundedContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(statuses) == 0 {
		return nil
	}
	few := statuses[:min(len(statuses), maxContainers)]
	bounded := make([]corev1.ContainerStatus, 0, len(few))
	message := min(maxTermination, maxTexts/len(few))
	text := min(MaxText, message/4)
	for i := range few {
		s := corev1.ContainerStatus{
			Name: Cut(few[i].Name, text), Image: Cut(few[i].Image, text), ImageID: end(few[i].ImageID, maxDigest),
			ContainerID: end(few[i].ContainerID, maxDigest), RestartCount: few[i].RestartCount, State: few[i].State, Ready: few[i].Ready,
		}
		if few[i].LastTerminationState.Terminated != nil {
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{}
		}
		if w := s.State.Waiting; w != nil {
			w.Reason, w.Message = Cut(w.Reason, text), Cut(w.Message, text)
		}
		if t := s.State.Terminated; t != nil {
			t.Reason, t.Message, t.ContainerID = Cut(t.Reason, text), Cut(t.Message, message), ""
		}
		bounded = append(bounded, s)
	}
	return bounded
}

// end returns at most limit bytes from the end of a text.
func end(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.Clone(s[len(s)-limit:])
}

// Cut returns at most limit bytes of a text. A shortened text is copied, because a substring would keep the whole text in memory.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.Clone(s[:limit])
}

// sizeOf returns the size of a value as JSON, in bytes.
func sizeOf(value any) int {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // types of the API always marshal
	}
	return len(text)
}
