// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"cmp"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// Effects are what all budgets mean for NodeJobs at a time, for the manager and the command line alike.
type Effects struct {
	rules      []*rule
	joiningFor time.Duration
	now        time.Time
}

// EffectsOf returns what budgets mean for NodeJobs. answers are what is known of their requirements, by the name of the budget. joiningFor
// replaces JoiningFor if it is not zero.
func EffectsOf(budgets []*v1alpha1.NodeDisruptionBudget, answers map[string]Answers, joiningFor time.Duration, now time.Time) *Effects {
	e := &Effects{joiningFor: valueOr(joiningFor, JoiningFor), now: now}
	for _, b := range budgets {
		if r := readRule(b, answers[b.Name], now); r.enforced() {
			e.rules = append(e.rules, r)
		}
	}
	return e
}

// On returns the effect on a node, also for a NodeJob that ignores windows there.
func (e *Effects) On(node *Node, ignoresWindows bool) hold.Effect {
	var effect hold.Effect
	for _, r := range e.rules {
		if !r.applies(node, e.joiningFor, e.now) {
			continue
		}
		effect.Limited = canHaveSeat(node)
		if c := r.closedFor(ignoresWindows); c != nil {
			effect.Closed = cmp.Or(effect.Closed, c)
			if r.Spec.AppliesTo == v1alpha1.AppliesToAllTasks {
				effect.TasksClosed = cmp.Or(effect.TasksClosed, c)
			}
		}
		switch {
		case !ignoresWindows:
			addWindow(&effect, r)
		case r.closed != nil && r.inWindow == nil:
			effect.Outside = cmp.Or(effect.Outside, r.Name)
		}
	}
	return effect
}

// addWindow notes the window that closes first, and the budget with the shortest longest window. If none is open, a run that fits no window
// is reported before one opens.
func addWindow(e *hold.Effect, r *rule) {
	if at := r.window.ClosesAt; r.window.Open && !at.IsZero() && (e.ClosesAt.IsZero() || at.Before(e.ClosesAt)) {
		e.ClosesAt, e.ClosesBy = at, r.Name
	}
	if r.longest > 0 && (e.Longest == 0 || r.longest < e.Longest) {
		e.Longest, e.LongestOf = r.longest, r.Name
	}
}

// ChangesAt returns when time alone changes an effect; zero if it does not.
func (e *Effects) ChangesAt() time.Time {
	var first time.Time
	note := func(at time.Time) {
		if at.After(e.now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for _, r := range e.rules {
		note(r.window.ChangesAt)
		note(r.window.DateChangesAt)
		if r.Spec.ExpiresAt != nil {
			note(r.Spec.ExpiresAt.Time)
		}
		for _, a := range r.answers {
			note(a.changesAt(e.now))
		}
	}
	return first
}
