// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// ago is how long ago a time was, as kubectl tells ages; "?" when nobody knows.
func ago(now, at time.Time) string {
	if at.IsZero() {
		return "?"
	}
	return duration.HumanDuration(max(now.Sub(at), 0))
}

// clock is a time that people compare with their logs: in UTC, with the day unless it is today.
func clock(now, at time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format("15:04:05") + " UTC"
	}
	return at.Format("2006-01-02 15:04:05") + " UTC"
}

// until is when something is over, and how long that is.
func until(now, at time.Time) string {
	left := at.Sub(now)
	if left <= 0 {
		return "until " + clock(now, at) + " (any moment)"
	}
	return "until " + clock(now, at) + " (in " + duration.HumanDuration(left.Round(time.Second)) + ")"
}
