// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clock provides the time of the API server. Creation and deletion timestamps of objects use that clock, so
// code that compares them with the current time must use it as well: the clock of a machine may be minutes or hours
// off.
package clock

import (
	"net/http"
	"sync"
	"time"
)

// Clock provides the API server's time, as far as its responses show a difference to the machine's time. It is safe for
// concurrent use.
type Clock struct {
	machine func() time.Time

	mu sync.Mutex
	// ahead is how far the API server's clock is ahead of the machine's.
	ahead time.Duration
}

// New returns a Clock that starts with the machine's time.
func New(machine func() time.Time) *Clock { return &Clock{machine: machine} }

// Now returns the time of the API server, with an error of up to a second plus the duration of a request.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine().Add(c.ahead)
}

// Wrap reads the time from the responses to all requests. It is for rest.Config.Wrap.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{c, next} }

type transport struct {
	clock *Clock
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	asked := t.clock.machine()
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if said, parseErr := http.ParseTime(resp.Header.Get("Date")); parseErr == nil {
		t.clock.heard(asked, said, t.clock.machine())
	}
	return resp, nil
}

// heard records a time of the API server that was received between two times of the machine. It is in whole seconds, so
// the actual time was between that second and the next. The known difference is not changed as long as it is consistent
// with this.
func (c *Clock) heard(asked, said, answered time.Time) {
	// Without the monotonic reading, because the machine's clock may have been set in between.
	asked, answered = asked.Round(0), answered.Round(0)
	if answered.Before(asked) {
		return
	}
	least, most := said.Sub(answered), said.Add(time.Second).Sub(asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = min(max(c.ahead, least), most)
}
