// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clock tells the time of the API server. Creation and deletion times of objects are by that clock, so code that
// compares them with the present must use it as well: a machine's own clock may be minutes or hours off.
package clock

import (
	"net/http"
	"sync"
	"time"
)

// Clock tells the API server's time, as far as its answers show that it differs from the machine's. It is safe for use
// by several goroutines at once.
type Clock struct {
	machine func() time.Time

	mu sync.Mutex
	// ahead is how far the API server is ahead of the machine.
	ahead time.Duration
}

// New returns a Clock that begins with the machine's time.
func New(machine func() time.Time) *Clock { return &Clock{machine: machine} }

// Now is the time of the API server, to within a second and the time that a request takes.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine().Add(c.ahead)
}

// Wrap reads the time from the answers to all requests. It is for rest.Config.Wrap.
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

// heard notes that the API server said a time between two times of the machine. It says whole seconds, so its clock was
// somewhere between that second and the next. What is known is left as it is as long as it can be true.
func (c *Clock) heard(asked, said, answered time.Time) {
	// Without the monotonic reading: the machine's clock may have been set in between.
	asked, answered = asked.Round(0), answered.Round(0)
	if answered.Before(asked) {
		return
	}
	least, most := said.Sub(answered), said.Add(time.Second).Sub(asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = min(max(c.ahead, least), most)
}
