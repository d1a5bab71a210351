// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"
)

// TestTimesOfAnAttempt tests that the times of a node are shifted so that they are between the creation of the pod and now.
func TestTimesOfAnAttempt(t *testing.T) {
	for name, tt := range map[string]struct {
		created, started, finished, wantStarted, wantFinished time.Time
	}{
		"the clock is right":                        {ago(10), ago(9), ago(2), ago(9), ago(2)},
		"the clock is behind":                       {ago(10), ago(99), ago(92), ago(10), ago(3)},
		"the clock is ahead":                        {ago(10), ago(-91), ago(-98), ago(7), now},
		"the clock was set back while the task ran": {ago(10), ago(5), ago(13), ago(2), ago(10)},
		"it did not start":                          {ago(10), time.Time{}, ago(2), ago(10), ago(2)},
		"it did not start, and the clock is ahead":  {ago(10), time.Time{}, ago(-5), ago(10), now},
		"it has not ended":                          {ago(10), ago(9), time.Time{}, ago(9), now},
		"it has not ended, and the clock is ahead":  {ago(10), ago(-99), time.Time{}, now, now},
		"it has not ended, and the clock is behind": {ago(10), ago(99), time.Time{}, ago(10), now},
	} {
		t.Run(name, func(t *testing.T) {
			a := &attemptReader{job: &job{policy: policy{in: Input{Now: now}}}}
			started, finished := a.times(&Pod{Created: tt.created, Started: tt.started}, &Exit{Finished: tt.finished})
			if !started.Equal(tt.wantStarted) || !finished.Equal(tt.wantFinished) {
				t.Errorf("started %v, finished %v, want %v and %v", started, finished, tt.wantStarted, tt.wantFinished)
			}
		})
	}
}

func TestATimeTooFarInTheFutureIsNotWaitedFor(t *testing.T) {
	j := &job{policy: policy{in: Input{Now: now}}}
	for ahead, want := range map[time.Duration]time.Time{-time.Hour: ago(3600), maxSkew: now.Add(maxSkew), maxSkew + 1: {}} {
		if got := j.past(now.Add(ahead)); !got.Equal(want) {
			t.Errorf("%s ahead: %v, want %v", ahead, got, want)
		}
	}
}
