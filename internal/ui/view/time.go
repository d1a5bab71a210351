// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// ago returns the age of a time in the format of kubectl; "?" if the time is unknown.
func ago(now, at time.Time) string {
	if at.IsZero() {
		return "?"
	}
	return duration.HumanDuration(max(now.Sub(at), 0))
}

// clock returns a time that users can compare with their logs: in UTC, with the date unless it is today.
func clock(now, at time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format("15:04:05") + " UTC"
	}
	return at.Format("2006-01-02 15:04:05") + " UTC"
}

// until returns when something ends, and the time until then.
func until(now, at time.Time) string {
	left := at.Sub(now)
	if left <= 0 {
		return "until " + clock(now, at) + " (any moment)"
	}
	return "until " + clock(now, at) + " (in " + duration.HumanDuration(left.Round(time.Second)) + ")"
}
