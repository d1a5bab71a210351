// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// guards reports whether the node has a pod of the target, or should have one.
//
// A released node stays guarded until it is available again or deleted, regardless of which pods of the target remain
// there. Otherwise a node whose pods were evicted would no longer count as unavailable, and the next node would be
// released.
func (o observed) guards(n *nodePlan) bool {
	switch {
	case !hold.AllowsNode(o.in.AllowedNodes, n.Labels):
		return false // its companion and its check would run there
	case n.active():
		return true
	case o.in.Target.Missing || o.in.Target.Invalid != "":
		// The target may be recreated soon, so guarded nodes stay guarded.
		return n.companion != nil || !n.storedAt.IsZero() || n.isReleased()
	case n.targets > 0:
		return true
	default:
		return o.belongsToTarget(n)
	}
}

// belongsToTarget reports whether the node should have a pod of a DaemonSet. A released node stays guarded even if it
// returns with taints: they exclude the target, so the node must not count as available.
func (o observed) belongsToTarget(n *nodePlan) bool {
	template := o.in.Target.Template
	return template != nil && targetSelects(template, n.Node) && (n.isReleased() || !excludesTarget(template, n.Node))
}

// targetSelects reports whether a DaemonSet selects a node by its name, selector and affinity.
// Source: k8s.io/kubernetes pkg/controller/daemon, NodeShouldRunDaemonPod.
func targetSelects(template *corev1.PodSpec, node *kube.Node) bool {
	if template.NodeName != "" && template.NodeName != node.Name {
		return false
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: template.NodeSelector, Affinity: template.Affinity}}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(object)
	return err == nil && matches
}

// excludesTarget reports whether the taints of a node exclude a DaemonSet's pod. Taints that are release requests do
// not count: what they announce has not happened yet.
func excludesTarget(template *corev1.PodSpec, node *kube.Node) bool {
	var taints []corev1.Taint
	for _, taint := range node.Taints {
		if !kube.AsksByTaint(&taint) {
			taints = append(taints, taint)
		}
	}
	return kube.Untolerated(taints, task.Tolerations(template.Tolerations)) != nil
}
