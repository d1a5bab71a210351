// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/seal"
)

// Limits of what is cached of a pod. The kubelet writes the status, and a compromised one can write up to the limit of
// the API server, 1.5 MiB.
const (
	// maxContainers is more containers than pods have.
	maxContainers = 64
	// maxAnnotation is more than any annotation of our pods has.
	maxAnnotation = 1024
)

// fromNodeJob reports whether the manager has created a pod for a NodeJob. Labels, annotations and owners prove nothing,
// because users who can create a pod can set them: the seal does.
//
// A pod with our finalizer and without an owner belonged to a NodeJob that was deleted with --cascade=orphan. Its
// finalizer still has to be removed.
func fromNodeJob(key seal.Key, pod *corev1.Pod) bool {
	if metav1.GetControllerOf(pod) != nil {
		return namesNodeJob(pod) && key.MadePod(pod)
	}
	return len(pod.OwnerReferences) == 0 && controllerutil.ContainsFinalizer(pod, v1alpha1.PodFinalizer)
}

// namesNodeJob reports whether a NodeJob is the controller of a pod, according to the pod. A kubelet can only create pods that
// its own Node owns. Source: k8s.io/kubernetes plugin/pkg/admission/noderestriction, admitPodCreate.
func namesNodeJob(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false
	}
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	return owner.Kind == "NodeJob" && group == v1alpha1.Group
}

// nodeJobOf returns the name of the NodeJob that a cached pod was created for; "" if there is none.
func nodeJobOf(pod *corev1.Pod) string { return pod.Labels[v1alpha1.NodeJobLabel] }

// stripPod removes what the plan never reads, above all the script in the container's environment, and limits the rest.
// Of a pod that was not created for a NodeJob only its identity remains. It modifies its argument, which must not be in
// a cache yet.
func stripPod(key seal.Key, pod *corev1.Pod) *corev1.Pod {
	if !fromNodeJob(key, pod) {
		*pod = *identityOf(pod)
		return pod
	}
	pod.ManagedFields = nil
	pod.Labels, pod.Annotations = loop.OurKeys(pod.Labels), loop.OurKeys(pod.Annotations)
	for key, value := range pod.Annotations {
		if len(value) > maxAnnotation {
			delete(pod.Annotations, key)
		}
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	held := controllerutil.ContainsFinalizer(pod, v1alpha1.PodFinalizer)
	if pod.Finalizers = nil; held {
		pod.Finalizers = []string{v1alpha1.PodFinalizer}
	}
	pod.Spec, pod.Status = stripPodSpec(&pod.Spec), loop.BoundedStatus(&pod.Status, corev1.DisruptionTarget)
	return pod
}

// identityOf returns what is kept of a pod that the manager has not created. A pod with our finalizer that names a NodeJob as its
// controller was created by another client, or changed by one after the manager had created it. The manager deletes it and
// removes the finalizer, so its NodeJob stays in the label.
func identityOf(pod *corev1.Pod) *corev1.Pod {
	identity := &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}}
	if name := nodeJobOf(pod); name != "" && namesNodeJob(pod) && controllerutil.ContainsFinalizer(pod, v1alpha1.PodFinalizer) {
		identity.Labels, identity.Finalizers = map[string]string{v1alpha1.NodeJobLabel: name}, []string{v1alpha1.PodFinalizer}
		identity.DeletionTimestamp = pod.DeletionTimestamp
	}
	return identity
}

func stripPodSpec(spec *corev1.PodSpec) corev1.PodSpec {
	few := spec.Containers[:min(len(spec.Containers), maxContainers)]
	containers := make([]corev1.Container, 0, len(few))
	for i := range few {
		containers = append(containers, corev1.Container{Name: loop.Cut(few[i].Name, loop.MaxText), RestartPolicy: few[i].RestartPolicy})
	}
	return corev1.PodSpec{NodeName: spec.NodeName, RestartPolicy: spec.RestartPolicy, Containers: containers}
}
