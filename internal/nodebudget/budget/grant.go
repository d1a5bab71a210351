// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/kube"
)

// grant decides how many members of each group may be unavailable: first those that are, then those that something asks for, in the
// order in which it asks, then what is left, by name, for tools that look at a PodDisruptionBudget before they choose a node.
func (p *planner) grant() {
	for _, l := range p.limits {
		l.most = kube.MaxUnavailable(l.spec.MaxUnavailable, l.members)
		l.rest = l.most
	}
	for _, g := range p.groups {
		g.growTo(g.without)
	}
	for _, g := range p.groups {
		if !slices.ContainsFunc(g.limits, (*limit).isExceeded) {
			g.growTo(g.down)
		}
	}
	for _, l := range p.limits {
		for _, g := range l.groups {
			l.rest -= max(0, g.down-g.grant) // unavailable beyond what another limit grants
		}
	}
	for _, m := range p.waiting() {
		m.group.growTo(m.group.grant + 1)
	}
	for _, g := range p.groups {
		g.growTo(len(g.members))
	}
}

// isExceeded reports whether more members in different groups are unavailable than the limit allows. Then nothing is granted for those
// that may become available without the manager: a node in one group would leave its grant to the others there, while nodes in other
// groups are still unavailable. Within one group, its floor counts them.
func (l *limit) isExceeded() bool {
	down := 0
	for _, g := range l.groups {
		down += g.down
	}
	return down > l.most && len(l.groups) > 1
}

// growTo grants up to n unavailable members, as far as the limits allow.
func (g *group) growTo(n int) {
	for g.grant < n && g.canGrow() {
		g.grow()
	}
}

func (g *group) canGrow() bool {
	return !g.closed && g.grant < len(g.members) && !slices.ContainsFunc(g.limits, func(l *limit) bool { return l.rest < 1 })
}

func (g *group) grow() {
	g.grant++
	for _, l := range g.limits {
		l.rest--
	}
}

// waiting are the members that something asks for, in the order in which it has asked.
func (p *planner) waiting() []*member {
	var waiting []*member
	for _, m := range p.members {
		if m.waits() {
			waiting = append(waiting, m)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *member) int { return a.since.Compare(b.since) })
	return waiting
}

// reconcileFloors raises floors at once, and lowers them as far as what the observed floors grant leaves room. A group that must
// wait for another one continues when the manager sees the raised floor.
func (p *planner) reconcileFloors() {
	for _, g := range p.groups {
		grant := g.grant
		for grant > g.granted && !g.fits(max(grant, g.down)) {
			grant--
		}
		g.granted, g.opened = max(g.granted, grant), grant
		g.floor = FloorState{Group: g.key, MinAvailable: int32(len(g.members) - grant + g.others), Owners: p.owners(g)}
		switch f := p.floors[g.key]; {
		case f == nil:
			p.do(CreateFloor{g.floor})
		case f.Drifted || f.MinAvailable != g.floor.MinAvailable || !sameOwners(f.Owners, g.floor.Owners):
			p.do(SetFloor{*f, g.floor})
		}
	}
	for i := range p.in.Floors {
		if f := &p.in.Floors[i]; p.byKey[f.Group] == nil {
			p.do(DeleteFloor{*f})
		}
	}
}

// fits reports whether the limits allow that a number of members are unavailable beside what the observed floors of the other groups
// grant, and what the API server still grants there.
func (g *group) fits(unavailable int) bool {
	for _, l := range g.limits {
		sum := unavailable
		for _, other := range l.groups {
			if other != g {
				sum += max(other.granted, other.reach, other.down)
			}
		}
		if sum > l.most {
			return false
		}
	}
	return true
}

// owners are the budgets of the members, including those that freeze them, and of nodes whose seats still have the label of the group:
// the garbage collector must not delete the floor while any of them exists.
func (p *planner) owners(g *group) []Owner {
	var owners []Owner
	for _, m := range p.members {
		if m.group != g && (m.seat == nil || m.seat.Group != g.key) {
			continue
		}
		for _, r := range m.rules {
			if owner := (Owner{r.Name, r.UID}); !slices.Contains(owners, owner) {
				owners = append(owners, owner)
			}
		}
	}
	return owners
}

func sameOwners(uids []types.UID, owners []Owner) bool {
	return len(uids) == len(owners) && !slices.ContainsFunc(owners, func(o Owner) bool { return !slices.Contains(uids, o.UID) })
}

// reconcileSeats creates, moves and deletes seats. A seat joins a group only when the observed floor counts it.
func (p *planner) reconcileSeats() {
	limited := map[types.UID]bool{}
	for _, m := range p.members {
		limited[m.UID] = true
		p.reconcileSeat(m)
	}
	p.deleteUnlimited(limited)
	p.endUnreachable()
	if o := p.in.Refused; o != nil {
		p.wake(o.Until)
	}
}

// reconcileSeat plans at most one change of the seat of a member.
func (p *planner) reconcileSeat(m *member) {
	counted := p.isObserved(m.group)
	switch {
	case p.mustLoseSeat(m):
		p.do(DeleteSeat{Seat: *m.seat})
	case p.isBroken(m):
		p.do(DeleteSeat{Seat: *m.seat, Broken: m.Name, AtOnce: IsUnreachable(m.Node)})
	case counted && p.mayMove(m):
		p.do(MoveSeat{m.Name, *m.seat, m.group.key})
	case counted && p.mayCreate(m):
		p.do(CreateSeat{
			Node: m.Name, NodeUID: m.UID, Group: PendingGroup, Returned: p.returns(m), Tolerates: toTolerate(m.Node, ""),
		})
	case m.seat != nil && !m.seat.Ended && !p.in.Fixed[m.seat.UID] && toTolerate(m.Node, m.seat.Tolerates) != "":
		p.do(TolerateTaints{*m.seat, toTolerate(m.Node, m.seat.Tolerates)})
	}
}

// deleteUnlimited deletes the seats of nodes that no budget limits.
func (p *planner) deleteUnlimited(limited map[types.UID]bool) {
	for i := range p.in.Seats {
		if s := &p.in.Seats[i]; !limited[s.Node] && !s.Terminating {
			p.do(DeleteSeat{Seat: *s})
		}
	}
}

// endUnreachable ends seats that were evicted or deleted on unreachable nodes, also on those that no budget limits: a drain waits until
// they are gone, and no kubelet reports that. They hold nothing any more, so nothing is released by this.
func (p *planner) endUnreachable() {
	for i := range p.nodes {
		if node := &p.nodes[i]; IsUnreachable(node) {
			for _, s := range p.seats[node.UID] {
				if s.Terminating && !s.AtOnce {
					p.do(DeleteSeat{Seat: *s, Broken: node.Name, AtOnce: true})
				}
			}
		}
	}
}

// mayCreate reports whether a seat of a node may be created. If that begins a pace, the floors keep it before.
func (p *planner) mayCreate(m *member) bool {
	return m.seat == nil && p.mayHaveSeat(m) && p.in.refusedFor(p.in.Now) == nil && (!p.returns(m) || p.paceCanBegin(m))
}

// mayMove reports whether the seat of a node may join its group.
func (p *planner) mayMove(m *member) bool {
	return m.seat != nil && m.seat.Group != m.group.key && p.isUsable(m) && m.group.canGain(m.seat) && p.mayLeave(m.seat)
}

// isUsable reports whether the seat of a node can join a group. A new one can when it is ready, and its node still available.
func (p *planner) isUsable(m *member) bool {
	return m.seat.Group != PendingGroup || m.seat.Ready && p.isBack(m)
}

// isObserved reports whether the floor of a group is observed to require at least what it should, and to have all its owners: the garbage
// collector may delete it with the last one at any time, and a budget that was created again is another owner.
func (p *planner) isObserved(g *group) bool {
	f := p.floors[g.key]
	return f != nil && !f.Drifted && f.MinAvailable >= g.floor.MinAvailable &&
		!slices.ContainsFunc(g.floor.Owners, func(o Owner) bool { return !slices.Contains(f.Owners, o.UID) })
}

// canGain reports whether one more seat in the group lets no more members go than the limits allow: its floor has nothing left for the
// seat, or the limits allow it beside what the observed floors of the other groups grant. A PodDisruptionBudget lets a pod that is not
// ready go if as many others are ready as it requires.
func (g *group) canGain(s *Seat) bool {
	down := g.down - g.joining
	return g.opened < down || s.Ready && g.opened == down || g.fits(max(g.opened, down))
}
