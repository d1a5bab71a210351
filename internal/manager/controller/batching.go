// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// A pass of a NodeJob is linear in the number of nodes, so a thousand nodes that join at once must not cost a
	// thousand passes. The first event leads to a pass after leastGather. The next pass begins after gatherShare times the
	// duration of the last passes of all active NodeJobs, and handles all events until then. So passes use at most one
	// part in gatherShare+1 of one processor, regardless of the number of nodes and NodeJobs and of the load of the
	// machine.
	leastGather = 50 * time.Millisecond
	gatherShare = 25

	// longestGather keeps the manager responsive: if there are events, a NodeJob has a pass at least this often. It
	// only matters for more than 10,000 nodes, or for many NodeJobs.
	longestGather = 3 * time.Second

	// A pass creates pods for at least leastStarts, and for startsShare times the duration of the pass. Then the next
	// pass records what has ended meanwhile.
	leastStarts = 250 * time.Millisecond
	startsShare = 10

	// activeFor is how long after its last pass a NodeJob counts as active.
	activeFor = 4 * time.Second
)

// looks remembers how long the last pass of each NodeJob took. The zero value is ready to use.
type looks struct {
	mu   sync.Mutex
	last map[client.ObjectKey]look
	// summed is when sum was computed. Events arrive by the thousand, so it is cached.
	summed time.Time
	sum    time.Duration
}

type look struct {
	at   time.Time
	took time.Duration
}

// sumFor is how long a sum is used before it is computed again.
const sumFor = leastGather

// looked records a pass that ended at a time. A pass that waited for the API server used no processor time, so no pass
// counts for more than longestGather allows.
func (l *looks) looked(job client.ObjectKey, at time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[client.ObjectKey]look{}
	}
	l.last[job] = look{at, min(max(took, 0), longestGather/gatherShare)}
	l.summed = time.Time{}
}

// gather returns how long events of a NodeJob are collected before its next pass.
func (l *looks) gather(job client.ObjectKey, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.last[job]
	if !known {
		return leastGather
	}
	between := min(gatherShare*l.ofAll(now), longestGather)
	return min(max(leastGather, last.at.Add(between).Sub(now)), longestGather)
}

// ofAll returns how long the last passes of all active NodeJobs took: each of them has one pass in the time between two
// passes. The caller must hold the lock.
func (l *looks) ofAll(now time.Time) time.Duration {
	if age := now.Sub(l.summed); age < 0 || age > sumFor {
		l.sum, l.summed = 0, now
		for _, last := range l.last {
			if now.Sub(last.at) <= activeFor {
				l.sum += last.took
			}
		}
	}
	return l.sum
}

// startsFor returns how long a pass of a NodeJob creates pods.
func (l *looks) startsFor(job client.ObjectKey) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(leastStarts, startsShare*l.last[job].took)
}

func (l *looks) forget(job client.ObjectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, job)
	l.summed = time.Time{}
}
