// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// An autoscaler adds and removes nodes at any time.

const (
	// mostNodes is the maximum size of the cluster, and mostAtEnd the maximum size while the rollout must finish.
	mostNodes, mostAtEnd = nodeCount + 3, nodeCount + 8
)

// scaleJob makes steps that grow with the cluster.
func (h *history) scaleJob() {
	if !h.with(autoscaler) || !h.roll(2) {
		return
	}
	for i := range h.job.Spec.Rollout.Steps {
		if st := &h.job.Spec.Rollout.Steps[i]; st.Nodes != nil {
			st.Nodes = new(intstr.FromString([]string{"20%", "50%"}[h.dice.Intn(2)]))
			st.SoakSeconds = 20
		}
	}
}

// scale is an event of an autoscaler.
func (h *history) scale() {
	if len(h.nodes) < mostNodes && (len(h.nodes) < 4 || h.roll(2)) {
		h.scaleUp()
		return
	}
	node := h.pick()
	switch h.dice.Intn(3) {
	case 0:
		if !goingAway(node) {
			h.say("%s will be scaled down", node.Name)
			node.Taints = append(slices.Clone(node.Taints), corev1.Taint{Key: clusterAutoscalerTaint, Effect: corev1.TaintEffectNoSchedule})
			h.changed(node)
			return
		}
		h.scaleDown(node)
	case 1:
		if !node.Deleting {
			h.say("%s is being deleted", node.Name)
			node.Deleting, node.DeletingSince = true, h.now.Truncate(time.Second)
			h.changed(node)
			return
		}
		h.scaleDown(node)
	default:
		h.scaleDown(node)
	}
}

func (h *history) scaleDown(node *Node) {
	h.say("%s is scaled down", node.Name)
	delete(h.nodes, node.Name)
}

// scaleUp adds a node, which is not always Ready from the beginning.
func (h *history) scaleUp() {
	h.uid++
	name := fmt.Sprintf("a%d", h.uid)
	h.addNode(name)
	h.say("%s is scaled up", name)
	if node := h.nodes[name]; h.roll(2) {
		node.Ready = []corev1.ConditionStatus{"", corev1.ConditionFalse}[h.dice.Intn(2)]
		node.ReadySince = time.Time{}
		h.workloads[node.UID] = nil
	}
}

// grow adds nodes while the rollout must finish, and makes all nodes Ready.
func (h *history) grow(pass int) {
	if !h.with(autoscaler) || h.gone {
		return
	}
	for _, name := range sortedKeys(h.nodes) {
		node := h.nodes[name]
		if h.isBad(node) || h.now.Before(node.Created.Add(20*time.Second)) || h.now.After(node.Created.Add(time.Minute)) {
			continue
		}
		// It has joined, and becomes Ready.
		h.ready(node, corev1.ConditionTrue)
		node.Taints = slices.DeleteFunc(slices.Clone(node.Taints), func(t corev1.Taint) bool { return bars(&t) })
		if !h.plain {
			h.settleNode(node)
		}
		h.changed(node)
	}
	if pass%4 == 3 && len(h.nodes) < mostAtEnd {
		h.scaleUp()
	}
}
