// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
			if pod := h.pods[p]; pod.Node == t.node {
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
		case p.Terminating || slices.ContainsFunc(h.inFlight, func(e eviction) bool { return e.uid == p.UID }):
		case !h.mayEvict(&p):
			h.met["refused"]++
		case h.isCounted(&p) && !h.calm && h.chance(15):
			h.begins(&p)
		default:
			h.evicted(&p)
			h.deleteEvicted(p)
			h.say("%s evicts %s", t.name, name)
		}
	}
	if !left {
		t.phase = work_
	}
}

// eviction is a request for an eviction that a PodDisruptionBudget has counted, and whose pod is not deleted yet.
type eviction struct {
	pod         string
	uid, budget types.UID
	// released is true if the node was released when the eviction was granted. Another client may have opened the PodDisruptionBudget.
	released bool
}

// isCounted reports whether an eviction is counted by the PodDisruptionBudget of a node. It is not that of a pod that is not ready.
func (h *history) isCounted(p *simPod) bool {
	b, there := h.budgets[BudgetName(p.guard, p.Node)]
	return there && b.Open && p.Ready && p.role == "companion" && !p.forged
}

func (h *history) begins(p *simPod) {
	b := h.budgets[BudgetName(p.guard, p.Node)]
	h.evicted(p)
	h.happened++
	h.met["eviction in flight"]++
	h.say("the eviction of %s is granted, and the API server has not deleted it yet", p.Name)
	h.inFlight = append(h.inFlight, eviction{p.Name, p.UID, b.UID, h.guards[p.guard] != nil && h.wasReleased(h.guards[p.guard], p.Node)})
	b.evicted, b.Evicting, b.ResourceVersion = append(slices.Clone(b.evicted), p.Name), true, h.uid()
	h.budgets[b.Name] = b
}

func (h *history) deleteEvicted(p simPod) {
	h.happened++
	p.Terminating = true
	h.pods[p.Name] = p
	h.met["evicted"]++
}

// continueEvictions deletes pods whose evictions were granted before. The API server deletes them by UID only, whatever has happened
// meanwhile, unless it crashes before.
func (h *history) continueEvictions() {
	for _, e := range slices.Clone(h.inFlight) {
		if h.calm || h.chance(25) {
			h.continueEviction(e, !h.calm && h.chance(10))
		}
	}
}

func (h *history) continueEviction(e eviction, lost bool) {
	h.inFlight = slices.DeleteFunc(h.inFlight, func(o eviction) bool { return o == e })
	h.happened++
	p, there := h.pods[e.pod]
	switch {
	case !there || p.UID != e.uid || p.Terminating:
	case lost:
		h.met["eviction lost"]++
		h.say("the API server crashes before it deletes %s", e.pod)
	default:
		h.say("the API server deletes %s", e.pod)
		h.isReleasedUntil(e, &p)
		h.deleteEvicted(p)
	}
}

// isReleasedUntil : a release lasts as long as an eviction that it has let through.
func (h *history) isReleasedUntil(e eviction, p *simPod) {
	g, living := h.guards[p.guard]
	b, there := h.budgets[BudgetName(p.guard, p.Node)]
	if !e.released || !living || !there || b.UID != e.budget || b.loose || g.UID != p.Owner || !g.DeletionTimestamp.IsZero() {
		return
	}
	node, exists := h.nodes[p.Node]
	all, _ := h.guarded(&h.cluster, g)
	if exists && slices.Contains(all, p.Node) && !h.wasReleased(g, p.Node) && !h.mayKnowRelease(g, node) {
		h.fail("the API server deletes the companion of %s on %s, and its release has ended", g.Name, p.Node)
	}
}

// forgetEvicted is what the disruption controller does: it counts a pod again that was not deleted for two minutes.
func (h *history) forgetEvicted(b simBudget) simBudget {
	var left []string
	for _, name := range b.evicted {
		if p, there := h.pods[name]; there && !p.Terminating &&
			slices.ContainsFunc(h.inFlight, func(e eviction) bool { return e.uid == p.UID }) {
			left = append(left, name)
		}
	}
	if len(left) != len(b.evicted) {
		h.happened++
		b.evicted, b.Evicting, b.ResourceVersion = left, len(left) > 0, h.uid()
	}
	return b
}

// mayEvict is the decision of the API server. Source: k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go.
func (h *history) mayEvict(p *simPod) bool {
	if p.Phase != corev1.PodRunning || p.role == "check" {
		return true
	}
	budget, there := h.budgets[BudgetName(p.guard, p.Node)]
	switch {
	case there && h.foreign:
		return false // it has two
	case !there:
		return !h.foreign
	case !budget.counted:
		return false
	case budget.Open: // minAvailable 0, AlwaysAllow
		return true
	}
	healthy, wanted := 0, 1 // minAvailable, IfHealthyBudget
	if budget.Locked {
		wanted = 1000000
	}
	for _, other := range h.pods {
		if other.Ready && other.guard == p.guard &&
			((other.role == "companion" && other.Node == p.Node) || (other.role == "stranger" && other.claims == p.Node)) {
			healthy++
		}
	}
	return healthy > wanted || (!p.Ready && healthy >= wanted)
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
