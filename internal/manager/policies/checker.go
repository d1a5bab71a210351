// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

const (
	// pollEvery is how often the policies are checked while nothing changes, and recheckEvery while they are missing.
	pollEvery    = 30 * time.Second
	recheckEvery = 2 * time.Second
)

// Checker knows whether the policies are in force. Its zero value requires none. A nil Checker requires none either, and says
// nothing about it in any status.
type Checker struct {
	// Expected are the policies that are required; nil for none.
	Expected *Expected
	// Reader reads from the API server, not from a cache.
	Reader client.Reader
	// Leaving reports whether the installation is being deleted; nil if that is not known.
	Leaving func(context.Context) (bool, error)
	// Now is the clock.
	Now func() time.Time

	// checking allows one check at a time.
	checking sync.Mutex

	mu sync.Mutex
	// started and completed count the checks.
	started, completed int
	last               state
	changed            []func(context.Context)
	signal             chan struct{}
}

// state is what is known about the policies.
type state struct {
	known     bool
	installed Installed
	problem   string
	leaving   bool
}

// Answer says whether something may start for an object.
type Answer struct {
	// Obstacle is why nothing may start; nil if it may.
	Obstacle *hold.Why
	// Authorization belongs in the status of the object.
	Authorization *v1alpha1.Authorization
	// Store is true if it must be stored before anything starts.
	Store bool
	// Wait is how long to wait before this can be answered; 0 if it is.
	Wait time.Duration
}

// UndecidedError ends a pass in which nothing can be decided before that time.
type UndecidedError time.Duration

// Error implements error.
func (e UndecidedError) Error() string {
	return fmt.Sprintf("whether anything may start is decided in %s", time.Duration(e))
}

// OnChange has f called when something changes that concerns all objects.
func (c *Checker) OnChange(f func(context.Context)) {
	if c != nil {
		c.changed = append(c.changed, f)
	}
}

// Ask answers for an object that was read before. before is what its status says, and confirm the command that has the API server
// ask for the rights to it. It reads the policies if the object has changed.
func (c *Checker) Ask(ctx context.Context, before *v1alpha1.Authorization, w Written, confirm string) (Answer, error) {
	if c == nil {
		return Answer{Authorization: before}, nil
	}
	is := c.state()
	if is.leaving {
		return Answer{Authorization: before, Obstacle: &hold.Why{
			Reason:  v1alpha1.ReasonInstallationTerminating,
			Message: "Everynode is being uninstalled: nothing starts any more. After a new installation, it continues",
		}}, nil
	}
	if c.Expected == nil {
		return Answer{Authorization: &v1alpha1.Authorization{State: v1alpha1.AuthorizationNotRequired}}, nil
	}
	if !is.known || is.problem == "" && !covers(before, w, is.installed) {
		var err error
		if is, err = c.check(ctx); err != nil {
			return Answer{}, err
		}
	}
	if is.problem != "" {
		return Answer{Authorization: before, Obstacle: &hold.Why{
			Reason: v1alpha1.ReasonPoliciesMissing, Message: "nothing starts without the admission policies: " + is.problem,
		}}, nil
	}
	after, wait := Decide(before, w, is.installed, c.Now())
	if wait > 0 {
		return Answer{Authorization: before, Wait: wait}, nil
	}
	return Answer{Authorization: &after, Store: before == nil || *before != after, Obstacle: unconfirmed(after, confirm)}, nil
}

// unconfirmed returns why nothing starts for an object that a user must confirm; nil for any other.
func unconfirmed(is v1alpha1.Authorization, confirm string) *hold.Why {
	if is.State != v1alpha1.AuthorizationUnconfirmed {
		return nil
	}
	return &hold.Why{Reason: v1alpha1.ReasonNotAuthorized, Message: "it may have been written while the admission policies were not in force, " +
		"so the API server asked for no rights: nothing starts. Review it; a user with the rights confirms it: " + confirm}
}

func (c *Checker) state() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// check returns the result of a check that began after the call. Callers that wait meanwhile share one.
func (c *Checker) check(ctx context.Context) (state, error) {
	c.mu.Lock()
	wanted := c.started + 1
	c.mu.Unlock()
	c.checking.Lock()
	defer c.checking.Unlock()
	c.mu.Lock()
	if c.completed >= wanted {
		defer c.mu.Unlock()
		return c.last, nil
	}
	c.started++
	number := c.started
	c.mu.Unlock()
	by, problem, err := c.Expected.Check(ctx, c.Reader)
	if err != nil {
		return state{}, err
	}
	c.mu.Lock()
	c.completed = number
	c.mu.Unlock()
	return c.set(func(s *state) { s.known, s.installed, s.problem = true, by, problem }), nil
}

// Leave has nothing start any more.
func (c *Checker) Leave() { c.set(func(s *state) { s.leaving = true }) }

// set changes the state, and has Start announce the change.
func (c *Checker) set(change func(*state)) state {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.last
	change(&c.last)
	if c.last != before {
		select {
		case c.signals() <- struct{}{}:
		default:
		}
	}
	return c.last
}

// signals is called with mu held.
func (c *Checker) signals() chan struct{} {
	if c.signal == nil {
		c.signal = make(chan struct{}, 1)
	}
	return c.signal
}

// Start checks the policies until ctx ends.
func (c *Checker) Start(ctx context.Context) error {
	c.mu.Lock()
	signal := c.signals()
	c.mu.Unlock()
	for ctx.Err() == nil {
		c.poll(ctx)
		every := pollEvery
		if s := c.state(); c.Expected != nil && (!s.known || s.problem != "") {
			every = recheckEvery
		}
		next := time.NewTimer(every) //nolint:forbidigo // it only says when to check again
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				waits = false
			case <-next.C:
				waits = false
			case <-signal:
				for _, f := range c.changed {
					f(ctx)
				}
			}
		}
		next.Stop()
	}
	return nil
}

func (c *Checker) poll(ctx context.Context) {
	log := logf.FromContext(ctx).WithName("policies")
	if c.Expected != nil {
		before := c.state()
		is, err := c.check(ctx)
		if err != nil {
			log.Error(err, "checking the admission policies")
		} else if is.problem != before.problem {
			log.Info("the admission policies have changed", "problem", is.problem)
		}
	}
	if c.Leaving == nil {
		return
	}
	leaving, err := c.Leaving(ctx)
	if err != nil {
		log.Error(err, "checking whether the installation is being deleted")
		return
	}
	c.set(func(s *state) { s.leaving = leaving })
}
