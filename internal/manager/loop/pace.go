// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StatusInterval is the minimum time between two writes of one object's status.
const StatusInterval = time.Second

// Pace remembers when the status of each object was last written. The zero value is ready to use. It is safe for
// concurrent use.
type Pace struct {
	mu      sync.Mutex
	written map[client.ObjectKey]time.Time
}

// Wait returns how long a status must not be written yet; zero or less if it may be written.
func (p *Pace) Wait(name client.ObjectKey, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written[name].Add(StatusInterval).Sub(now)
}

// Wrote records that a status was written.
func (p *Pace) Wrote(name client.ObjectKey, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written == nil {
		p.written = map[client.ObjectKey]time.Time{}
	}
	p.written[name] = now
}

// Forget deletes an object that no longer exists.
func (p *Pace) Forget(name client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.written, name)
}

// Until returns how long to wait until the time of the next plan; zero if there is none. It is slightly later rather
// than slightly earlier, because plans compare with the exact time.
func Until(at, now time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(at.Sub(now), 0) + 10*time.Millisecond
}

// Soonest returns the shorter of two waits. Zero means none.
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
