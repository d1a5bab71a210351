// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "time"

// All decisions use times of the API server: Input.Now, creation times, and what the manager has recorded. The clock of
// a node may be hours off, so its times are only displayed.

// maxSkew is how far ahead of Input.Now a time from an API server may be: the clocks of several API servers may differ,
// and a clock may be set back.
const maxSkew = 5 * time.Minute

// past returns t, or the zero time if t is too far in the future to be a time before now. Nothing waits for such a
// time.
func (p *policy) past(t time.Time) time.Time {
	if t.After(p.in.Now.Add(maxSkew)) {
		return time.Time{}
	}
	return t
}

// recordedAt is the current time as it is written to a record. It is rounded up, so that nothing that is counted from
// it is early.
func (p *policy) recordedAt() time.Time {
	return p.in.Now.Add(time.Second - time.Nanosecond).Truncate(time.Second)
}

// times are when an attempt started and ended, by the clock of the node. Both are shifted by the same amount so that
// they are between the creation of the pod and now. An attempt without a start started with its pod.
func (a *attemptReader) times(pod *Pod, exit *Exit) (started, finished time.Time) {
	started, finished = pod.Started, exit.Finished
	if finished.IsZero() {
		return later(pod.Created, earlier(started, a.in.Now)), a.in.Now
	}
	first := finished
	if !started.IsZero() && started.Before(finished) {
		first = started
	}
	var shift time.Duration
	if behind := pod.Created.Truncate(time.Second).Sub(first); behind > 0 {
		shift = behind
	}
	if ahead := finished.Add(shift).Sub(a.in.Now); ahead > 0 {
		shift -= ahead
	}
	return later(started.Add(shift), pod.Created), finished.Add(shift)
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
