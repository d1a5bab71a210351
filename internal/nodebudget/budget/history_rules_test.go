// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// oracle is what the test knows independently of the planner.
type oracle struct {
	lines  []string
	broken string
	met    map[string]int
	// out are the nodes that were taken away, by UID, until their seat is ready again, with what took them.
	out map[types.UID]taken
	paces
	// shown are the labels with which nodes count, as far as they may differ from those that they have.
	shown map[types.UID]shown
	// factsAt is when a node joined or was relabeled, brokenAt when it became Ready or not Ready, and touchedAt when anything of it
	// changed. changedAt is when a budget was created or changed.
	factsAt, brokenAt, touchedAt map[types.UID]time.Time
	changedAt                    map[string]time.Time
	// newcomers are the nodes that have joined during the history, and have not had a seat that counts. They use no budget.
	newcomers map[types.UID]bool
	// gaveUpAt is when a NodeJob that ignores windows on a node has given up to wait for it.
	gaveUpAt map[types.UID]time.Time
	// strangerAt and floorsAt are when pods of others got the label of a group, and when others changed a PodDisruptionBudget; left is
	// when nodes left the set of others that a percentage is of.
	strangerAt, floorsAt time.Time
	left                 []time.Time
	// synced is when a manager has last seen everything, and had no floor or group to change. What has changed since then, a manager may
	// not know, so it is forgiven.
	synced time.Time
	// asked are the checks of requirements, by the name of the budget, and startedAt is when the manager has started that makes them.
	asked     map[string]asked
	startedAt time.Time
	// calm is true after the faults have ended. wake and idle are of the last plan.
	calm, idle bool
	wake       time.Time
}

// taken is how a node was taken away.
type taken struct {
	by    string
	since time.Time
	// silent is true if the PodDisruptionBudget did not count it: the seat did not run, so the node counted as unavailable before.
	silent bool
	// deleted is true if a user deleted the seat after its eviction was granted, and before the API server did.
	deleted bool
}

func (h *history) fail(format string, args ...any) {
	if h.broken == "" {
		h.broken = fmt.Sprintf(format, args...)
		for _, group := range sorted(h.floors) {
			h.say("floor %+v", h.floors[group])
		}
		for _, name := range sorted(h.pods) {
			h.say("pod %+v", h.pods[name])
		}
		h.say("BROKEN: %s", h.broken)
	}
}

// known reports whether a manager has seen what happened at a time.
func (h *history) known(at time.Time) bool { return !at.After(h.synced) }

// isAskedFor reports whether anything announces that a node will be taken away.
func isAskedFor(n *Node) bool {
	for _, t := range n.Taints {
		if t.Key == "karpenter.sh/disrupted" {
			return true
		}
	}
	return n.Unschedulable || n.Deleting
}

// granted is called before the seat of a node is evicted.
func (h *history) granted(p *simPod, v verdict, by string) {
	h.check()
	h.met[map[verdict]string{grants: "granted", ignores: "pending seat evicted", unhealthy: "granted without counting"}[v]]++
	h.say("%s evicts %s of %s", by, p.Name, p.on)
	silent := v == ignores || v == unhealthy && !h.isFresh(p.Group)
	if before, there := h.out[p.Node]; !there || before.silent {
		h.out[p.Node] = taken{by: by, since: h.now, silent: silent}
	}
}

// takesWithoutSeat is called when a NodeJob begins on a node without a seat. If the node is available, it takes one more.
func (h *history) takesWithoutSeat(by string, n Node) {
	h.met["NodeJob took an unavailable node"]++
	if _, there := h.out[n.UID]; !there && n.Ready && !isAskedFor(&n) && h.known(h.touchedAt[n.UID]) {
		h.takes(by, &n)
	}
}

// deletes is called before the manager deletes a seat. If the node is available and something waits for it, that takes one more.
func (h *history) deletes(p *simPod) {
	n, there := h.nodes[p.on]
	switch {
	case p.Group == PendingGroup:
		h.met["pending seat deleted"]++
	case there && n.UID == p.Node && n.Ready && isAskedFor(&n) && p.running && p.Ready && h.known(h.touchedAt[n.UID]):
		h.takes("the manager", &n)
	}
}

// takes checks that one more node may be taken away, beside what the API server would grant.
func (h *history) takes(by string, n *Node) {
	if !h.known(h.strangerAt) || !h.known(h.floorsAt) {
		return
	}
	counting := h.counting(*n)
	n = &counting
	for _, name := range sorted(h.budgets) {
		b := h.budgets[name]
		if !h.binds(name, b) || !h.isSubject(b, n) {
			continue
		}
		if at := h.closedSince(name, b, h.ignoresWindows(n.UID)); !at.IsZero() && h.known(at) {
			h.fail("22 closed: %s takes %s without an eviction, and budget %s is closed since %v", by, n.Name, name, at)
		}
		for i, l := range b.limits {
			if _, counted, _, most := h.domain(b, l, n.Labels["zone"]); counted+1 > most {
				h.fail(
					"22 limit: %s takes %s without an eviction, besides %d; limit %d of %s allows %d",
					by,
					n.Name,
					counted,
					i,
					name,
					most,
				)
			}
		}
	}
	if before, there := h.out[n.UID]; !there || before.silent {
		h.out[n.UID] = taken{by: by, since: h.now}
	}
}

// created is called when a seat has been created. That is the end of a disruption for the pace.
func (h *history) created(p *simPod) {
	n := h.nodes[p.on]
	h.mayReturnWith(p)
	if t, there := h.out[p.Node]; there && t.by != "the manager" && !t.silent && !t.deleted && !h.isYoung(&n) {
		h.met["seat returned"]++
		h.ends[p.UID] = ended{h.back[p.Node], h.returns[p.Node]}
	}
	if !h.own[p.Node] {
		h.returns[p.Node] = h.now
	}
	delete(h.back, p.Node)
}

// joined is called when a new seat has got the label of its group. From then on, the node counts as available.
func (h *history) joined(p *simPod) {
	h.met["seat joined"]++
	h.mayReturnWith(p)
	if h.newcomers[p.Node] {
		h.met["first seat joined"]++
	}
	delete(h.newcomers, p.Node)
	delete(h.out, p.Node)
	delete(h.own, p.Node)
}

func (h *history) mayReturnWith(p *simPod) {
	if w := h.workOn(p.Node); w != nil && w.begun {
		h.fail("22 return: %s gets its seat back while a NodeJob works on it", p.on)
	}
}

// isYoung reports whether the seat of a node may be its first one as far as a manager can know.
func (h *history) isYoung(n *Node) bool {
	counting := h.counting(*n)
	n = &counting
	first, joined := h.now, n.Created.Add(joiningFor)
	for _, f := range h.floors {
		if f.Created.Before(first) {
			first = f.Created
		}
	}
	for _, b := range h.budgets {
		expired := !b.expires.IsZero() && !h.now.Add(h.skew).Before(b.expires)
		if b.included && !b.audit && !expired && b.selects(n, h.now) {
			joined = n.Created
		}
	}
	isNew := func(t time.Time) bool { return h.now.Before(t.Add(2*settleFor + time.Second + h.skew)) }
	return isNew(first) || isNew(joined)
}

// check checks the rules about what the API server would grant now.
func (h *history) check() {
	if h.broken != "" || !h.known(h.strangerAt) || !h.known(h.floorsAt) {
		return
	}
	for name, b := range h.budgets {
		if h.binds(name, b) {
			h.checkBudget(name, b)
		}
	}
}

// binds reports whether a budget holds anything, and a manager knows it.
func (h *history) binds(name string, b *simBudget) bool {
	expired := !b.expires.IsZero() && !h.now.Add(h.skew).Before(b.expires)
	if expired {
		h.met["budget expired"]++
	}
	return !b.audit && !expired && h.known(h.changedAt[name])
}

func (h *history) checkBudget(name string, b *simBudget) {
	at := h.closedSince(name, b, false)
	if !at.IsZero() && b.every > 0 {
		h.met["window closed"]++
	}
	for _, outside := range []bool{false, true} {
		at := h.closedSince(name, b, outside)
		if (at.IsZero() || !h.known(at)) && !h.isPaced(b) {
			continue
		}
		if could := h.couldLose(func(n *Node) bool { return h.isSubject(b, n) && h.ignoresWindows(n.UID) == outside }); could > 0 {
			h.fail(
				"22 closed: %d nodes could be taken away, and budget %s is closed (since %v) or its pace is not reached",
				could,
				name,
				at.Format("04:05"),
			)
		}
	}
	for i, l := range b.limits {
		for _, zone := range h.zones(l) {
			could, counted, nodes, most := h.domain(b, l, zone)
			if could > 0 && counted+could > most {
				h.fail(
					"22 limit: %d of %d nodes of %q could be taken away beside %d; limit %d of budget %s allows %d",
					could,
					nodes,
					zone,
					counted,
					i,
					name,
					most,
				)
			}
			if counted == most {
				h.met["at the limit"]++
			}
		}
	}
}

// zones are the values for which a limit applies separately.
func (h *history) zones(l simLimit) []string {
	if l.zone {
		return []string{"a", "b", ""}
	}
	return []string{""}
}

// domain counts the nodes that a limit is for: how many could be taken away now, how many are unavailable, all, and how many may be.
func (h *history) domain(b *simBudget, l simLimit, zone string) (could, counted, nodes, most int) {
	is := func(n *Node) bool { return b.selects(n, h.now.Add(h.skew)) && (!l.zone || n.Labels["zone"] == zone) }
	for _, n := range h.nodes {
		n = h.counting(n)
		if !is(&n) {
			continue
		}
		nodes++
		t, out := h.out[n.UID]
		out = out && (!t.silent || h.known(t.since))
		if h.isSubject(b, &n) && !h.newcomers[n.UID] && (out || !n.Ready && h.isBreakdownKnown(&n)) {
			counted++
		}
	}
	base := nodes
	for _, at := range h.left {
		if !h.known(at) {
			base++
		}
	}
	most = l.number
	if l.percent > 0 {
		most = max(1, l.percent*base/100)
	}
	return h.couldLose(func(n *Node) bool { return is(n) && h.isSubject(b, n) }), counted, nodes, most
}

// selects reports whether a budget counts a node.
func (b *simBudget) selects(n *Node, now time.Time) bool {
	return (b.pool == "" || n.Labels["pool"] == b.pool) && (b.included || !now.Before(n.Created.Add(joiningFor)))
}

// isSubject reports whether a budget counts a node, and a manager knows that.
func (h *history) isSubject(b *simBudget, n *Node) bool {
	return b.selects(n, h.now) && h.known(h.factsAt[n.UID]) && (b.included || h.known(n.Created.Add(joiningFor+h.skew)))
}

// isBreakdownKnown reports whether the limits must count a node that is not Ready. If all nodes have the same PodDisruptionBudget, no
// manager is needed for that.
func (h *history) isBreakdownKnown(n *Node) bool {
	if h.known(h.brokenAt[n.UID]) {
		return true
	}
	if !h.oneGroup || len(h.floors) != 1 {
		return false
	}
	for _, p := range h.pods {
		if _, there := h.floors[p.Group]; !there || p.Node == n.UID && p.Ready && !p.Terminating {
			return false
		}
	}
	for group := range h.floors {
		return h.isFresh(group)
	}
	return false
}

// isFresh reports whether the disruption controller has processed everything that it was told of a PodDisruptionBudget. The status may
// still count a pod that has other labels now.
func (h *history) isFresh(group string) bool {
	f := h.floors[group]
	return f.Processed && !f.queued && !hasExpired(&f, h.now)
}

func (h *history) allProcessed() bool {
	for group := range h.floors {
		if !h.isFresh(group) {
			return false
		}
	}
	return true
}

// couldLose is how many available nodes would lose their seats if every tool asked now.
func (h *history) couldLose(is func(*Node) bool) int {
	could := 0
	for group, f := range h.floors {
		asking := 0
		for _, p := range h.pods {
			if p.Group != group || !h.isHeld(&p, is) {
				continue
			}
			switch h.ask(&p) {
			case grants:
				asking++
			case unhealthy:
				if h.isFresh(group) {
					could++
				}
			case ignores, refuses, unprocessed:
			}
		}
		could += min(asking, int(f.Allowed))
	}
	for _, p := range h.pods {
		if _, there := h.floors[p.Group]; !there && h.isHeld(&p, is) {
			could++
		}
	}
	return could
}

// isHeld reports whether a pod is the running seat of an available node.
func (h *history) isHeld(p *simPod, is func(*Node) bool) bool {
	n, there := h.nodes[p.on]
	if !there || p.stranger || p.Group == PendingGroup || p.Terminating || p.Ended || !p.running || n.UID != p.Node || !n.Ready {
		return false
	}
	_, out := h.out[n.UID]
	n = h.counting(n)
	return !out && is(&n)
}

// ignoresWindows reports whether a NodeJob that waits for a node ignores windows there, as far as a manager can know.
func (h *history) ignoresWindows(node types.UID) bool {
	w := h.workOn(node)
	return w != nil && w.ignoresWindows && !w.begun || !h.known(h.gaveUpAt[node])
}

// closedSince is since when a budget allows nothing because of itself or its requirement, also outside of its windows; zero if it allows
// something.
func (h *history) closedSince(name string, b *simBudget, outside bool) time.Time {
	at, unmet := b.closedSince(h.now, h.skew, outside), h.unmetSince(name, b)
	if at.IsZero() || !unmet.IsZero() && unmet.Before(at) {
		return unmet
	}
	return at
}

// closedSince is since when a budget allows nothing because of itself, by the clock of any manager; zero if it allows something.
func (b *simBudget) closedSince(now time.Time, skew time.Duration, outside bool) time.Time {
	for _, l := range b.limits {
		if l.number == 0 && l.percent == 0 {
			return time.Unix(1, 0)
		}
	}
	if b.every == 0 || outside {
		return time.Time{}
	}
	last := now.Add(skew)
	hour := last.Truncate(time.Hour)
	opened := hour.Add(last.Sub(hour).Truncate(time.Duration(b.every) * time.Minute))
	if closed := opened.Add(b.length + skew); !now.Before(closed) {
		return closed
	}
	return time.Time{}
}

// isPaced reports whether the pace of a budget forbids a disruption. Times are in seconds.
func (h *history) isPaced(b *simBudget) bool {
	if b.pace == 0 {
		return false
	}
	for _, p := range h.pods {
		n, there := h.nodes[p.on]
		n = h.counting(n)
		e, ends := h.ends[p.UID]
		if there && ends && !p.Terminating && h.isSubject(b, &n) && h.now.Add(h.skew).Before(p.Created.Add(b.pace)) &&
			e.isRequired(p.Created, b.pace, h.skew) {
			h.met["pace"]++
			return true
		}
	}
	return false
}
