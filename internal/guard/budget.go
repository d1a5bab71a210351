// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import "github.com/everynode/everynode/api/v1alpha1"

// reconcileBudgets ensures that each guarded node has one budget, closed except for the nodes in the stored
// status.released.
func (s *planner) reconcileBudgets() {
	for _, w := range s.nodes {
		want := s.wanted(w)
		switch b := w.budget; {
		case b == nil:
			s.plan.do(CreateBudget{w.Name, want})
		case w.releasing && s.in.Live && !b.Drifted:
			// The next write opens it. The release request alone needs no separate write.
		case b.Drifted || b.Open != want.Open || b.Locked != want.Locked || b.Ended != want.Ended || !b.RequestedAt.Equal(want.RequestedAt):
			s.plan.do(SetBudget{*b, want})
		}
	}
}

func (s *planner) wanted(w *nodePlan) BudgetState {
	want := BudgetState{RequestedAt: w.requestedAt}
	g, let := s.released[w.Name]
	switch {
	case let && w.mayOpen(g):
		want.Open = true
		if !w.requestsRelease() && w.budget != nil {
			want.RequestedAt = w.budget.RequestedAt // the write that closes it removes this
		}
	case let && !w.releasing: // it is returning, or the release was for an earlier Node of the same name
		want.Ended = releaseID(g)
	case w.budget != nil:
		want.Ended = w.budget.Ended // it does no harm, and removing it needs a write
	}
	// While the node requests release, drains retry continuously: a new pod with these labels must find the budget
	// locked.
	want.Locked = !want.Open && (w.requestsRelease() || w.crowded)
	return want
}

// mayOpen reports whether a node's budget may be open for its entry in status.released. If the budget says that it was
// closed after this release, the entry is older than the budget.
func (w *nodePlan) mayOpen(g v1alpha1.ReleasedNode) bool {
	return w.active() && (w.budget == nil || w.budget.Ended != releaseID(g))
}
