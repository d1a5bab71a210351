// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/kube"
)

// tool drains nodes as kubectl does: it cordons, lists the pods once, evicts each until it terminates, and ignores
// those of DaemonSets. Then it maintains the node and uncordons it.
type tool struct {
	name, node string
	uid        string
	phase      int
	pods       []string // by UID, as it observed them
	since      time.Time
}

const (
	idle = iota
	cordon
	evict
	work_
	open_
)

func (h *history) toolStep(t *tool) {
	defer func(before int) {
		if t.phase != before {
			h.happened++
		}
	}(t.phase)
	node, there := h.nodes[t.node]
	if t.phase != idle && (!there || string(node.UID) != t.uid) {
		t.phase = idle
		return
	}
	switch t.phase {
	case idle:
		if t.node = pick(h, h.nodes); t.node == "" || h.calm {
			return
		}
		node = h.nodes[t.node]
		t.uid, t.phase, t.since = string(node.UID), cordon, h.now
	case cordon:
		h.cordon(&node)
		t.pods = nil
		for _, p := range sorted(h.pods) {
			if pod := h.pods[p]; pod.Node == t.node && pod.role != "stranger" { // drains omit the pods of kubelets
				t.pods = append(t.pods, string(pod.UID))
			}
		}
		if s, has := h.seats[t.node]; has {
			t.pods = append(t.pods, string(s.uid))
		}
		h.say("%s drains %s: %v", t.name, t.node, t.pods)
		t.phase = evict
	case evict:
		if !node.Unschedulable && len(node.Taints) == 0 {
			t.phase = idle // a user has uncordoned it: its release request has ended, and nothing releases it
			return
		}
		if s, has := h.seats[t.node]; has && !s.pending && !slices.Contains(t.pods, string(s.uid)) {
			t.phase = cordon // the node was uncordoned meanwhile: the drain must list its pods again
			return
		}
		h.evictAll(t)
	case work_:
		h.maintain(t, node)
	case open_:
		if !node.Ready && (h.calm || h.chance(70)) {
			node.Ready = true
		}
		if node.Ready {
			node.Unschedulable, node.Taints = false, nil
			h.say("%s uncordons %s", t.name, t.node)
			h.met["drained"]++
			if len(h.guards) > 1 && slices.Contains(slices.Collect(maps.Values(h.unready)), true) {
				h.met["drained while another is unready"]++
			}
			t.phase = idle
		}
		h.setNode(node)
	}
}

func (h *history) cordon(node *kube.Node) {
	if !node.Unschedulable && len(node.Taints) == 0 {
		h.asked[string(node.UID)]++
	}
	if h.chance(20) {
		node.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}
	} else {
		node.Unschedulable = true
	}
	h.setNode(*node)
}

func (h *history) evictAll(t *tool) {
	left := h.evictSeat(t)
	for _, name := range sorted(h.pods) {
		p := h.pods[name]
		if !slices.Contains(t.pods, string(p.UID)) {
			continue
		}
		left = true
		switch {
		case p.Terminating:
		case !h.mayEvict(&p):
			h.met["refused"]++
		default:
			h.takesOne(&p)
			h.evicted(&p)
			h.happened++
			p.Terminating = true
			h.pods[name] = p
			h.say("%s evicts %s", t.name, name)
			h.met["evicted"]++
		}
	}
	if !left {
		t.phase = work_
	}
}

// mayEvict is the decision of the API server, by what the disruption controller has calculated last.
// Source: k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go.
func (h *history) mayEvict(p *simPod) bool {
	if p.Phase != corev1.PodRunning || p.role == "check" {
		return true
	}
	b, there := h.budgets[BudgetName(p.guard)]
	switch {
	case there && h.foreign:
		return false // it has two
	case !there:
		return !h.foreign
	case !p.Ready && b.Healthy >= b.desired && b.desired > 0:
		return true
	}
	return b.Processed && b.allowed > 0
}

// takesOne is called when an eviction is granted.
func (h *history) takesOne(p *simPod) {
	if b, there := h.budgets[BudgetName(p.guard)]; there && p.Ready && p.Phase == corev1.PodRunning && p.role != "check" {
		b.allowed--
		h.budgets[b.Name] = b
	}
}

// process is a pass of the disruption controller for a budget.
func (h *history) process(b simBudget) {
	was := b
	b.Healthy, b.desired, b.Processed = 0, b.MinAvailable, true
	for _, p := range h.pods {
		if p.guard == b.guard && p.Ready && !p.Terminating && (p.isStranger() || p.role == "companion") {
			b.Healthy++
			b.loose = b.loose || p.isStranger()
		}
	}
	b.allowed = max(0, b.Healthy-b.desired)
	if b.Healthy != was.Healthy || b.desired != was.desired || b.allowed != was.allowed || !was.Processed {
		h.happened++
		b.ResourceVersion = h.uid()
		h.budgets[b.Name] = b
	}
}

// isStranger reports whether the budget selects a pod that Everynode has not created, or not like that.
func (p *simPod) isStranger() bool {
	return p.role == "stranger" && p.claims != "" || p.forged && (p.role == "companion" || p.role == "placeholder")
}

func (h *history) maintain(t *tool, node kube.Node) {
	if h.chance(15) && !h.calm && len(h.nodes) > 2 {
		h.say("%s removes %s", t.name, t.node)
		delete(h.nodes, t.node)
		t.phase = idle
		if h.chance(60) {
			h.addNode(t.node) // another machine, under the same name
		}
		return
	}
	node.Ready = h.chance(40) || h.healed
	h.setNode(node)
	t.phase = open_
}
