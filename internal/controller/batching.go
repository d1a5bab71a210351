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
	// thousand passes. Events are collected for at least leastGather, and for gatherShare times the duration of the
	// last passes of all active NodeJobs. So passes use at most one part in gatherShare+1 of one processor, regardless
	// of the number of nodes and NodeJobs and of the load of the machine.
	leastGather = 50 * time.Millisecond
	gatherShare = 10

	// These limits keep the manager responsive: if there are events, one NodeJob has a pass once a second, and each of
	// many NodeJobs once in two seconds.
	longestGather    = time.Second
	longestGatherAll = 2 * time.Second

	// A pass creates pods for at least leastStarts, and for gatherShare times the duration of the pass. Then the next
	// pass records what has ended meanwhile.
	leastStarts = 250 * time.Millisecond

	// activeFor is how long after its last pass a NodeJob counts as active.
	activeFor = 2 * longestGatherAll
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

// gather returns how long events of a NodeJob are collected before its next pass. The time is the same for all
// NodeJobs: each active NodeJob has one pass in it.
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

// startsFor returns how long a pass of a NodeJob creates pods.
func (l *looks) startsFor(job client.ObjectKey) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(leastStarts, gatherShare*l.last[job].took)
}

func (l *looks) forget(job client.ObjectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, job)
	l.summed = time.Time{}
}
