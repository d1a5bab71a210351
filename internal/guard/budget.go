package guard

import "github.com/everynode/everynode/api/v1alpha1"

// keepBudgets has one budget for each guarded node, closed but for the nodes that are in status.going, as the API has it.
func (s *survey) keepBudgets() {
	for _, w := range s.nodes {
		want := s.wanted(w)
		switch b := w.budget; {
		case b == nil:
			s.plan.do(MakeBudget{w.Name, want})
		case w.letNow && s.in.Live && !b.Drifted:
			// The next write opens it: that it asks needs none of its own.
		case b.Drifted || b.Open != want.Open || b.Locked != want.Locked || b.Ended != want.Ended || !b.AskedSince.Equal(want.AskedSince):
			s.plan.do(SetBudget{*b, want})
		}
	}
}

func (s *survey) wanted(w *work) BudgetState {
	want := BudgetState{AskedSince: w.requestedAt}
	g, let := s.going[w.Name]
	switch {
	case let && w.mayOpen(g):
		want.Open = true
		if !w.asks() && w.budget != nil {
			want.AskedSince = w.budget.AskedSince // the write that closes it takes it off
		}
	case let && !w.letNow: // it returns, or the letting-go was of a Node of the same name before
		want.Ended = releaseID(g)
	case w.budget != nil:
		want.Ended = w.budget.Ended // it does no harm, and to take it off is a write
	}
	// While the node asks, drains try all the time: a pod with these labels that appears now must find the budget locked.
	want.Locked = !want.Open && (w.asks() || w.crowded)
	return want
}

// mayOpen reports whether a node's budget may be open for its entry in status.going. If the budget says that it was closed after
// this release, the entry is older than the budget.
func (w *work) mayOpen(g v1alpha1.ReleasedNode) bool {
	return w.active() && (w.budget == nil || w.budget.Ended != releaseID(g))
}
