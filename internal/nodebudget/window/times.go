// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"time"

	"github.com/netresearch/go-cron"
)

// times are the times of a schedule in a time zone. The package cron compares the fields with the clock of the zone, as if it were in
// UTC. Its own time zones are not used: with them, what Next returns near a change of the UTC offset depends on where the search begins,
// times that occur twice are returned twice, and a midnight that the clock skips is omitted.
type times struct {
	clock *cron.SpecSchedule // in UTC
	zone  *time.Location
	// everyHour means that the times continue if the clock is set back.
	everyHour bool
}

// next returns the first time after after, but not after limit.
func (s *times) next(after, limit time.Time) (time.Time, bool) {
	for from := after.Add(1); !from.After(limit); {
		local := from.In(s.zone)
		next := s.nextIn(local)
		if next.IsZero() {
			return next, false
		}
		_, end := local.ZoneBounds()
		if end.IsZero() || next.Before(end) {
			return next, !next.After(limit)
		}
		from = end.UTC()
	}
	return time.Time{}, false
}

// last returns the last time that is not after t. The time first is one of those.
func (s *times) last(first, t time.Time) time.Time {
	next, ok := s.next(first, t)
	if !ok {
		return first
	}
	for first = next; t.Sub(first) >= time.Minute; {
		middle := first.Add(t.Sub(first) / 2)
		if next, ok = s.next(middle, t); ok {
			first = next
		} else {
			t = middle
		}
	}
	return first
}

// nextIn returns the first time from local on as if the UTC offset did not change after local, or zero if there is none. It includes
// the times that the clock skipped when it got this offset.
func (s *times) nextIn(local time.Time) time.Time {
	changed, _ := local.ZoneBounds()
	offset := offsetAt(local)
	before := offset
	if !changed.IsZero() {
		before = offsetAt(changed.Add(-1))
	}
	from := local
	if repeated := changed.Add(before - offset); from.Before(repeated) && !s.everyHour {
		from = repeated
	}
	next := s.nextWith(from, offset)
	if before < offset {
		skipped := s.nextWith(local, before)
		if skipped.Before(next) && skipped.Before(changed.Add(offset-before)) {
			return skipped
		}
	}
	return next
}

// nextWith returns the first time from from on with a UTC offset, or zero if there is none.
func (s *times) nextWith(from time.Time, offset time.Duration) time.Time {
	clock := from.UTC().Add(offset)
	minute := clock.Truncate(time.Minute)
	if minute.Before(clock) { // Next would go through the seconds
		minute = minute.Add(time.Minute)
	}
	next := s.clock.Next(minute.Add(-1))
	if next.IsZero() {
		return next
	}
	return next.Add(-offset)
}

// offsetAt returns the UTC offset of the zone of local.
func offsetAt(local time.Time) time.Duration {
	_, seconds := local.Zone()
	return time.Duration(seconds) * time.Second
}
