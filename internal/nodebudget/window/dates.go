// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// dates are the excepted dates in a time zone, in order, and merged if there is no time between them.
type dates []span

// parseDates returns the excepted dates in a time zone: from 00:00 of the first date to 00:00 of the date after the last.
func parseDates(exceptDates []string, zone *time.Location) (dates, error) {
	all := make(dates, 0, len(exceptDates))
	for i, date := range exceptDates {
		begin, end, ranged := strings.Cut(date, "/")
		if !ranged {
			end = begin
		}
		first, errFirst := time.Parse(time.DateOnly, begin)
		last, errLast := time.Parse(time.DateOnly, end)
		switch {
		case errFirst != nil || errLast != nil:
			return nil, fmt.Errorf("spec.exceptDates[%d] %q: not a date: use YYYY-MM-DD, or YYYY-MM-DD/YYYY-MM-DD", i, date)
		case last.Before(first):
			return nil, fmt.Errorf("spec.exceptDates[%d] %q: the last date is before the first", i, date)
		}
		all = append(all, span{instant(first, zone), instant(last.AddDate(0, 0, 1), zone)})
	}
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	return merge(all), nil
}

// merge joins spans that overlap or have no time between them.
func merge(all dates) dates {
	var merged dates
	for _, next := range all {
		i := len(merged) - 1
		switch {
		case i < 0 || merged[i].until.Before(next.from):
			merged = append(merged, next)
		case merged[i].until.Before(next.until):
			merged[i].until = next.until
		}
	}
	return merged
}

// around returns the excepted dates around t and true, or the time between excepted dates around t and false.
func (d dates) around(t time.Time) (span, bool) {
	between := span{until: never}
	for _, except := range d {
		switch {
		case t.Before(except.from):
			between.until = except.from
			return between, false
		case t.Before(except.until):
			return except, true
		}
		between.from = except.until
	}
	return between, false
}

// instant returns when the clock of a zone first shows a time, which is given in UTC. If the clock skips that time, it returns the time
// with the UTC offset before.
func instant(clock time.Time, zone *time.Location) time.Time {
	before := clock.Add(-15 * time.Hour).In(zone) // UTC offsets are at most 14 hours
	_, changes := before.ZoneBounds()
	t := clock.Add(-offsetAt(before))
	if changes.IsZero() || t.Before(changes) {
		return t
	}
	if after := clock.Add(-offsetAt(changes)); !after.Before(changes) {
		return after
	}
	return t
}
