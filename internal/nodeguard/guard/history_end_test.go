// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// settle ends a history: there are no more faults, and drains that have started continue.
func (h *history) settle() {
	h.calm = true
	h.say("the faults end")
	for _, w := range h.asleep {
		w()
	}
	h.asleep = nil
	clear(h.barred)
	h.keepClosed()
	h.rounds(40)
	h.allNamed()
	h.allGuarded()
	h.allLeft()
	if h.still && h.wake.IsZero() {
		h.mayUpgrade()
	}
	h.goOnWhileSick()
	h.heal()
	for range 150 {
		h.round()
		for name, n := range h.nodes { // a user approves the release requests
			if all := "ns/g1,ns/g2,ns/g3"; n.Approved != all && (n.Unschedulable || len(n.Taints) > 0) {
				n.Approved = all
				h.nodes[name] = n
			}
		}
		if h.still && h.atRest() == "" {
			break
		}
	}
	if why := h.atRest(); why != "" {
		h.fail("all faults are fixed, and the drains do not finish: %s", why)
		return
	}
	h.mayUpgrade()
	for name := range h.guards {
		delete(h.guards, name)
	}
	for range 5 {
		h.round()
	}
	for name, p := range h.pods {
		if p.role == "stranger" {
			delete(h.pods, name)
		}
	}
	if len(h.pods)+len(h.budgets) > 0 {
		h.fail("the NodeGuards are deleted, and objects remain: %v %v", sorted(h.pods), sorted(h.budgets))
	}
}

// rounds lets time pass until nothing happens any more, and no plan requests another pass.
func (h *history) rounds(most int) {
	for range most {
		h.round()
		if h.still && h.wake.IsZero() {
			return
		}
	}
}

// round is one pass of each guard with its effects. still is true after one in which nothing has happened, and
// wake is when the first plan then requests another pass.
func (h *history) round() {
	if h.still && h.wake.After(h.now) {
		h.now = h.wake
	}
	before, happened := h.serial, h.happened
	h.wake = time.Time{}
	for range 3 { // a check that has ended is observed before it is due again
		serial, actions := h.serial, h.happened
		for _, name := range sorted(h.guards) {
			if h.broken == "" {
				h.catchUp()
				h.pass(name)
				h.check()
			}
		}
		h.kubelets()
		for _, t := range h.tools {
			h.toolStep(t)
		}
		if h.serial == serial && h.happened == actions {
			break
		}
	}
	h.still = h.serial == before && h.happened == happened
	h.now = h.now.Add(7 * time.Second)
}

// allNamed : each node with a release request is released, or held for a correct reason.
func (h *history) allNamed() {
	for _, name := range sorted(h.guards) {
		in, _ := h.view(&h.cluster, name, true)
		for _, n := range Next(in).Nodes {
			if n.State == Held && !h.isTrue(name, &in, n) {
				h.fail("%s holds %s since %s (%s), which is not true", name, n.Name, n.Reason, n.Message)
			}
		}
	}
}

func (h *history) isTrue(name string, in *Input, held NodeState) bool {
	g, node := in.Guard, h.nodes[held.Name]
	refusing := false // a check that fails, of any node
	for n := range h.nodes {
		refusing = refusing || !h.gate[n]
	}
	switch held.Reason {
	case v1alpha1.ReasonWaitingForBudget:
		return h.seated()[node.UID]
	case v1alpha1.ReasonOverlappingBudget:
		return h.foreign
	case v1alpha1.ReasonReleasesDisabled:
		return h.limit(g) == 0
	case v1alpha1.ReasonAwaitingApproval:
		return !strings.Contains(node.Approved, "ns/"+name)
	case v1alpha1.ReasonCheckFailed:
		return !h.gate[held.Name] || refusing || held.Name == h.evil // the last message stays until the next check has ended
	case v1alpha1.ReasonCheckRunning, v1alpha1.ReasonWaitingForTurn:
		return refusing || h.evil != "" || len(h.refuses) > 0
	case v1alpha1.ReasonCheckNotStarting:
		return h.refuses[held.Name] || tenants[name]
	case v1alpha1.ReasonMaxUnavailableReached:
		all, sound := h.guarded(&h.cluster, g)
		return len(h.status(g).Released) > 0 || len(all) > len(sound)
	case v1alpha1.ReasonHeldByOtherGuard:
		for _, other := range sorted(h.guards) {
			if other != name && !h.barred[other] && strings.Contains(held.Message, "NodeGuard ns/"+other+" ") &&
				(refusing || h.mayHold(other, held.Name) || h.keepsPlaces(other, held.Name)) {
				return true
			}
		}
	case v1alpha1.ReasonWaitingForOtherRelease:
		for _, p := range in.Peers {
			for _, o := range p.Released {
				if o.Node != held.Name && strings.Contains(held.Message, "node "+o.Node+" ") && strings.Contains(held.Message, p.Name) {
					return true
				}
			}
		}
	}
	return false
}

// heal fixes everything that drains may wait for.
func (h *history) heal() {
	h.say("everything is fixed")
	if n, there := h.nodes[h.evil]; there &&
		!slices.ContainsFunc(h.tools, func(t *tool) bool { return t.phase != idle && t.node == n.Name }) {
		n.Unschedulable, n.Taints = false, nil
		h.setNode(n)
	}
	h.healed, h.foreign, h.evil, h.disruption.frozen = true, false, "", false
	h.removeForged()
	clear(h.refuses)
	for _, name := range sorted(h.guards) {
		if !h.guards[name].DeletionTimestamp.IsZero() {
			delete(h.guards, name) // its finalizer is removed
		}
	}
	clear(h.unready)
	clear(h.missing)
	for name, n := range h.nodes {
		n.Ready = true
		h.setNode(n)
		h.gate[name] = true
	}
	for name, g := range h.guards {
		if g.Spec.MaxUnavailable != nil && g.Spec.MaxUnavailable.IntValue() == 0 && g.Spec.MaxUnavailable.Type == intstr.Int {
			g = g.DeepCopy()
			g.Spec.MaxUnavailable, g.ResourceVersion = nil, h.uid()
			h.guards[name] = g
		}
	}
}

// atRest returns what must still happen; "" if nothing does.
func (h *history) atRest() string {
	for _, t := range h.tools {
		if t.phase != idle {
			return t.name + " drains " + t.node
		}
	}
	for _, name := range sorted(h.guards) {
		if tenants[name] {
			continue
		}
		in, _ := h.view(&h.cluster, name, true)
		p := Next(in)
		switch n := p.Status.Nodes; {
		case n.Waiting+n.Released+n.Unavailable > 0:
			return name + " has nodes that are held, going or away: " + strings.Join(h.states(&p), ", ")
		case n.Ready != n.Total || n.Updated != n.Total:
			return name + " has companions that are not ready"
		}
	}
	return ""
}

// waits reports whether a NodeGuard holds a node.
func (h *history) waits(guard string) bool {
	in, _ := h.view(&h.cluster, guard, true)
	return slices.ContainsFunc(Next(in).Nodes, func(n NodeState) bool { return n.State == Held })
}

// mayUpgrade checks that AKS would upgrade a cluster in which no node waits: it refuses while a PodDisruptionBudget requires all pods that it
// expects. Source: https://github.com/Azure/AKS/issues/4860
func (h *history) mayUpgrade() {
	for _, name := range sorted(h.budgets) {
		b, expected := h.budgets[name], int32(0)
		g, there := h.guards[b.guard]
		if !there || !g.DeletionTimestamp.IsZero() || h.isLoose(b.guard) || h.barred[b.guard] || holdsNothing(b.guard) ||
			len(h.refuses) > 0 ||
			h.evil != "" ||
			h.waits(b.guard) {
			continue
		}
		for _, p := range h.pods {
			if p.guard == b.guard && (p.role == "companion" || p.role == "placeholder") && !p.Terminating {
				expected++
			}
		}
		if b.MinAvailable >= expected {
			h.fail("the PodDisruptionBudget of %s requires %d of %d pods", b.guard, b.MinAvailable, expected)
		}
	}
}

func (h *history) states(p *Plan) []string {
	var all []string
	for _, n := range p.Nodes {
		if n.State != Guarded || n.Unavailable {
			all = append(all, n.Name+" "+string(n.State)+" ("+n.Message+")")
		}
	}
	return all
}
