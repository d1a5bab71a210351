// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eta estimates when a rollout ends, from how long runs have taken on other nodes. It is a pure function of its input.
package eta

import (
	"slices"
	"time"

	"github.com/everynode/everynode/internal/nodebudget/window"
)

const (
	// least is how many runs must have ended.
	least = 3
	// horizon is how far ahead an end is estimated.
	horizon = 366 * 24 * time.Hour
	// maxSteps limits how many times a search for a window continues.
	maxSteps = 1000
)

// Rollout is what is left of a rollout, and what it waits for.
type Rollout struct {
	// Durations are how long runs have taken that have succeeded. With less than 3, there is no estimate.
	Durations []time.Duration
	// Steps are what is left, in order, and AtOnce is how many nodes run at the same time.
	Steps  []Step
	AtOnce int
	// Longest is how long a run can take by its own time limits: it does not start if a window closes before. 0 if windows do not matter.
	Longest time.Duration
	// Between is the time between the end of a run and the begin of the next.
	Between time.Duration
	// Budgets are the budgets with windows or without any allowed disruption.
	Budgets []Budget
	Now     time.Time
}

// Step is a step of a rollout: the number of nodes that are left, and how long it soaks after them.
type Step struct {
	Nodes int
	Soak  time.Duration
}

// Budget is when a budget allows runs to start.
type Budget struct {
	// Schedule is when its windows are open; nil if it is closed.
	Schedule *window.Schedule
	// Until is when the budget ends; zero if it does not end.
	Until time.Time
}

// Estimate is when a rollout ends.
type Estimate struct {
	// Work is how long the runs take together, without waiting for windows and soaks, if each takes the median.
	Work time.Duration
	// P50 and P95 are when the rollout ends if each run takes as long as half of the runs, or 95% of them, have taken at most.
	P50, P95 time.Time
	// Windows is in how many windows, if each run takes the median; 0 if no window limits it.
	Windows int
}

// Of returns the estimate. It returns false if too few durations are known, or the end is unknown or more than a year away.
func Of(r *Rollout) (Estimate, bool) {
	if len(r.Durations) < least || r.AtOnce < 1 {
		return Estimate{}, false
	}
	sorted := slices.Sorted(slices.Values(r.Durations))
	median := r.run(percentile(sorted, 50))
	slow := r.run(percentile(sorted, 95))
	return Estimate{Work: median.work, P50: median.at, P95: slow.at, Windows: median.windows}, median.known && slow.known
}

// percentile is the smallest value that at least p percent of the sorted values do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)*p+99)/100-1]
}

// course is a simulated rollout.
type course struct {
	at      time.Time
	work    time.Duration
	windows int
	// known is false if the course has no end within the horizon.
	known bool
}

// run simulates the rollout with runs that all take the same time. All runs of a window are simulated at once.
func (r *Rollout) run(takes time.Duration) course {
	c := course{at: r.Now}
	var lastClose time.Time
	each := max(takes+r.Between, time.Second)
	for _, step := range r.Steps {
		for rounds := (step.Nodes + r.AtOnce - 1) / r.AtOnce; rounds > 0; {
			s, ok := r.next(c.at)
			if !ok {
				return course{}
			}
			fit := rounds
			if !s.closes.IsZero() {
				fit = min(fit, int(s.last.Sub(s.at)/each)+1)
			}
			if !s.closes.IsZero() && !s.closes.Equal(lastClose) {
				c.windows, lastClose = c.windows+1, s.closes
			}
			rounds -= fit
			c.at = s.at.Add(time.Duration(fit) * each)
			c.work += time.Duration(fit) * each
		}
		c.at = c.at.Add(step.Soak)
	}
	c.known = !c.at.After(r.Now.Add(horizon))
	return c
}

// slot is when a run can start: from at on, and until last if a window closes.
type slot struct{ at, last, closes time.Time }

// next returns the next slot from a time on; false if none is within the horizon.
func (r *Rollout) next(t time.Time) (slot, bool) {
	for range maxSteps {
		if t.After(r.Now.Add(horizon)) {
			return slot{}, false
		}
		opens, closes, known := r.at(t)
		last := closes.Add(-r.Longest)
		switch {
		case !known:
			return slot{}, false
		case opens.After(t):
			t = opens
		case closes.IsZero():
			return slot{at: t}, true
		case !t.After(last):
			return slot{t, last, closes}, true
		default:
			t = closes
		}
	}
	return slot{}, false
}

// at returns when all budgets may be open, from t on, and when the first of their windows closes; zero if none does.
func (r *Rollout) at(t time.Time) (opens, closes time.Time, known bool) {
	opens = t
	for i := range r.Budgets {
		from, until := r.Budgets[i].at(t)
		if from.IsZero() {
			return from, until, false
		}
		if from.After(opens) {
			opens = from
		}
		closes = first(closes, until)
	}
	return opens, closes, true
}

// at returns when the budget is open, from t on, and if it is open at t, when its window closes. Zero is never.
func (b *Budget) at(t time.Time) (opens, closes time.Time) {
	switch {
	case !b.Until.IsZero() && !t.Before(b.Until):
		return t, time.Time{}
	case b.Schedule == nil:
		return b.Until, time.Time{}
	}
	state := b.Schedule.At(t)
	switch {
	case !state.Open:
		return first(state.OpensAt, b.Until), time.Time{}
	case !b.Until.IsZero() && !state.ClosesAt.Before(b.Until): // the budget ends before its window
		return t, time.Time{}
	}
	return t, state.ClosesAt
}

// first is the earlier of two times, of which either may be zero.
func first(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
