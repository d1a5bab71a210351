// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodecondition"
)

// Node is what NodeGuards and NodeDisruptionBudgets read of a node.
type Node struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Labels          map[string]string
	Taints          []corev1.Taint
	Unschedulable   bool
	Ready           bool
	Deleting        bool
	// Announced is the condition by which another tool announces that the node will be drained or maintained; "" if none does.
	Announced corev1.NodeConditionType
	// Approved and BreakGlass are the values of the annotations.
	Approved   string
	BreakGlass string
}

// ViewNode returns what the planners read of a node.
func ViewNode(n *corev1.Node) Node {
	return Node{
		Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels, Taints: n.Spec.Taints,
		Unschedulable: n.Spec.Unschedulable, Deleting: !n.DeletionTimestamp.IsZero(),
		Ready: NodeReady(n), Announced: nodecondition.Announced(n.Status.Conditions),
		Approved: n.Annotations[v1alpha1.ApproveReleaseAnnotation], BreakGlass: n.Annotations[v1alpha1.BreakGlassAnnotation],
	}
}

// ReadyCondition returns the condition Ready of a node; nil if its kubelet has not reported one yet.
func ReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}

// NodeReady reports whether a node is Ready.
func NodeReady(node *corev1.Node) bool {
	c := ReadyCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}
