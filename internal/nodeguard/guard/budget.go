// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

// reconcileBudgets ensures that each guarded node has one budget, closed except for the nodes in the stored
// status.released.
func (p *planner) reconcileBudgets() {
	for _, n := range p.nodes {
		want := wantedBudget(n)
		switch b := n.budget; {
		case b == nil && p.in.NotAllowed != nil:
		case b == nil:
			p.plan.do(CreateBudget{n.Name, want})
		case n.releasing && p.in.Live && !b.Drifted:
			// The next write opens it. The release request alone needs no separate write.
		case b.Drifted || differs(b.BudgetState, want):
			p.plan.do(SetBudget{*b, want})
		}
	}
}

func differs(a, b BudgetState) bool {
	return a.Open != b.Open || a.Locked != b.Locked || a.Ended != b.Ended || !a.RequestedAt.Equal(b.RequestedAt)
}

func wantedBudget(n *nodePlan) BudgetState {
	want := BudgetState{RequestedAt: n.requestedAt}
	switch {
	case n.entry != nil && n.mayOpen():
		want.Open = true
		if !n.requestsRelease() && n.budget != nil {
			want.RequestedAt = n.budget.RequestedAt // the write that closes it removes this
		}
	case n.entry != nil && !n.releasing: // it is returning, or the release was for an earlier Node of the same name
		want.Ended = releaseID(*n.entry)
	case n.budget != nil:
		want.Ended = n.budget.Ended // it does no harm, and removing it needs a write
	}
	// While the node requests release, drains retry continuously: a new pod with these labels must find the budget
	// locked.
	want.Locked = !want.Open && (n.requestsRelease() || n.crowded)
	return want
}
