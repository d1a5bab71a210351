// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// Locked is more pods than there can be, so that no disruption is ever allowed.
	Locked = 1_000_000

	// maxRequests limits how many times of release requests the budget stores, the oldest ones. No more nodes are released at once.
	maxRequests = maxReleased

	// countedSoon is when to check again whether the disruption controller has counted the companions.
	countedSoon = 5 * time.Second
)

// reconcileBudget ensures that there is one budget, which requires all companions.
func (p *planner) reconcileBudget() {
	if p.isLast() {
		return // it is deleted
	}
	want := p.wantedBudget()
	switch b := p.budget; {
	case b == nil && (p.in.NotAllowed != nil || len(p.nodes) == 0):
	case b == nil:
		p.plan.do(CreateBudget{want})
	case b.Drifted || b.MinAvailable != want.MinAvailable || !maps.EqualFunc(b.RequestedAt, want.RequestedAt, time.Time.Equal):
		p.plan.do(SetBudget{*b, want})
	}
}

// wantedBudget returns the state that the budget should have.
//
// While a node waits, drains retry continuously: a new pod of another owner that has the labels of companions must find the
// budget locked. Otherwise it is not, because monitoring reports budgets with fewer ready pods than required, and AKS refuses to upgrade
// any node of a cluster with a budget that requires as many pods as it expects. With the placeholder, it expects more.
// Source: https://github.com/Azure/AKS/issues/4860
func (p *planner) wantedBudget() BudgetState {
	want := BudgetState{MinAvailable: p.companions(), RequestedAt: p.requests()}
	if len(p.in.ForeignPods) > 0 || slices.ContainsFunc(p.nodes, func(n *nodePlan) bool { return n.held != nil }) {
		want.MinAvailable = Locked
	}
	b := p.budget
	switch {
	case b == nil || want.MinAvailable >= b.MinAvailable:
	case slices.ContainsFunc(p.nodes, (*nodePlan).isLetGo):
		want.MinAvailable = b.MinAvailable // it requires even fewer when the companion is deleted
	case !b.counts(want.MinAvailable):
		want.MinAvailable = b.MinAvailable
		p.plan.wake(p.in.Now.Add(countedSoon))
	}
	return want
}

// counts reports whether the disruption controller has observed that there are at most so many ready pods. As long as it counts a companion
// that is gone, it would allow the eviction of another one. It learns of the changes of pods in their order.
func (b *Budget) counts(pods int32) bool { return b.Processed && b.Healthy <= pods }

// companions returns how many companions there are, or are about to be. The disruption controller counts also those of nodes that are not
// guarded any more, and of earlier NodeGuards of the same name, until they terminate.
func (p *planner) companions() int32 {
	n := int32(len(p.coming))
	for i := range p.in.Companions {
		if isAlive(&p.in.Companions[i]) {
			n++
		}
	}
	return n
}

// covers reports whether the observed budget requires all companions, including those that are about to be created.
func (p *planner) covers() bool {
	return p.budget != nil && !p.budget.Drifted && p.budget.MinAvailable >= p.companions()
}

// requests returns when the release requests were first observed. That of a node which is released at once needs no write.
func (p *planner) requests() map[string]time.Time {
	var nodes []*nodePlan
	for _, n := range p.nodes {
		if n.requestsRelease() && (!n.storedAt.IsZero() || n.held != nil) {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b *nodePlan) int {
		if byTime := a.requestedAt.Compare(b.requestedAt); byTime != 0 {
			return byTime
		}
		return strings.Compare(a.Name, b.Name)
	})
	times := map[string]time.Time{}
	for _, n := range nodes[:min(maxRequests, len(nodes))] {
		times[NodeID(n.Name)] = n.requestedAt
	}
	return times
}
