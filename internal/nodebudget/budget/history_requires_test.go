// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// What budgets require, and the manager that checks it.

// asked is the last check of the requirement of a budget by the manager that leads.
type asked struct {
	uid        types.UID
	generation int64
	at         time.Time
	// met is true if the requirement was met, and since is when the first check in a row with this result was made.
	met   bool
	since time.Time
}

// weather changes what checks return.
func (h *history) weather() {
	states := []v1alpha1.RequirementState{v1alpha1.RequirementMet, v1alpha1.RequirementNotMet, v1alpha1.RequirementUnknown}
	h.requirement = states[h.rng.Intn(len(states))]
	h.say("the requirement of budgets is %s", h.requirement)
}

// askAll has the manager check the requirements of all budgets that were checked at least some time ago.
func (h *history) askAll(ago time.Duration) {
	m := h.manager
	if m == nil {
		return
	}
	for _, name := range sorted(m.cache.budgets) {
		o := m.cache.budgets[name].object
		before := m.answers[name]
		current := before.UID == o.UID && before.Generation == o.Generation
		now := h.now.Add(m.ahead)
		if len(o.Spec.Requirements) == 0 || current && len(before.Of) > 0 && now.Before(before.Of[0].At.Add(ago)) {
			continue
		}
		a := Answer{State: h.requirement, At: now}
		if a.State == v1alpha1.RequirementUnknown {
			a.FailingSince = now
		}
		after := Answers{UID: o.UID, Generation: o.Generation, Of: []Answer{a}}
		if !after.SaysAsMuchAs(before) {
			h.answersChanges++
		}
		m.answers[name] = after

		met := h.requirement == v1alpha1.RequirementMet
		is := asked{o.UID, o.Generation, h.now, met, h.now}
		if was, there := h.asked[name]; there && was.uid == is.uid && was.generation == is.generation && was.met == met {
			is.since = was.since
		}
		h.asked[name] = is
		h.say("the requirement of budget %s is checked: %s", name, a.State)
	}
}

// unmetSince is since when the requirement of a budget is not met as far as a manager can know; zero if it is met.
func (h *history) unmetSince(name string, b *simBudget) time.Time {
	a, there := h.asked[name]
	switch tooOld := a.at.Add(45 * time.Second); {
	case !b.requires:
		return time.Time{}
	case !there || a.uid != b.object.UID || a.generation != b.object.Generation:
		h.met["requirement not checked"]++
		if at := h.changedAt[name]; at.After(h.startedAt) {
			return at
		}
		return h.startedAt
	case !a.met:
		h.met["requirement not met"]++
		return a.since
	case !h.now.Before(tooOld):
		h.met["requirement checked too long ago"]++
		return tooOld
	}
	h.met["requirement met"]++
	return time.Time{}
}
