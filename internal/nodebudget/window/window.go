// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package window calculates when the windows of a NodeDisruptionBudget are open. It is pure: the current time is an input.
//
// A window opens at each time of its schedule and closes after durationSeconds of elapsed time. For a change of the UTC offset of the
// time zone, such as the begin and the end of daylight saving time, RFC 5545 section 3.3.5 applies:
//
//   - A time that the clock skips is interpreted with the offset before the change. If the clock skips from 02:00 to 03:00, "30 2 * * *"
//     opens at 03:30.
//   - A time that occurs twice opens the window at the first occurrence. With an hour of "*", "*/2" or "0-23", it opens at both, so
//     that an hourly schedule continues.
package window

import "time"

const (
	// reported limits how far from now a time is reported.
	reported = 366 * 24 * time.Hour
	// horizon is how far ahead At searches for the next opening: February 29 may be 8 years away.
	horizon = 10 * reported
	// maxSteps limits how many windows without a gap between them are merged.
	maxSteps = 1000
	// mergedFor is how far ahead Longest merges windows, and maxMerged how many windows it reads.
	mergedFor, maxMerged = 5 * 7 * 24 * time.Hour, 200
)

// never is after all times that occur.
var never = time.Unix(1<<40, 0).UTC()

// Schedule is when disruptions may begin. It does not change and is safe for concurrent use.
type Schedule struct {
	windows []window // at least one
	except  dates
}

// State is whether disruptions may begin at a time. All times are in UTC.
type State struct {
	// Open reports whether a disruption may begin.
	Open bool
	// OpensAt and ClosesAt are the begin and the end of the window that is open, or of the next one if none is open. Windows without a
	// gap between them count as one. If there are more than 1000 of them in succession, OpensAt may be too late and ClosesAt too early.
	// A begin or an end that does not occur, or is more than a year away, is zero.
	OpensAt, ClosesAt time.Time
	// ChangesAt is when Open may change next. It is zero if Open never changes.
	ChangesAt time.Time
	// Excepted reports whether Open is false only because the date is excepted.
	Excepted bool
	// OnExceptedDate reports whether the date is excepted, and DateChangesAt is when that may change next; zero if it never changes.
	OnExceptedDate bool
	DateChangesAt  time.Time
}

// span is the time from from, until before until. A zero from has no begin; an until of never has no end.
type span struct{ from, until time.Time }

// window is an element of spec.windows. Without times, it is always open, except on the excepted dates.
type window struct {
	times  *times
	length time.Duration
	except dates
}

// At returns the state at the time now.
func (s *Schedule) At(now time.Time) State {
	now = now.Round(0).UTC()
	date, excepted := s.except.around(now)
	state := State{Open: s.open(now), OnExceptedDate: excepted, DateChangesAt: known(date.until, never)}
	opens := now
	if state.Open {
		state.OpensAt = s.opened(now)
	} else {
		state.Excepted = s.excepted(now)
		opens = s.opens(now)
		state.ChangesAt = known(opens, never)
		state.OpensAt = known(opens, now.Add(reported))
		if state.OpensAt.IsZero() {
			return state
		}
	}
	closes := s.closes(opens)
	state.ClosesAt = known(closes, opens.Add(reported))
	if state.Open {
		state.ChangesAt = known(closes, never)
	}
	return state
}

// Longest returns the length of the longest window that is open now or opens within five weeks, or 0 if there are no windows or one never
// closes. As in a State, windows without a gap between them count as one. It is at least the longest durationSeconds, because excepted
// dates may shorten windows. If there are more than 200 windows in five weeks, the first 200 count.
func (s *Schedule) Longest(now time.Time) time.Duration {
	var longest time.Duration
	for i := range s.windows {
		longest = max(longest, s.windows[i].length)
	}
	if longest == 0 {
		return 0
	}
	at := now
	for n := 0; n < maxMerged && at.Before(now.Add(mergedFor)); n++ {
		state := s.At(at)
		switch {
		case !state.Open && state.OpensAt.IsZero():
			return longest
		case state.OpensAt.IsZero(), state.ClosesAt.IsZero():
			return 0
		}
		longest, at = max(longest, state.ClosesAt.Sub(state.OpensAt)), state.ClosesAt
	}
	return longest
}

// known returns t, or zero if t is not before limit.
func known(t, limit time.Time) time.Time {
	if !t.Before(limit) {
		return time.Time{}
	}
	return t
}

// open reports whether any window is open at t.
func (s *Schedule) open(t time.Time) bool {
	for i := range s.windows {
		if _, ok := s.windows[i].around(t); ok {
			return true
		}
	}
	return false
}

// excepted reports whether any window would be open at t if its date were not excepted.
func (s *Schedule) excepted(t time.Time) bool {
	for i := range s.windows {
		if s.windows[i].excepted(t) {
			return true
		}
	}
	return false
}

// opened returns since when windows are open without a gap before t, or zero if that is more than a year.
func (s *Schedule) opened(t time.Time) time.Time {
	from, limit := t, t.Add(-reported)
	for range maxSteps {
		last := from
		for i := range s.windows {
			if part, ok := s.windows[i].around(from.Add(-1)); ok {
				from = part.from
			}
		}
		if from.Before(limit) {
			return time.Time{}
		}
		if from.Equal(last) {
			break
		}
	}
	return from
}

// closes returns until when windows are open without a gap from t on. It stops after a year.
func (s *Schedule) closes(t time.Time) time.Time {
	until, limit := t, t.Add(reported)
	for range maxSteps {
		last := until
		for i := range s.windows {
			if part, ok := s.windows[i].around(until); ok {
				until = part.until
			}
		}
		if until.Equal(last) || until.After(limit) {
			break
		}
	}
	return until
}

// opens returns when the next window opens after t, at which none is open.
func (s *Schedule) opens(t time.Time) time.Time {
	next := never
	for i := range s.windows {
		if opens := s.windows[i].opens(t, t.Add(horizon)); opens.Before(next) {
			next = opens
		}
	}
	return next
}

// around returns a time around t for which the window is open without a gap, and whether it is open at t.
func (w *window) around(t time.Time) (span, bool) {
	part, excepted := w.except.around(t)
	if excepted || w.times == nil {
		return part, !excepted
	}
	first, ok := w.times.next(t.Add(-w.length), t)
	if !ok {
		return span{}, false
	}
	if first.After(part.from) {
		part.from = first
	}
	if end := w.times.last(first, t).Add(w.length); end.Before(part.until) {
		part.until = end
	}
	return part, true
}

// excepted reports whether the window would be open at t if the date were not excepted.
func (w *window) excepted(t time.Time) bool {
	if _, excepted := w.except.around(t); !excepted {
		return false
	}
	if w.times == nil {
		return true
	}
	_, ok := w.times.next(t.Add(-w.length), t)
	return ok
}

// opens returns when the window, which is closed at t, opens next: at a time of its schedule, or at the end of excepted dates. It returns
// never if this is after limit.
func (w *window) opens(t, limit time.Time) time.Time {
	for {
		if part, excepted := w.except.around(t); excepted {
			t = part.until
			if _, ok := w.around(t); ok {
				return t
			}
		}
		next, ok := w.times.next(t, limit)
		if !ok {
			return never
		}
		if _, excepted := w.except.around(next); !excepted {
			return next
		}
		t = next
	}
}
