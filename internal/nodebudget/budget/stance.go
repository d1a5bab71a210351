// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/plural"
)

// maxNamed limits the nodes in a message.
const maxNamed = 3

// takeStances says what budgets mean for NodeJobs that disrupt a node. No more members of a group are allowed than the API server would
// grant evictions, because those beyond that would be requested in vain: first those that NodeJobs wait for, in the order in which they
// asked, then others by name. A NodeJob that wants another one is told to wait, and takes its place in that order.
func (p *planner) takeStances() {
	allowed := p.allowed()
	for _, m := range p.members {
		s := hold.Stance{Allowed: true}
		switch {
		case m.seat != nil:
			s.Seat, s.SeatUID, s.Allowed = m.seat.Name, m.seat.UID, allowed[m]
			if !s.Allowed {
				_, s.Message = p.obstacle(m)
				s.HeldBy = p.heldBy(m)
			}
		case p.isDrained(m):
			s.Drained = true
		case p.waitsForSeat(m):
			s = hold.Stance{Message: "the node is available, and first gets the seat with which its NodeDisruptionBudgets count it"}
		}
		p.plan.Stances[m.UID] = s
	}
}

// isDrained reports whether something has drained a node and not given it back: its seat is gone, and it is cordoned. A node that has not
// been Ready for a while may have lost its seat for that reason. If in doubt, the node had a seat.
func (p *planner) isDrained(m *member) bool {
	if m.seat != nil || !m.Unschedulable || m.fresh {
		return false
	}
	repaired := m.ReadyChanged.Add(RepairAfter)
	if !m.Ready {
		p.wake(repaired)
	}
	return m.Ready || p.in.Now.Before(repaired)
}

// allowed chooses the members whose seats a NodeJob may evict now.
func (p *planner) allowed() map[*member]bool {
	left := make(map[*group]int, len(p.groups))
	for _, g := range p.groups {
		g.evictable = p.evictable(g)
		left[g] = g.evictable
	}
	first := slices.DeleteFunc(p.waiting(), func(m *member) bool { _, waits := p.in.Waits[m.UID]; return !waits })
	chosen := map[*member]bool{}
	for _, m := range slices.Concat(first, p.members) {
		if m.seat != nil && m.seat.Group == m.group.key && left[m.group] > 0 && !chosen[m] {
			chosen[m] = true
			left[m.group]--
		}
	}
	return chosen
}

// evictable is how many seats of a group the API server lets go. A member that a NodeJob has just claimed still has its seat, and the
// floor does not count its eviction yet. A node that is already cordoned was not claimed just now: it may stay so for long.
func (p *planner) evictable(g *group) int {
	f := p.floors[g.key]
	if g.closed || g.overlapping != "" || f == nil || !f.Processed {
		return 0
	}
	left := int(f.Allowed)
	for _, m := range g.members {
		if _, held := p.in.Holds[m.UID]; held && !m.unavailable && !m.announced {
			left--
		}
	}
	return left
}

// waitsFor returns why a node that something asks for has not been taken away. If it may be, this is up to what asks: a tool retries an
// eviction after some seconds, and the API server grants it to the first one.
func (p *planner) waitsFor(m *member) (reason, message string) {
	_, byNodeJob := p.in.Waits[m.UID]
	if n := m.group.evictable; n > 0 && m.seat.Group == m.group.key && (!byNodeJob || p.plan.Stances[m.UID].Allowed) {
		return v1alpha1.ReasonBudgetOpen,
			plural.Count(n, "disruption") + " may begin now, granted to the next drain or NodeJob that evicts the seat of its node"
	}
	return p.obstacle(m)
}

// obstacle returns why a member with a seat must not be taken away now, as a reason and a sentence.
func (p *planner) obstacle(m *member) (reason, message string) {
	if c := m.closed(); c != nil {
		return c.Reason, c.Message
	}
	if name := m.group.overlapping; name != "" {
		return v1alpha1.ReasonOverlappingBudget, overlappingText(name)
	}
	for _, l := range m.group.limits {
		if down := l.down(); len(down) >= l.most {
			return reasonMaxUnavailable, fmt.Sprintf("%s not available (%s), and NodeDisruptionBudget %s allows %d%s",
				plural.CountAre(len(down), "node"), someNames(down), l.rule.Name, l.most, l.where(m))
		}
	}
	for _, l := range m.group.limits {
		if m.group.evictable > 0 || l.rest < 1 && m.group.grant <= m.group.down {
			return reasonMaxUnavailable, fmt.Sprintf("NodeDisruptionBudget %s allows %d%s, and other nodes are first", l.rule.Name, l.most, l.where(m))
		}
	}
	return reasonWaiting, "the PodDisruptionBudget of its NodeDisruptionBudgets is being opened"
}

// heldBy returns the NodeJob that holds all nodes that use up a limit of a member; "" if none does.
func (p *planner) heldBy(m *member) string {
	for _, l := range m.group.limits {
		down := l.down()
		if len(down) == 0 || len(down) < l.most {
			continue
		}
		by := p.in.Holds[down[0].UID]
		if slices.ContainsFunc(down, func(other *member) bool { return p.in.Holds[other.UID] != by }) {
			return ""
		}
		return by
	}
	return ""
}

func overlappingText(name string) string {
	return "PodDisruptionBudget " + name + " in the namespace of the manager also selects seats, and Kubernetes evicts no pod that has two"
}

// down are the members of a limit that are unavailable. They are collected once, because all members with a seat are asked when the
// limit is reached.
func (l *limit) down() []*member {
	if l.collected {
		return l.unavailable
	}
	l.collected = true
	for _, g := range l.groups {
		for _, m := range g.members {
			if m.unavailable && slices.Contains(m.rules, l.rule) {
				l.unavailable = append(l.unavailable, m)
			}
		}
	}
	return l.unavailable
}

// where says which nodes a limit is for, if not for all that its budget selects.
func (l *limit) where(m *member) string {
	key := l.spec.TopologyKey
	switch {
	case key == "":
		return ""
	case m.Labels[key] == "":
		return " among the nodes without the label " + key
	}
	return " with " + key + "=" + m.Labels[key]
}

func someNames(members []*member) string {
	names := make([]string, 0, maxNamed+1)
	for _, m := range members[:min(len(members), maxNamed)] {
		names = append(names, m.Name)
	}
	if len(members) > maxNamed {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// refusedFor returns why no seat can be created now; nil if one can be tried.
func (in *Input) refusedFor(now time.Time) *hold.Why {
	if in.Refused != nil && now.Before(in.Refused.Until) {
		return in.Refused
	}
	return nil
}
