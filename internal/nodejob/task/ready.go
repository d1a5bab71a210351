// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import corev1 "k8s.io/api/core/v1"

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
