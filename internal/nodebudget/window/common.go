// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import "time"

// maxCommonSteps limits the time that Common takes. A year has 8784 hours.
const maxCommonSteps = 10_000

// Common returns the first time from now on at which all schedules are open, or zero if there is none within 366 days. If it finds none
// in 10,000 steps, each to the next window of a schedule, it returns how far it has come.
func Common(schedules []*Schedule, now time.Time) time.Time {
	t := now.Round(0).UTC()
	limit := t.Add(reported)
	for step, open := 0, 0; open < len(schedules) && step < maxCommonSteps; step++ {
		s := schedules[step%len(schedules)]
		if s.open(t) {
			open++
			continue
		}
		t, open = s.opens(t), 1
		if !t.Before(limit) {
			return time.Time{}
		}
	}
	return t
}
