// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"cmp"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Fault is what a request that writes meets, instead of a response.
type Fault string

const (
	// NoFault : the request is answered.
	NoFault Fault = ""
	// DiesBefore : the manager ends before the write. Nothing is served until Revive.
	DiesBefore Fault = "the manager ends before"
	// DiesAfter : the manager ends after the write.
	DiesAfter Fault = "the manager ends after"
	// DiesStale : as DiesAfter, and the first watches of the next manager show this write late.
	DiesStale Fault = "the manager ends after, and the next one learns of it late"
	// Conflict : the object has changed.
	Conflict Fault = "conflict with"
	// Lost : the write is done, and the response does not arrive.
	Lost Fault = "no response to"
	// Broken : the API server has an error of its own.
	Broken Fault = "an internal error of"
	// Throttled : the API server asks the client to retry later.
	Throttled Fault = "too many requests before"
	// TimedOut : the API server has given up, and nothing is written.
	TimedOut Fault = "a timeout of"
)

// Faults are all faults of requests.
var Faults = []Fault{DiesBefore, DiesAfter, DiesStale, Conflict, Lost, Broken, Throttled, TimedOut}

// Kills reports whether the manager ends.
func (f Fault) Kills() bool { return f == DiesBefore || f == DiesAfter || f == DiesStale }

// late is how long the first watches of a manager show an object as it was before its last change (DiesStale).
const late = 10 * time.Second

// errDown is the error of all requests while the manager does not run.
var errDown = errors.New("connection refused")

// meet does a write with a fault. Its caller has locked mu.
func (s *Server) meet(fault Fault, verb string, k key, do func() error) error {
	s.isBusy(time.Now())
	if fault.Kills() {
		s.die(fault, k, do)
		return errDown
	}
	switch fault {
	case Conflict:
		return conflict(k)
	case Lost:
		return cmp.Or(do(), error(apierrors.NewTimeoutError("the response is lost", 0)))
	case Broken:
		return apierrors.NewInternalError(errors.New("etcd has no leader"))
	case Throttled:
		return apierrors.NewTooManyRequests("try again", 1)
	case TimedOut:
		return apierrors.NewServerTimeout(schema.GroupResource{Resource: k.kind}, verb, 0)
	default:
		return do()
	}
}

// die ends the manager before or after a write.
func (s *Server) die(fault Fault, k key, do func() error) {
	s.down = true
	if fault == DiesBefore {
		return
	}
	before := s.objects[k]
	if err := do(); err == nil && fault == DiesStale {
		s.shownLate, s.before = k, before
	}
}

// Revive serves requests again, for another manager.
func (s *Server) Revive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
	shown := s.shownLate
	if shown == (key{}) {
		return
	}
	time.AfterFunc(late, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.shownLate, s.before = key{}, nil
		for _, w := range s.watches {
			if w.resource.Kind == shown.kind {
				w.see(shown, s.objects[shown])
			}
		}
	})
}

// isDown reports whether no request is served.
func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// shown returns an object as a new watch shows it: as it is, or as it was before the write that is shown late. Its caller has locked mu.
func (s *Server) shown(k key, o client.Object) client.Object {
	if k == s.shownLate {
		return s.before
	}
	return o
}
