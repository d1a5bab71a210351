package guard

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// settle is the end: no fault happens any more, drains that have begun go on.
func (h *history) settle() {
	h.calm = true
	h.say("the faults end")
	for _, w := range h.asleep {
		w()
	}
	h.asleep = nil
	for range 40 {
		h.round()
	}
	h.allNamed()
	h.goOnWhileSick()
	h.heal()
	for range 150 {
		h.round()
		for name, n := range h.nodes { // somebody approves what asks
			if all := "ns/g1,ns/g2,ns/g3"; n.Approved != all && (n.Unschedulable || len(n.Taints) > 0) {
				n.Approved = all
				h.nodes[name] = n
			}
		}
		if h.atRest() == "" {
			break
		}
	}
	if why := h.atRest(); why != "" {
		h.fail("all is well, and it does not end: %s", why)
		return
	}
	for name := range h.guards {
		delete(h.guards, name)
	}
	for range 5 {
		h.round()
	}
	if len(h.pods)+len(h.budgets) > 0 {
		h.fail("the NodeGuards are deleted, and something is left: %v %v", sorted(h.pods), sorted(h.budgets))
	}
}

func (h *history) round() {
	for range 3 { // a check that has ended is seen before it is due again
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
	}
	h.now = h.now.Add(7 * time.Second)
}

// allNamed : each node that asks is let go, or held for a reason that is true.
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
	refusing := false // a check that says no, of whichever node
	for n := range h.nodes {
		refusing = refusing || !h.gate[n]
	}
	switch held.Reason {
	case v1alpha1.ReasonOverlappingBudget:
		return h.foreign
	case v1alpha1.ReasonNoneMayGo:
		return g.Spec.MaxUnavailable != nil && g.Spec.MaxUnavailable.IntValue() == 0
	case v1alpha1.ReasonAwaitingApproval:
		return !strings.Contains(node.Approved, "ns/"+name)
	case v1alpha1.ReasonCheckFailed:
		return !h.gate[held.Name] || refusing // what the last check said stays until the next has ended
	case v1alpha1.ReasonCheckRunning, v1alpha1.ReasonNotItsTurn:
		return refusing
	case v1alpha1.ReasonTooManyAway:
		all, sound := h.guarded(&h.cluster, g)
		return len(g.Status.Going) > 0 || len(all) > len(sound)
	case v1alpha1.ReasonOtherGuardHolds:
		for _, other := range sorted(h.guards) {
			if other != name && strings.Contains(held.Message, "NodeGuard ns/"+other+" ") && (refusing || h.mayHold(other, held.Name)) {
				return true
			}
		}
	case v1alpha1.ReasonOtherGuardFirst:
		for _, p := range in.Peers {
			for _, o := range p.Going {
				if o.Node != held.Name && strings.Contains(held.Message, "node "+o.Node+" ") && strings.Contains(held.Message, p.Name) {
					return true
				}
			}
		}
	}
	return false
}

// heal mends all that drains may wait for.
func (h *history) heal() {
	h.say("all is mended")
	h.healed, h.foreign = true, false
	clear(h.sick)
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

// atRest is what is still to come; "" when nothing is.
func (h *history) atRest() string {
	for _, t := range h.tools {
		if t.phase != idle {
			return t.name + " drains " + t.node
		}
	}
	for _, name := range sorted(h.guards) {
		in, _ := h.view(&h.cluster, name, true)
		p := Next(in)
		switch n := p.Status.Nodes; {
		case n.Held+n.Going+n.Away > 0:
			return name + " has nodes that are held, going or away: " + strings.Join(h.states(&p), ", ")
		case n.Ready != n.Guarded || n.Updated != n.Guarded:
			return name + " has companions that are not ready"
		}
	}
	for _, b := range h.budgets {
		if b.Open {
			return "the budget of " + b.Node + " is open"
		}
	}
	return ""
}

func (h *history) states(p *Plan) []string {
	var all []string
	for _, n := range p.Nodes {
		if n.State != Guarded || n.Away {
			all = append(all, n.Name+" "+string(n.State)+" ("+n.Message+")")
		}
	}
	return all
}
