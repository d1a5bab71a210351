// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StatusInterval is the least time between two writes of one object's status.
const StatusInterval = time.Second

// Pace remembers when the status of each object was written last. The zero value is ready to use, by several goroutines
// at once.
type Pace struct {
	mu      sync.Mutex
	written map[client.ObjectKey]time.Time
}

// Wait is how long a status must not be written yet; zero or less when it may be.
func (p *Pace) Wait(name client.ObjectKey, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written[name].Add(StatusInterval).Sub(now)
}

// Wrote notes that a status was written.
func (p *Pace) Wrote(name client.ObjectKey, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written == nil {
		p.written = map[client.ObjectKey]time.Time{}
	}
	p.written[name] = now
}

// Forget drops an object that is gone.
func (p *Pace) Forget(name client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.written, name)
}

// Until is how long to wait for a time at which a plan wants to be made again; zero for none. It is a little later
// rather than a little earlier, since plans compare with the exact time.
func Until(at, now time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(at.Sub(now), 0) + 10*time.Millisecond
}

// Soonest is the shorter of two waits, of which zero means none; b is never zero.
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}
