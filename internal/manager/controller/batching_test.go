// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestPassesFollowAtADistance(t *testing.T) {
	const ms = time.Millisecond
	tests := map[string]struct {
		jobs int
		took time.Duration
		// after is the time between the end of the passes and the event.
		after time.Duration
		want  time.Duration
	}{
		"no pass has run":                           {want: 50 * ms},
		"one NodeJob on a hundred nodes":            {jobs: 1, took: ms, want: 50 * ms},
		"one NodeJob on a thousand nodes":           {jobs: 1, took: 4 * ms, want: 100 * ms},
		"half of the distance is over":              {jobs: 1, took: 20 * ms, after: 250 * ms, want: 250 * ms},
		"nearly all of it is over":                  {jobs: 1, took: 20 * ms, after: 499 * ms, want: 50 * ms},
		"an event after a rest":                     {jobs: 1, took: 20 * ms, after: time.Minute, want: 50 * ms},
		"one NodeJob on more than 10,000 nodes":     {jobs: 1, took: 100 * ms, want: 2500 * ms},
		"thirty NodeJobs":                           {jobs: 30, took: 3 * ms, want: 2250 * ms},
		"a hundred NodeJobs":                        {jobs: 100, took: 5 * ms, want: 3 * time.Second},
		"a hundred NodeJobs, an event after a rest": {jobs: 100, took: 5 * ms, after: time.Minute, want: 50 * ms},
		"one whose requests hang":                   {jobs: 1, took: time.Minute, want: 3 * time.Second},
		"one whose clock went backward":             {jobs: 1, took: -time.Minute, want: 50 * ms},
		"a pass that ended in the future":           {jobs: 1, took: ms, after: -time.Hour, want: 3 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var l looks
			for i := range max(tt.jobs, 1) {
				name := client.ObjectKey{Name: fmt.Sprint(i)}
				if tt.jobs > 0 {
					l.looked(name, noon, time.Hour)
					l.looked(name, noon, tt.took)
				}
			}
			first := client.ObjectKey{Name: "0"}
			for range 2 {
				if got := l.gather(first, noon.Add(tt.after)); got != tt.want {
					t.Errorf("events are gathered for %v, want %v", got, tt.want)
				}
			}
			if got := l.gather(client.ObjectKey{Name: "new"}, noon.Add(tt.after)); got != leastGather {
				t.Errorf("events of a new NodeJob are gathered for %v, want %v", got, leastGather)
			}
			for i := range tt.jobs {
				l.forget(client.ObjectKey{Name: fmt.Sprint(i)})
			}
			if got := l.gather(first, noon); got != leastGather {
				t.Errorf("without NodeJobs they are gathered for %v, want %v", got, leastGather)
			}
		})
	}
}
