// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
)

// What is read of a node with the cache is what is read without it, whatever was read before.
func TestNodeViewsAreThoseOfTheNewestVersion(t *testing.T) {
	views := newNodeViews()
	tests := []struct {
		name   string
		change func(*corev1.Node)
	}{
		{"it is new", func(*corev1.Node) {}},
		{"nothing has changed", func(*corev1.Node) {}},
		{"a label, an annotation and a taint are added", func(n *corev1.Node) {
			n.ResourceVersion, n.Labels["new"], n.Annotations["new"] = "2", "x", "y"
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "new"})
		}},
		{"it is cordoned for a NodeJob and reboots", func(n *corev1.Node) {
			n.ResourceVersion, n.Annotations[v1alpha1.CordonedAnnotation] = "3", "ns.everynode.dev/x"
			n.Spec.Unschedulable, n.Status.NodeInfo.BootID = true, "next"
		}},
		{"another node has its name and version", func(n *corev1.Node) { n.UID, n.Status.NodeInfo.MachineID = "other", "other" }},
		{"it has no version", func(n *corev1.Node) { n.ResourceVersion, n.Status.NodeInfo.BootID = "", "a" }},
		{"it has no version, and has changed", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b" }},
		{"it was forgotten", func(n *corev1.Node) { views.forget(n.Name) }},
	}
	node := watchedNode()
	node.UID, node.ResourceVersion = "uid", "1"
	for _, tt := range tests {
		node = node.DeepCopy()
		tt.change(node)
		if diff := cmp.Diff(observe.Node(node), views.read(node)); diff != "" {
			t.Errorf("%s (-without cache +with):\n%s", tt.name, diff)
		}
		if kept := views.of[node.Name]; kept.Labels != nil || kept.Annotations != nil || kept.Taints != nil {
			t.Errorf("%s: the cache keeps an old version in memory: %+v", tt.name, kept)
		}
	}
	if views.forget(node.Name); len(views.of) > 0 {
		t.Errorf("a node that is gone is kept: %v", views.of)
	}
}

// An unchanged node is not read again: that would be a large part of the cost of a pass.
func TestUnchangedNodesAreReadOnce(t *testing.T) {
	views, node := newNodeViews(), watchedNode()
	node.ResourceVersion = "1"
	views.read(node)
	changed := node.DeepCopy()
	changed.Status.NodeInfo.BootID = "changed without a new version"
	if got := views.read(changed); got.BootID != node.Status.NodeInfo.BootID {
		t.Errorf("it was read again: %q", got.BootID)
	}
}
