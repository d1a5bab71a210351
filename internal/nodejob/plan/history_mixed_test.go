// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Not all nodes are workers with Linux.

const (
	osLabel           = "kubernetes.io/os"
	controlPlane      = "node-role.kubernetes.io/control-plane"
	etcdMember        = "node-role.kubernetes.io/etcd"
	controlPlaneCount = 3
)

// mix turns a node into a control plane node or a Windows node.
func (h *history) mix(node *Node) {
	if !h.with(mixedNodes) {
		return
	}
	node.Labels[osLabel] = "linux"
	servers := 0
	for _, other := range h.nodes {
		if ofControlPlane(other) && other != node {
			servers++
		}
	}
	switch {
	case servers < controlPlaneCount:
		node.Labels[[]string{controlPlane, etcdMember}[h.dice.Intn(2)]] = ""
	case h.roll(4):
		node.Labels[osLabel] = "windows"
	}
}

// ofControlPlane reports whether the API server or etcd runs on a node.
func ofControlPlane(node *Node) bool {
	_, server := node.Labels[controlPlane]
	_, member := node.Labels[etcdMember]
	return server || member
}

// runsScripts reports whether the operating system of a node runs scripts.
func runsScripts(node *Node) bool {
	system, known := node.Labels[osLabel]
	return !known || system == "linux"
}

// checkControlPlane checks that no control plane node becomes unavailable while another one is unavailable.
func (h *history) checkControlPlane(in Input, p Plan) {
	if !h.with(mixedNodes) || !h.disrupts() || h.deleting() {
		return
	}
	taken := map[string]bool{}
	for _, action := range p.Actions {
		switch a := action.(type) {
		case Start:
			if a.Attempt.Phase == task.Task {
				taken[a.Attempt.NodeName] = true
			}
		case PatchNode:
			if a.Reason == v1alpha1.ReasonPreparing {
				taken[a.Node] = true
			}
		}
	}
	for i := range in.Nodes {
		node := &in.Nodes[i]
		if !taken[node.Name] || !ofControlPlane(node) || node.Ready != corev1.ConditionTrue || h.wasTaken(node) {
			continue
		}
		for k := range in.Nodes {
			other := &in.Nodes[k]
			if k == i || !ofControlPlane(other) {
				continue
			}
			quarantine := len(other.CordonedBy) == 1 && other.CordonedBy[0] == ownKey
			if other.Ready != corev1.ConditionTrue || other.Unschedulable && !quarantine || taken[other.Name] || h.atWork(in, other) {
				h.break_(
					"control plane",
					"%s becomes unavailable while %s is unavailable (Ready %s, cordoned %v)",
					node.Name,
					other.Name,
					other.Ready,
					other.Unschedulable,
				)
			}
		}
	}
}

// atWork reports whether a run on a node has not ended.
func (h *history) atWork(in Input, node *Node) bool {
	if h.reboots(node) {
		return true
	}
	return slices.ContainsFunc(in.Pods, func(p Pod) bool {
		return p.NodeName == node.Name && h.owed(&p) && h.onThisMachine(&p, node) && p.Runs == task.Task
	})
}

// wasTaken reports whether an earlier pass has started to prepare a node.
func (h *history) wasTaken(node *Node) bool {
	return slices.Contains(node.CordonedBy, ownKey) || slices.ContainsFunc(h.job.Status.Drains, func(d v1alpha1.NodeDrain) bool {
		return d.Node == node.Name
	})
}
