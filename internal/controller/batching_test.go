// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestSlowPassesGatherEventsForLonger(t *testing.T) {
	tests := map[string]struct {
		jobs int
		took time.Duration
		// after is the time between the passes and the event.
		after time.Duration
		want  time.Duration
	}{
		"no pass has run":                 {want: 50 * time.Millisecond},
		"one NodeJob on a thousand nodes": {jobs: 1, took: 3 * time.Millisecond, want: 50 * time.Millisecond},
		"one NodeJob on many nodes":       {jobs: 1, took: 20 * time.Millisecond, want: 200 * time.Millisecond},
		"thirty NodeJobs":                 {jobs: 30, took: 3 * time.Millisecond, want: 900 * time.Millisecond},
		"a hundred NodeJobs":              {jobs: 100, took: 5 * time.Millisecond, want: 2 * time.Second},
		"one whose requests hang":         {jobs: 1, took: time.Minute, want: time.Second},
		"one whose clock went backward":   {jobs: 1, took: -time.Minute, want: 50 * time.Millisecond},
		"passes that ended a while ago":   {jobs: 30, took: 3 * time.Millisecond, after: activeFor + time.Second, want: 50 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var l looks
			for i := range tt.jobs {
				l.looked(client.ObjectKey{Name: fmt.Sprint(i)}, noon, time.Hour)
				l.looked(client.ObjectKey{Name: fmt.Sprint(i)}, noon, tt.took)
			}
			for range 2 {
				if got := l.gather(noon.Add(tt.after)); got != tt.want {
					t.Errorf("events are gathered for %v, want %v", got, tt.want)
				}
			}
			for i := range tt.jobs {
				l.forget(client.ObjectKey{Name: fmt.Sprint(i)})
			}
			if got := l.gather(noon); got != leastGather {
				t.Errorf("without NodeJobs they are gathered for %v, want %v", got, leastGather)
			}
		})
	}
}
