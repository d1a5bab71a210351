// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// sorted returns the keys of a map in order. It allocates once: the histories call it more than anything else.
func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func typesUID(s string) types.UID { return types.UID(s) }

// oracle is what the test knows independently of the planner.
type oracle struct {
	lines  []string
	broken string
	met    map[string]int
	// asked counts the release requests of a node, by its UID. lets counts those after which a guard released it.
	asked map[string]int
	lets  map[string]bool
	// unguardedOnce are those that ended because the node was no longer guarded.
	unguardedOnce map[string]bool
	// unready has the pods of a DaemonSet that are not ready regardless of the node, as "a" + node.
	unready map[string]bool
	// wasTaken are guards and nodes for whose companion a name was taken: these may have two for a moment.
	wasTaken map[string]bool
	// calm is true after the faults have ended, healed after everything is fixed.
	calm, healed bool
	// still, wake and happened are about the last round of the end.
	still    bool
	wake     time.Time
	happened int
}

func (h *history) fail(format string, args ...any) {
	if h.broken == "" {
		h.broken = fmt.Sprintf(format, args...)
		h.say("BROKEN: %s", h.broken)
	}
}

// guarded returns the nodes of a guard, computed in another way than in the planner.
func (h *history) guarded(c *cluster, g *v1alpha1.NodeGuard) (all, sound []string) {
	ds := g.Spec.Target.DaemonSet
	for _, name := range sorted(c.nodes) {
		pod, has := c.targets[ds][name]
		if !has && c.nodes[name].Labels["storage"] != "yes" || c.limited[g.Name] && c.nodes[name].Labels["team"] != "a" {
			continue
		}
		all = append(all, name)
		if has && pod.Ready && c.nodes[name].Ready {
			sound = append(sound, name)
		}
	}
	return all, sound
}

// limit is the number of nodes for maxUnavailable. A released node counts as one of the target's, regardless of its
// labels.
func (h *history) limit(g *v1alpha1.NodeGuard) int {
	all, _ := h.guarded(&h.cluster, g)
	for _, o := range h.status(g).Released {
		if n, there := h.nodes[o.Node]; there && n.UID == o.UID && !slices.Contains(all, o.Node) {
			all = append(all, o.Node)
		}
	}
	return share(g.Spec.MaxUnavailable, len(all))
}

// share is maxUnavailable as defined in docs/nodeguard.md: percentages are rounded down, but never below one unless they are 0%.
func share(v *intstr.IntOrString, nodes int) int {
	switch {
	case v == nil:
		return 1
	case v.Type == intstr.Int:
		return v.IntValue()
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	if err != nil {
		panic(err)
	}
	return max(percent*nodes/100, min(percent, 1))
}

// checkOf is the newest check of a guard on a node.
func (h *history) checkOf(guard, node string) (check simPod) {
	for _, p := range h.pods {
		if p.role == "check" && !p.forged && p.guard == guard && p.Node == node && !p.Created.Before(check.Created) {
			check = p
		}
	}
	return check
}

// decided checks a decision against the state when it was made.
func (h *history) decided(name string, in *Input, p *Plan) {
	g := in.Guard
	all, sound := h.guarded(&h.cluster, g)
	limit := h.limit(g)
	for _, m := range p.Moves {
		if m.Kind == MoveReleased && h.seated()[m.UID] {
			h.fail("%s releases %s, which has its seat", name, m.Node)
		}
		if m.Kind != MoveReleased || m.Reason == v1alpha1.ReasonBreakGlass || h.missing[g.Spec.Target.DaemonSet] {
			continue
		}
		others := 0
		for _, n := range all {
			if n != m.Node &&
				(!slices.Contains(sound, n) || slices.ContainsFunc(p.Status.Released, func(o v1alpha1.ReleasedNode) bool { return o.Node == n })) {
				others++
			}
		}
		if slices.Contains(sound, m.Node) && m.Reason == v1alpha1.ReasonConditionMet && others >= limit {
			h.fail("%s releases %s while %d others are unavailable, of at most %d", name, m.Node, others, limit)
		}
		if !slices.Contains(sound, m.Node) {
			h.met["unhealthy node released"]++
		}
		node := h.nodes[m.Node]
		if !node.Unschedulable && len(node.Taints) == 0 {
			h.fail("%s releases %s, which does not request it", name, m.Node)
		}
		if m.Reason == v1alpha1.ReasonConditionMet {
			h.conditionMet(name, g, m.Node)
		}
		h.othersAgree(name, m.Node)
		if h.foreign {
			h.fail("%s releases %s, which cannot be evicted", name, m.Node)
		}
	}
}

func (h *history) conditionMet(name string, g *v1alpha1.NodeGuard, node string) {
	n := h.nodes[node]
	if g.Spec.Release.Approval == v1alpha1.ApprovalRequired {
		h.met["approved"]++
		if !strings.Contains(n.Approved, "ns/"+name) {
			h.fail("%s releases %s without an approval", name, node)
		}
	}
	if g.Spec.Release.Check != nil {
		check := h.checkOf(name, node)
		if n.Ready && (check.Phase != "Succeeded" || check.ExitCode != 0) {
			h.fail("%s releases %s, whose check has not succeeded: %+v", name, node, check)
		}
	}
}

// moved checks a release when it is written.
func (h *history) moved(name string, limit int, p *Plan) {
	g := h.guards[name]
	in, free := 0, 0
	for _, m := range p.Moves {
		if m.Kind == MoveReturning {
			if node := h.nodes[m.Node]; requests(&node) && h.seated()[m.UID] {
				h.met["release ends because the seat is back"]++
			}
			continue
		}
		if m.Kind == MoveAvailable {
			h.met["available again"]++
			if _, there := h.nodes[m.Node]; !there {
				h.met["node deleted"]++
			}
			continue
		}
		in++
		h.met["released"]++
		switch m.Reason {
		case v1alpha1.ReasonBreakGlass:
			h.met["break-glass"]++
			free++
		case v1alpha1.ReasonDeadlineReached:
			h.met["deadline"]++
		}
		h.say("%s releases %s: %s", name, m.Node, m.Reason)
		ended := slices.ContainsFunc(p.Moves, func(o Move) bool { return o.UID == m.UID && o.Kind == MoveReturning })
		if !ended &&
			slices.ContainsFunc(h.status(g).Released, func(o v1alpha1.ReleasedNode) bool { return o.UID == m.UID && !o.Returning }) {
			h.fail("%s releases %s twice", name, m.Node)
		}
		key := fmt.Sprint(g.UID, m.UID, h.asked[string(m.UID)], g.Spec.Target.DaemonSet)
		if h.lets[key] && !h.unguardedOnce[key] {
			h.fail("%s releases %s a second time for one request", name, m.Node)
		}
		// A frozen manager may release a node that has got its seat back meanwhile. That release ends, and another one follows.
		h.lets[key] = !h.seated()[m.UID]
	}
	all, _ := h.guarded(&h.cluster, g)
	for _, m := range p.Moves {
		if m.Kind == MoveAvailable && !slices.Contains(all, m.Node) {
			h.unguardedOnce[fmt.Sprint(g.UID, m.UID, h.asked[string(m.UID)], g.Spec.Target.DaemonSet)] = true
		}
	}
	glass := 0
	for _, o := range p.Status.Released {
		if o.Reason == v1alpha1.ReasonBreakGlass {
			glass++
		}
	}
	if in > free && len(p.Status.Released)-glass > limit && !h.missing[g.Spec.Target.DaemonSet] {
		h.fail("%s has released %d nodes, of at most %d", name, len(p.Status.Released), limit)
	}
}

// deleting : a companion is deleted for a release only while its node is released.
func (h *history) deleting(guard string, p *simPod, a *DeletePod) {
	g, there := h.guards[guard]
	if p.role != "companion" || !there || p.Owner != g.UID || !g.DeletionTimestamp.IsZero() {
		return
	}
	if a.Reason == v1alpha1.ReasonRevisionStarted {
		h.met["companion replaced"]++
	}
	if !a.Unchanged {
		return
	}
	h.met["companion deleted for a release"]++
	node, exists := h.nodes[p.Node]
	all, _ := h.guarded(&h.cluster, g)
	if exists && slices.Contains(all, p.Node) && !h.mayKnowRelease(g, node) && !slices.ContainsFunc(h.status(g).Released,
		func(o v1alpha1.ReleasedNode) bool { return o.CompanionUID == p.UID }) {
		h.fail("the companion of %s on %s is deleted without a release", guard, p.Node)
	}
}

// companionOn : never two companions of a guard on a node.
func (h *history) companionOn(p *simPod) {
	for _, other := range h.pods {
		if p.role == "companion" && other.role == "companion" && !other.forged && other.Owner == p.Owner && other.Node == p.Node &&
			!h.wasTaken[p.guard+p.Node] {
			h.fail("two companions of %s on %s", p.guard, p.Node)
		}
	}
}

// explained : each guarded node with a release request is released, or held for a reason.
func (h *history) explained(in *Input, p *Plan) {
	if !in.Guard.DeletionTimestamp.IsZero() {
		return
	}
	asks := map[string]bool{}
	for _, n := range in.Nodes {
		asks[n.Name] = n.Unschedulable || n.Deleting || len(n.Taints) > 0 // all taints are release requests
	}
	for _, n := range p.Nodes {
		switch {
		case n.Reason == "" || n.Message == "":
			h.fail("%s is %s without a reason", n.Name, n.State)
		case asks[n.Name] && n.State == Guarded:
			h.fail("%s requests release, and is neither held nor released", n.Name)
		case n.State == Held:
			h.met[n.Reason]++
		}
	}
	if len(p.Status.Waiting) > 10 || len(p.Status.Released) > 100 {
		h.fail("a list of the status has no bound")
	}
	if !p.WakeAt.IsZero() && p.WakeAt.Before(in.Now) {
		h.fail("the plan requests another pass at a time in the past")
	}
	if in.Live || !p.Confirm {
		h.replaces(in, p)
	}
}

// replaces : no companion is taken from a node that is held, and no more are replaced at once than may be.
func (h *history) replaces(in *Input, p *Plan) {
	states := map[string]State{}
	for _, n := range p.Nodes {
		states[n.Name] = n.State
	}
	missing := 0
	for _, n := range in.Nodes {
		if states[n.Name] == "" || !n.Ready || states[n.Name] == Released {
			continue
		}
		ready := false
		for i := range in.Companions {
			if c := &in.Companions[i]; c.Node == n.Name && c.Owner == in.Guard.UID {
				ready = ready || (c.Ready && !c.Terminating && c.Phase == "Running")
			}
		}
		if !ready {
			missing++
		}
	}
	taken := 0
	for _, a := range p.Actions {
		d, deletes := a.(DeletePod)
		if !deletes || d.Pod.RequestedAt != "" || d.Pod.Owner != in.Guard.UID {
			continue
		}
		if d.Reason == v1alpha1.ReasonNameTaken {
			continue // one too many
		}
		isReady := d.Pod.Ready && !d.Pod.Terminating && d.Pod.Phase == "Running"
		if states[d.Pod.Node] == Held && isReady {
			h.fail("the companion of %s is deleted, although the node is held", d.Pod.Node)
		}
		if states[d.Pod.Node] == Guarded && isReady {
			taken++
		}
	}
	if taken > 0 && missing+taken > 1 {
		h.fail("%d companions are replaced while %d are missing", taken, missing)
	}
}

// check checks the rules for the cluster after every step.
func (h *history) check() {
	for _, name := range sorted(h.budgets) {
		b := h.budgets[name]
		g, there := h.guards[b.guard]
		if !there || g.UID != b.Owner || b.loose || h.isLoose(b.guard) {
			continue
		}
		ready := int32(0)
		for _, p := range h.pods {
			if p.guard == b.guard && p.role == "companion" && !p.Terminating && p.Ready {
				ready++
			}
		}
		if ready > b.MinAvailable {
			h.fail("the budget of %s requires %d of %d companions", b.guard, b.MinAvailable, ready)
		}
	}
	switch len(h.guards) {
	case 2:
		h.met["two guards on one node"]++
	case 3:
		h.met["three guards on one node"]++
	}
}

// isLoose reports whether there are pods with the labels of companions that Everynode has not created.
func (h *history) isLoose(guard string) bool {
	for _, p := range h.pods {
		if p.guard == guard && p.isStranger() {
			return true
		}
	}
	return false
}
