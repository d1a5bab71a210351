// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "time"

// All decisions count from times of the API server: Input.Now, creation times, and what the manager has recorded. A
// node's own clock may be hours off, so its times are for display only.

// maxSkew is how far ahead of Input.Now a time may be that was taken at the API server: several API servers may
// have clocks that differ, and a clock may be set back.
const maxSkew = 5 * time.Minute

// past is t, or the zero time when t lies too far ahead to have been taken before now: nothing waits for that.
func (s *planner) past(t time.Time) time.Time {
	if t.After(s.in.Now.Add(maxSkew)) {
		return time.Time{}
	}
	return t
}

// recordedAt is now as a record tells it. It is rounded up: what counts from it must not come early.
func (s *planner) recordedAt() time.Time {
	return s.in.Now.Add(time.Second - time.Nanosecond).Truncate(time.Second)
}

// times are when an attempt began and ended, by the node's clock. Both are moved by the same amount so that they lie between
// the creation of the pod and now.
func (s *planner) times(pod *Pod, exit *Exit) (started, finished time.Time) {
	started, finished = pod.Started, exit.Finished
	if finished.IsZero() {
		return later(pod.Created, earlier(started, s.in.Now)), s.in.Now
	}
	first := finished
	if !started.IsZero() && started.Before(finished) {
		first = started
	}
	var shift time.Duration
	if behind := pod.Created.Truncate(time.Second).Sub(first); behind > 0 {
		shift = behind
	}
	if ahead := finished.Add(shift).Sub(s.in.Now); ahead > 0 {
		shift -= ahead
	}
	if !started.IsZero() {
		started = later(started.Add(shift), pod.Created)
	}
	return started, finished.Add(shift)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
