// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import "fmt"

// step causes one event.
func (h *history) step() {
	switch n := h.rng.Intn(100); {
	case n < 30:
		if h.chance(70) {
			h.catchUp()
		}
		h.pass(pick(h, h.guards))
	case n < 45:
		h.kubelets()
	case n < 68:
		h.toolStep(h.tools[h.rng.Intn(2)])
	case n < 76:
		h.catchUpWith()
	case n < 80:
		if len(h.asleep) > 0 {
			h.say("a frozen manager resumes with %d writes", len(h.asleep))
			h.met["manager resumed"]++
			for _, w := range h.asleep {
				w()
			}
			h.asleep = nil
		}
	case n < 84 && h.evil != "":
		h.compromised()
	case n < 92:
		h.trouble()
	default:
		h.user()
	}
}

// trouble is a fault of a node or a pod.
func (h *history) trouble() {
	name := pick(h, h.nodes)
	node := h.nodes[name]
	switch h.rng.Intn(9) {
	case 8:
		h.refuses[name] = h.chance(30)
		if !h.refuses[name] {
			delete(h.refuses, name)
		}
	case 0:
		node.Ready = !node.Ready
		h.say("%s is Ready: %v", name, node.Ready)
		h.setNode(node)
	case 1:
		node.Ready = true
		h.setNode(node)
	case 2:
		ds := []string{"a", "b"}[h.rng.Intn(2)]
		h.unready[ds+name] = !h.unready[ds+name]
		if pod, there := h.targets[ds][name]; there {
			pod.Ready = !h.unready[ds+name] && node.Ready
			h.targets[ds][name] = pod
		}
		h.say("the pod of %s on %s is not ready: %v", ds, name, h.unready[ds+name])
	case 3:
		if p, there := h.pods[pick(h, h.pods)]; there && p.role == "companion" {
			p.Ready = false
			h.pods[p.Name] = p
		}
	case 4:
		if p, there := h.pods[pick(h, h.pods)]; there && p.role == "companion" && !p.Terminating {
			h.say("the kubelet evicts %s", p.Name)
			p.Phase, p.Ready = "Failed", false
			h.pods[p.Name] = p
		}
	case 5:
		h.gate[name] = !h.gate[name]
	case 6:
		h.addNode(fmt.Sprint("n", 6+h.rng.Intn(3)))
	case 7:
		if len(h.nodes) > 2 && h.chance(40) {
			h.say("%s is deleted", name)
			delete(h.nodes, name)
		}
	}
}

// limitNamespace is an administrator who limits the namespace of a NodeGuard to the nodes of team a, or no longer.
func (h *history) limitNamespace() {
	names := sorted(h.guards)
	if h.limits == nil || h.limits.Intn(25) > 0 || len(names) == 0 {
		return
	}
	guard := names[h.limits.Intn(len(names))]
	h.limited[guard] = !h.limited[guard]
	h.keepClosed()
	h.say("the namespace of %s is limited: %v", guard, h.limited[guard])
}

// user is an action of a user.
func (h *history) user() {
	name, guard := pick(h, h.nodes), pick(h, h.guards)
	node := h.nodes[name]
	switch h.rng.Intn(13) {
	case 12:
		h.changeDisruptions()
	case 11:
		if guard != "" {
			h.barred[guard] = h.chance(40)
			h.keepClosed()
			h.say("the namespace of %s is allowed: %v", guard, !h.barred[guard])
		}
	case 10:
		h.comeAndGo(guard)
	case 0, 1:
		node.Approved = "ns/g1,ns/g2,ns/g3"
		h.setNode(node)
	case 2:
		if h.chance(30) {
			node.BreakGlass = "3 a.m."
			h.say("%s has the break-glass annotation", name)
			h.setNode(node)
		}
	case 3:
		if g := h.guards[guard]; g != nil {
			g = g.DeepCopy()
			h.respec(g)
			g.ResourceVersion = h.uid()
			h.guards[guard] = g
			h.say("%s: maxUnavailable %v, %+v", guard, g.Spec.MaxUnavailable, g.Spec.Release)
		}
	case 4:
		if h.chance(25) && guard != "" {
			target := h.guards[guard].Spec.Target.DaemonSet
			h.say("%s is deleted", guard)
			h.met["guard deleted"]++
			delete(h.guards, guard)
			if h.chance(70) {
				h.addGuard(guard, target)
			}
		}
	case 5:
		h.foreign = h.chance(15)
	case 6:
		node.Unschedulable, node.Taints = false, nil
		h.say("a user uncordons %s", name)
		h.setNode(node)
	case 7:
		if h.chance(40) {
			node.Labels = map[string]string{"storage": []string{"yes", "no"}[h.rng.Intn(2)], "team": node.Labels["team"]}
			h.setNode(node)
		}
	case 8:
		h.missing[[]string{"a", "b"}[h.rng.Intn(2)]] = h.chance(15)
	case 9:
		if b, there := h.budgets[pick(h, h.budgets)]; there && h.chance(30) {
			h.say("a user deletes budget %s", b.Name)
			delete(h.budgets, b.Name)
		}
	}
}
