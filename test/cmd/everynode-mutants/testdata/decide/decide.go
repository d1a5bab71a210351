// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decide has decisions, of which its tests check some.
package decide

import "time"

// Start reports whether a node starts.
func Start(free int, paused, urgent bool, now, after time.Time) bool {
	switch {
	case paused && !urgent:
		return false
	case now.Before(after):
		return false
	}
	return free > 0
}

// Limit returns a limit of at least one.
func Limit(n int) int {
	if n < 0 { // equivalent
		return 1
	}
	return max(half(n, false), 1)
}

func half(n int, up bool) int {
	if up {
		n++
	}
	return n / 2
}
