// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe converts API objects to what the plan reads. The manager does so from its caches, and the command
// line from lists of its own, so that both compute the same plan. The package is pure: data that has to be fetched is
// passed in, or fetched by functions that are passed in.
package observe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
)

// Node returns the node as the plan reads it, without its record.
func Node(node *corev1.Node) plan.Node {
	view := plan.Node{
		Name:            node.Name,
		UID:             node.UID,
		Created:         node.CreationTimestamp.Time,
		ResourceVersion: node.ResourceVersion,
		Labels:          node.Labels,
		Annotations:     node.Annotations,
		Taints:          node.Spec.Taints,
		Unschedulable:   node.Spec.Unschedulable,
		CordonedBy:      record.CordonedBy(node.Annotations),
		CordonedWith:    outcome.Clean(kube.CordonedWith(node), 64),
		Deleting:        !node.DeletionTimestamp.IsZero(),
		BootID:          record.BoundID(node.Status.NodeInfo.BootID),
		MachineID:       record.BoundID(node.Status.NodeInfo.MachineID),
		ProviderID:      node.Spec.ProviderID,
		Architecture:    node.Status.NodeInfo.Architecture,
	}
	if t := node.DeletionTimestamp; t != nil {
		view.DeletingSince = t.Time
	}
	if c := kube.ReadyCondition(node); c != nil {
		view.Ready = c.Status
		switch c.Status {
		case corev1.ConditionTrue:
			view.ReadySince = c.LastTransitionTime.Time
		case corev1.ConditionUnknown:
			view.UnreachableSince = c.LastTransitionTime.Time
		case corev1.ConditionFalse:
		}
	}
	return view
}

// BusyNodes returns the nodes on which a task of an earlier NodeJob of the same name is still running, for example
// after a user has deleted and recreated the NodeJob, and since when its first pod should have ended there. Two runs at
// once on a node must not happen.
func BusyNodes(job *v1alpha1.NodeJob, strangers []*corev1.Pod) map[string]time.Time {
	nodes := map[string]time.Time{}
	for _, pod := range strangers {
		owner := metav1.GetControllerOf(pod)
		ended := kube.PodEnded(pod.Status.Phase)
		if !ended && owner != nil && owner.Kind == "NodeJob" && owner.Name == job.Name {
			since := pod.CreationTimestamp.Time
			if pod.DeletionTimestamp != nil {
				since = pod.DeletionTimestamp.Time // when its grace period ends
			}
			if first, busy := nodes[pod.Spec.NodeName]; !busy || since.Before(first) {
				nodes[pod.Spec.NodeName] = since
			}
		}
	}
	return nodes
}
