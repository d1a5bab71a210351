package controller

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/loop"
)

// CacheOptions keep in memory only what the plan reads: our own pods, and of pods and nodes only the
// fields that it looks at. Objects are shared, not copied: nothing may change them in place.
func CacheOptions() (cache.Options, error) {
	ours, err := labels.NewRequirement(v1alpha1.NodeJobLabel, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, err
	}
	shared := true
	return cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:  {Label: labels.NewSelector().Add(*ours), UnsafeDisableDeepCopy: &shared},
			&corev1.Node{}: {UnsafeDisableDeepCopy: &shared},
		},
		DefaultTransform: func(o any) (any, error) { return strip(o), nil },
		NewInformer:      loop.NewInformer,
	}, nil
}

func strip(o any) any {
	switch o := o.(type) {
	case *corev1.Pod:
		return stripPod(o)
	case *corev1.Node:
		return stripNode(o)
	case *metav1.PartialObjectMetadata:
		// The cache holds the metadata of all the cluster's ConfigMaps, of which only the version is read.
		o.ManagedFields, o.Annotations, o.Labels, o.OwnerReferences = nil, nil, nil, nil
	}
	return o
}

// stripPod drops what the plan never reads, above all the script in the container's environment. It
// changes its argument, which must not be in a cache yet.
func stripPod(pod *corev1.Pod) *corev1.Pod {
	pod.ManagedFields = nil
	containers := make([]corev1.Container, 0, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		containers = append(containers, corev1.Container{Name: pod.Spec.Containers[i].Name})
	}
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, Containers: containers}
	return pod
}

// stripNode drops what the plan never reads, above all the list of images. It changes its argument,
// which must not be in a cache yet.
func stripNode(node *corev1.Node) *corev1.Node {
	node.ManagedFields = nil
	var ready []corev1.NodeCondition
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			ready = append(ready, node.Status.Conditions[i])
		}
	}
	node.Spec = corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable}
	node.Status = corev1.NodeStatus{
		Conditions: ready,
		NodeInfo: corev1.NodeSystemInfo{
			BootID:    node.Status.NodeInfo.BootID,
			MachineID: node.Status.NodeInfo.MachineID,
		},
	}
	return node
}
