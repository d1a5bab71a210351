// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"

	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/view"
)

// maxBudgets limits the NodeDisruptionBudgets that the page shows.
const maxBudgets = 100

// budgetsState counts budgets in the page's state, and the nodes that wait for them.
type budgetsState struct {
	Count   int   `json:"count"`
	Waiting int32 `json:"waiting"`
}

// newBudgetsState returns the counts. A node that waits for several budgets counts for each.
func (o *observed) newBudgetsState() budgetsState {
	s := budgetsState{Count: len(o.Budgets)}
	for _, b := range o.Budgets {
		s.Waiting += max(b.Status.Nodes.Waiting, 0)
	}
	return s
}

// budgetsView is what the page shows of all budgets.
type budgetsView struct {
	Budgets []budgetView `json:"budgets"`
	// More is the number of budgets that are not shown.
	More int `json:"more,omitempty"`
	// Unreadable is why the user cannot see budgets.
	Unreadable string `json:"unreadable,omitempty"`
}

// budgetView is what the page shows of a budget: what the command budgets prints.
type budgetView struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	Tone        string `json:"tone"`
	Nodes       string `json:"nodes"`
	Allowed     string `json:"allowed"`
	Unavailable string `json:"unavailable"`
	Waiting     string `json:"waiting"`
	Window      string `json:"window"`
	Expires     string `json:"expires"`
	// Rows are its rules and its state, and Uses are the nodes that use it or wait for it.
	Rows []row           `json:"rows"`
	Uses []budgetUseView `json:"uses"`
	// NotListed says how many more nodes use it or wait for it.
	NotListed []string `json:"notListed,omitempty"`
}

// budgetUseView is a node that uses a budget or waits for it.
type budgetUseView struct {
	Node  string `json:"node"`
	State string `json:"state"`
	Tone  string `json:"tone"`
	Since string `json:"since"`
	By    string `json:"by"`
	Why   string `json:"why,omitempty"`
}

// newBudgetsView returns the view of all budgets.
func (o *observed) newBudgetsView() budgetsView {
	shown := min(len(o.Budgets), maxBudgets)
	v := budgetsView{Budgets: make([]budgetView, 0, shown), More: len(o.Budgets) - shown, Unreadable: text.Safe(o.budgetsUnreadable)}
	for _, b := range o.Budgets[:shown] {
		v.Budgets = append(v.Budgets, newBudgetView(view.Budget{Budget: b, Now: o.Now}))
	}
	return v
}

func newBudgetView(b view.Budget) budgetView {
	r := b.Row()
	v := budgetView{
		Name: text.Safe(r.Name), State: view.Spelled(text.Safe(r.State)), Tone: tones[r.Tone], Nodes: r.Nodes, Allowed: r.Allowed, Unavailable: r.Unavailable,
		Waiting: r.Waiting, Window: r.Window, Expires: r.Expires, Rows: rowsOf(b.Rules()), Uses: []budgetUseView{},
	}
	for _, n := range b.Nodes() {
		v.Uses = append(v.Uses, budgetUseView{text.Safe(n.Node), n.State, tones[n.Tone], n.Since, text.Safe(n.By), text.Safe(n.Why)})
	}
	unavailable, waiting := b.NotListed()
	for _, said := range []string{unavailable, waiting} {
		if said != "" {
			v.NotListed = append(v.NotListed, said)
		}
	}
	return v
}

// serveBudgets answers with all budgets.
func (d *dashboard) serveBudgets(w http.ResponseWriter, _ *http.Request) {
	answer(w, d.observe().newBudgetsView())
}
