// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/testing/fakeapi"
)

// patience is how long a drain is tried that is given up.
const patience = 10 * time.Minute

// beginDrain has a tool drain a node as kubectl drain does, maintain it and uncordon it.
func (h *history) beginDrain(node *corev1.Node) {
	if !h.isFree(node) || node.Spec.Unschedulable {
		return
	}
	givesUp := time.Time{}
	if h.one(3) {
		givesUp = time.Now().Add(patience)
	}
	h.goDrain(node, givesUp)
}

// goDrain has a tool drain and maintain a node, while other things happen.
func (h *history) goDrain(node *corev1.Node, givesUp time.Time) {
	h.goes("the drain of "+node.Name, node.UID, func() { h.drain(node, givesUp) })
}

// goes has something happen while other things do. The history does not end before it.
func (h *history) goes(what string, id types.UID, do func()) {
	h.mu.Lock()
	h.drains[id] = what
	h.mu.Unlock()
	go func() {
		do()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.drains, id)
	}()
}

// isFree reports whether no tool drains a node.
func (h *history) isFree(node *corev1.Node) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.drains[node.UID] == ""
}

func (h *history) drain(node *corev1.Node, givesUp time.Time) {
	h.say("a tool cordons %s", node.Name)
	fakeapi.Edit(h.api, node, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	time.Sleep(h.api.Between(50*time.Millisecond, 500*time.Millisecond, "lists", node.UID))
	pods := slices.DeleteFunc(fakeapi.All[*corev1.Pod](h.api), func(p *corev1.Pod) bool {
		owner := metav1.GetControllerOf(p)
		return p.Spec.NodeName != node.Name || owner == nil || owner.Kind == "DaemonSet"
	})
	for round := 0; len(pods) > 0; round++ {
		pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool {
			live := fakeapi.Get[*corev1.Pod](h.api, p.Namespace, p.Name)
			return live == nil || live.UID != p.UID
		})
		for _, p := range pods {
			_ = h.api.Evict(p) // refused evictions are tried again
		}
		switch {
		case h.isGone(node), h.isOver():
			return
		case !givesUp.IsZero() && time.Now().After(givesUp):
			h.say("a tool gives up to drain %s", node.Name)
			h.uncordon(node)
			return
		}
		time.Sleep(h.api.Between(4*time.Second, 6*time.Second, "evicts", node.UID, round))
	}
	h.say("a tool has drained %s", node.Name)
	h.maintain(node)
}

func (h *history) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

func (h *history) isGone(node *corev1.Node) bool {
	live := fakeapi.Get[*corev1.Node](h.api, "", node.Name)
	return live == nil || live.UID != node.UID
}

func (h *history) maintain(node *corev1.Node) {
	h.setWorking(node, true)
	defer h.setWorking(node, false)
	if h.api.Roll(2, "reboots", node.UID, node.ResourceVersion) == 0 {
		h.kubelets.Reboot(node)
	}
	time.Sleep(h.api.Between(40*time.Second, 90*time.Second, "works", node.UID))
	if h.isGone(node) {
		return
	}
	h.kubelets.SetReady(node, corev1.ConditionTrue)
	h.uncordon(node)
}

func (h *history) uncordon(node *corev1.Node) {
	h.say("a tool uncordons %s", node.Name)
	fakeapi.Edit(h.api, node, func(n *corev1.Node) { n.Spec.Unschedulable = false })
}
