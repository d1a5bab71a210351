// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The pace begins when a node returns from an absence that was granted: its seat was evicted, or a NodeJob disrupted it. A node can end
// its seat, evict it, and look unavailable as often as it likes. So an absence that was not granted begins no pace, and a node holds the
// others for at most the pace and a minute, and then not again for the length of a pace.

// Ungranted are the nodes that are absent without a grant: their seat ended without an eviction, or the manager deleted
// it. It is what a manager has observed since it started: if in doubt, an absence was granted, which only delays the next disruption.
type Ungranted map[types.UID]bool

// Ended notes the end of a seat. Its last state is not known if the watch was interrupted. The end of a seat that has not joined its group
// neither begins nor ends an absence, and its eviction needs no grant.
func (u Ungranted) Ended(s *Seat, known bool) {
	switch {
	case !known || s.Group != PendingGroup && s.Evicted:
		delete(u, s.Node)
	case s.Group != PendingGroup:
		u[s.Node] = true
	}
}

// Joined notes the end of an absence, before the seat joins its group.
func (u Ungranted) Joined(node types.UID) { delete(u, node) }

// Held notes the nodes that NodeJobs disrupt: a NodeJob may begin on an unavailable node only if its budgets are open.
func (u Ungranted) Held(holds map[types.UID]string) {
	for node := range holds {
		delete(u, node)
	}
}

// PaceKey is a budget and a node.
type PaceKey struct{ Budget, Node types.UID }

// Paced is the last pace that a node has begun for a budget.
type Paced struct {
	// Since is when the node held the other nodes first, and At when it returned: at most a minute later.
	Since, At time.Time
}

// keepPace closes a budget from the moment at which a node returns until spec.paceSeconds has passed. The seat of the node, which
// shows when it returned, is created only when the floors are closed.
func (p *planner) keepPace(r *rule) {
	if !r.hasPace() {
		return
	}
	var last time.Time
	var by *member
	for _, m := range p.members {
		if !slices.Contains(m.rules, r) {
			continue
		}
		if at := p.paced(r, m); at.After(last) {
			last, by = at, m
		}
	}
	if by == nil || r.closed != nil && r.inWindow != nil {
		return
	}
	if next := last.Add(r.pace()); p.in.Now.Before(next) {
		p.wake(next)
		r.keepClosed(paceClosure(r, by, next))
	}
}

// paced returns when the last pace began that a node has begun for a budget, and remembers it; zero if it does not matter any more.
func (p *planner) paced(r *rule, m *member) time.Time {
	key := PaceKey{r.UID, m.UID}
	last, pace := p.in.Paced[key], r.pace()
	at := p.returnedAt(m)
	switch {
	case at.IsZero():
	case last.At.IsZero() || !at.Before(last.At.Add(2*pace)):
		last = Paced{at, at}
	case at.After(last.At) && at.Before(last.Since.Add(min(pace, p.minute()))):
		last.At = at // the same return: its seat is created when the floors are closed
	}
	if last.At.IsZero() || !at.After(last.At) && !p.in.Now.Before(last.At.Add(2*pace)) {
		return time.Time{} // a return that did not count is known to be one as long as its seat shows it
	}
	p.plan.Paced[key] = last
	return last.At
}

// returnedAt returns when a node returned from an absence that was granted, or now if it does; zero if it did not.
func (p *planner) returnedAt(m *member) time.Time {
	switch {
	case m.seat != nil && m.seat.Returned:
		return m.seat.Created
	case m.seat == nil && p.mayHaveSeat(m) && p.returns(m):
		return p.in.Now
	}
	return time.Time{}
}

// returns reports whether the next seat of a node ends an absence that was granted.
func (p *planner) returns(m *member) bool { return p.hadSeat(m) && !p.in.Ungranted[m.UID] }

// paceCanBegin reports whether the observed floors already keep the paces that begin when a node gets its seat back.
func (p *planner) paceCanBegin(m *member) bool {
	return !slices.ContainsFunc(m.rules, func(r *rule) bool { return r.hasPace() && !p.isKept(r) })
}

// isKept reports whether the observed floors of all nodes of a budget are as they should be, so that they keep its pace.
func (p *planner) isKept(r *rule) bool {
	kept, known := p.kept[r]
	if !known {
		kept = !slices.ContainsFunc(p.members, func(m *member) bool {
			isElsewhere := m.seat != nil && m.seat.Group != m.group.key && m.seat.Group != PendingGroup
			return slices.Contains(m.rules, r) && (isElsewhere || !p.isObserved(m.group))
		})
		p.kept[r] = kept
	}
	return kept
}
