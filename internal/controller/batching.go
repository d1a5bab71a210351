// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// A look at a NodeJob is linear in the nodes, so a thousand nodes that join at once must not cost a thousand looks.
	// Events are gathered for so long, and for gatherShare times what the last looks at all active NodeJobs took: looks
	// take at most one in gatherShare+1 parts of one processor, however many nodes and NodeJobs there are and however busy
	// the machine is.
	leastGather = 50 * time.Millisecond
	gatherShare = 10

	// The budget ends where it would make the manager slow to react: one NodeJob is looked at once a second if events
	// call for it, and each of many once in two.
	longestGather    = time.Second
	longestGatherAll = 2 * time.Second

	// activeFor is how long after its last look a NodeJob counts as active.
	activeFor = 2 * longestGatherAll
)

// looks remembers how long the last look at each NodeJob took. The zero value is ready to use.
type looks struct {
	mu   sync.Mutex
	last map[client.ObjectKey]look
	// summed is when sum was added up: events come by the thousand.
	summed time.Time
	sum    time.Duration
}

type look struct {
	at   time.Time
	took time.Duration
}

// sumFor is how long a sum is used before it is added up again.
const sumFor = leastGather

// looked notes a look that ended at a time. One that waited for an answer of the API server used no processor, so no look
// counts for more than what longestGather allows.
func (l *looks) looked(job client.ObjectKey, at time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[client.ObjectKey]look{}
	}
	l.last[job] = look{at, min(max(took, 0), longestGather/gatherShare)}
	l.summed = time.Time{}
}

// gather returns how long events of a NodeJob are gathered before it is looked at. The time is the same for all: each
// active NodeJob is looked at once in it.
func (l *looks) gather(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age := now.Sub(l.summed); age < 0 || age > sumFor {
		l.sum, l.summed = 0, now
		for _, last := range l.last {
			if now.Sub(last.at) <= activeFor {
				l.sum += last.took
			}
		}
	}
	return min(max(leastGather, gatherShare*l.sum), longestGatherAll)
}

func (l *looks) forget(job client.ObjectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, job)
	l.summed = time.Time{}
}
