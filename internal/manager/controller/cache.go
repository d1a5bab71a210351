// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodecondition"
	"github.com/everynode/everynode/internal/seal"
)

// CacheOptions limit the cache to what the plan reads: only our own pods, and of all objects only the fields that it
// reads. Text that others can write is limited before it is stored. Objects are shared, not copied, so they must not be
// modified.
//
// What the manager has not written itself and would obey is removed too: the status of NodeJobs and NodeGuards without a valid
// seal.
func CacheOptions(key seal.Key) (cache.Options, error) {
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
		DefaultTransform: func(o any) (any, error) { return strip(key, o), nil },
		NewInformer:      loop.NewInformer,
	}, nil
}

// strip removes what is never read, and what has no valid seal. It modifies its argument, which must not be in a cache yet.
func strip(key seal.Key, o any) any {
	switch o := o.(type) {
	case *corev1.Pod:
		return stripPod(key, o)
	case *corev1.Node:
		return stripNode(o)
	case *v1alpha1.NodeJob:
		key.OpenNodeJob(o)
		o.ManagedFields, o.Annotations = nil, loop.OurKeys(o.Annotations)
	case *v1alpha1.NodeGuard:
		o.ManagedFields, o.Annotations = nil, loop.OurKeys(o.Annotations)
	case *metav1.PartialObjectMetadata:
		// The cache holds the metadata of all ConfigMaps and namespaces of the cluster. Only the version is read, and whether
		// a namespace is allowed, and on which nodes.
		allowed, nodes := hold.AllowsNodeJobs(o.Labels), hold.BoundNodesAnnotation(o.Annotations)
		o.ManagedFields, o.Annotations, o.Labels, o.OwnerReferences, o.Finalizers = nil, nil, nil, nil, nil
		if o.Kind == "Namespace" {
			o.Annotations = nodes
		}
		if allowed {
			o.Labels = map[string]string{v1alpha1.EnabledLabel: v1alpha1.EnabledValue}
		}
	case metav1.Object:
		o.SetManagedFields(nil)
	}
	return o
}

// stripNode removes what the plan never reads, above all the list of images. It modifies its argument, which must not
// be in a cache yet.
func stripNode(node *corev1.Node) *corev1.Node {
	node.ManagedFields, node.OwnerReferences, node.Finalizers = kube.Cordoner(node), nil, nil
	var ready []corev1.NodeCondition
	if c := kube.ReadyCondition(node); c != nil {
		ready = []corev1.NodeCondition{*c}
	}
	node.Spec = corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable, ProviderID: node.Spec.ProviderID}
	node.Status = corev1.NodeStatus{
		Conditions: append(ready, nodecondition.Kept(node.Status.Conditions)...),
		NodeInfo: corev1.NodeSystemInfo{
			BootID:       node.Status.NodeInfo.BootID,
			MachineID:    node.Status.NodeInfo.MachineID,
			Architecture: node.Status.NodeInfo.Architecture,
		},
	}
	return node
}
