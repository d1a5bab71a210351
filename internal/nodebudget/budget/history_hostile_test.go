// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// hostileStep is what root on a node does to stop the others, or to leave its budgets: it ends its seat, evicts it, looks unavailable, and
// changes its labels and the status of its seat.
func (h *history) hostileStep() {
	n, there := h.nodes[h.hostile]
	if !there {
		return
	}
	i := slices.IndexFunc(sorted(h.pods), func(name string) bool { p := h.pods[name]; return p.Node == n.UID && !p.Terminating })
	if i < 0 || h.chance(30) {
		if h.chance(50) && !h.static {
			h.relabel(n.Name)
		} else {
			h.setReady(n.Name, !n.Ready)
		}
		return
	}
	p := h.pods[sorted(h.pods)[i]]
	switch h.rng.Intn(4) {
	case 0:
		h.met["seat ended by its node"]++
		h.say("%s ends its seat", n.Name)
		p.Terminating = true
		h.setPod(p)
	case 1:
		h.met["seat evicted by its node"]++
		h.evict(p.Name, p.UID, "its node")
	case 2:
		h.say("%s says that its seat has failed", n.Name)
		p.Ended, p.Ready = true, false
		h.setPod(p)
	case 3:
		h.say("%s says that its seat was evicted", n.Name)
		p.Evicted = true
		h.setPod(p)
	}
}

// paces is what the test knows of the pace.
type paces struct {
	// own are the nodes that are absent without a granted eviction, as the manager has observed.
	own map[types.UID]bool
	// back is since when passes have seen that a node without a seat is available, seen when one has seen that last, and returns when nodes
	// got their seats. All are of absences that may have been granted.
	back, seen, returns map[types.UID]time.Time
	// ends are the seats whose creation ended a disruption, by UID.
	ends map[types.UID]ended
	// held are the budgets that the pace closes, by name, and passed is when the last pass was.
	held   map[string]held
	passed time.Time
}

// ended is a return that begins a pace: since when the node was available, and when it had returned before.
type ended struct{ back, before time.Time }

// held is since when the pace of a budget holds other nodes, and which nodes have returned meanwhile.
type held struct {
	since time.Time
	uid   types.UID
	by    map[types.UID]bool
}

func newPaces() paces {
	return paces{
		own:     map[types.UID]bool{},
		back:    map[types.UID]time.Time{},
		seen:    map[types.UID]time.Time{},
		returns: map[types.UID]time.Time{},
		ends:    map[types.UID]ended{},
		held:    map[string]held{},
	}
}

// seesEnd is called when a watch has told the manager the end of a seat.
func (h *history) seesEnd(e end) {
	w := h.workOn(e.seat.Node)
	switch {
	case !e.known || e.seat.Evicted && e.seat.Group != PendingGroup || w != nil && w.begun:
		delete(h.own, e.seat.Node)
	case e.seat.Group != PendingGroup:
		h.own[e.seat.Node] = true
	}
}

// seesBack notes which nodes without a seat a pass has seen to be available.
func (h *history) seesBack(in *Input) {
	for i := range in.Nodes {
		n := &in.Nodes[i]
		seated := slices.ContainsFunc(in.Seats, func(s Seat) bool { return s.Node == n.UID })
		isBack := !seated && n.Ready && !isAskedFor(n) && in.Holds[n.UID] == "" && !in.Now.Before(n.ReadyChanged.Add(settleFor))
		if isBack && !h.own[n.UID] {
			h.seen[n.UID] = h.now
			if h.back[n.UID].IsZero() {
				h.back[n.UID] = h.now
			}
		}
	}
}

// mayHold checks that a pace holds the nodes of a budget only after a node has returned from an absence that was granted, and that one
// node does not hold them for longer than the pace and the time that its return may take.
func (h *history) mayHold(in *Input, p *Plan) {
	before := h.passed
	h.passed = h.now
	for _, o := range in.Budgets {
		b := h.manager.cache.budgets[o.Name]
		if !isPaceClosed(p, o.Name) {
			delete(h.held, o.Name)
			continue
		}
		h.met["held by the pace"]++
		slack := 2*h.skew + 2*time.Second
		of := h.held[o.Name]
		if of.uid != o.UID || h.now.Sub(before) > b.pace/2 {
			of = held{since: h.now, uid: o.UID, by: map[types.UID]bool{}}
		}
		for _, all := range []map[types.UID]time.Time{h.returns, h.seen} {
			for n, at := range all {
				if h.now.Before(at.Add(2*b.pace + slack)) {
					of.by[n] = true
				}
			}
		}
		switch {
		case len(of.by) == 0:
			h.fail("22 pace: budget %s is held, and no node has returned from an absence that was granted", o.Name)
		case len(of.by) == 1 && h.now.Sub(of.since) > b.pace+min(b.pace, 2*settleFor)+slack:
			h.fail("22 pace: the node %v holds budget %s since %v, and its pace is %v", sorted(toStrings(of.by)), o.Name, of.since, b.pace)
		}
		h.held[o.Name] = of
	}
}

// isPaceClosed reports whether the pace of a budget holds a node that is available.
func isPaceClosed(p *Plan, name string) bool {
	for _, s := range p.Stances {
		if strings.HasPrefix(s.Message, "NodeDisruptionBudget "+name+" allows the next disruption at ") {
			return true
		}
	}
	return false
}

func toStrings(nodes map[types.UID]bool) map[string]bool {
	names := map[string]bool{}
	for n := range nodes {
		names[string(n)] = true
	}
	return names
}

// isRequired reports whether a return begins the pace of a budget: not soon after an earlier one of the same node.
func (e *ended) isRequired(at time.Time, pace, skew time.Duration) bool {
	recent := !e.before.IsZero() && at.Before(e.before.Add(3*pace+2*skew+2*time.Second))
	slow := !e.back.IsZero() && at.Add(skew+2*time.Second).After(e.back.Add(min(pace, 2*settleFor)))
	return !recent && !slow
}

// shown are the labels with which a node counts.
type shown struct {
	labels map[string]string
	since  time.Time
}

// counting returns a node with the labels with which it counts.
func (h *history) counting(n Node) Node {
	if s, known := h.shown[n.UID]; known {
		n.Labels = s.labels
	}
	return n
}

// seesLabels is called after a pass: a node keeps its labels while it is unavailable, and otherwise for twice the time in which it settles.
func (h *history) seesLabels(in *Input) {
	for i := range in.Nodes {
		n := in.Nodes[i]
		s, known := h.shown[n.UID]
		isThere := n.Ready &&
			slices.ContainsFunc(in.Seats, func(s Seat) bool { return s.Node == n.UID && s.Ready && s.Group != PendingGroup })
		kept := maps.Clone(n.Labels)
		for _, key := range h.readKeys() {
			if kept[key] = s.labels[key]; kept[key] == "" {
				delete(kept, key)
			}
		}
		switch {
		case !known:
			s = shown{n.Labels, in.Now}
		case maps.Equal(kept, n.Labels):
			s.labels = n.Labels
		case in.Now.Before(s.since.Add(2*settleFor)) || !isThere && h.isLimited(in, n, kept):
			h.met["relabeled in vain"]++
			s.labels = kept
		default:
			s.labels, s.since = n.Labels, in.Now
			h.factsAt[n.UID] = h.now
			h.left = append(h.left, h.now)
		}
		delete(h.shown, n.UID)
		if h.isLimited(in, n, s.labels) || known && in.Now.Before(s.since.Add(2*settleFor)) {
			h.shown[n.UID] = s
		}
	}
}

// isLimited reports whether a budget that the manager knows limits a node with these labels.
func (h *history) isLimited(in *Input, n Node, labels map[string]string) bool {
	n.Labels = labels
	for _, b := range h.manager.cache.budgets {
		expired := !b.expires.IsZero() && !in.Now.Before(b.expires)
		if !b.audit && !expired && b.selects(&n, in.Now) {
			return true
		}
	}
	return false
}

// readKeys are the labels that the budgets read.
func (h *history) readKeys() []string {
	keys := map[string]bool{}
	for _, b := range h.manager.cache.budgets {
		if b.pool != "" {
			keys["pool"] = true
		}
		for _, l := range b.limits {
			keys["zone"] = keys["zone"] || l.zone
		}
	}
	maps.DeleteFunc(keys, func(_ string, read bool) bool { return !read })
	return sorted(keys)
}

// forgetsLabels is called when another manager begins.
func (h *history) forgetsLabels() {
	for _, n := range h.nodes {
		if !maps.Equal(h.counting(n).Labels, n.Labels) {
			h.factsAt[n.UID] = h.now
			h.left = append(h.left, h.now)
		}
	}
	h.shown = map[types.UID]shown{}
}
