// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
)

// watch starts the watches of a session if it has none, and returns its viewer. One session at a time loads its objects.
func (s *sessions) watch(ctx context.Context, of *session) (*viewer, error) {
	select {
	case s.loading <- struct{}{}:
	case <-s.after(startTimeout):
		return nil, errLoading
	case <-ctx.Done():
		return nil, errLoading
	}
	s.measure()
	s.mu.Lock()
	defer s.mu.Unlock()
	v, started, err := s.startIfItFits(of)
	if !started {
		<-s.loading
		return v, err
	}
	go func() {
		select {
		case <-v.loaded:
		case <-v.ended:
		case <-s.after(loadTimeout):
		}
		<-s.loading
	}()
	return v, nil
}

// measure measures the memory in use if that is necessary and not known. The caller has taken loading.
func (s *sessions) measure() {
	s.mu.Lock()
	isKnown := s.memory.limit == math.MaxInt64 || len(s.watching()) == 0 || s.now().Sub(s.measured) < measureInterval
	s.mu.Unlock()
	if isKnown {
		return
	}
	live := s.memory.live(true) // takes long: without the lock
	s.mu.Lock()
	s.live, s.measured = live, s.now()
	s.mu.Unlock()
}

// startIfItFits starts the watches of a session, and stops those of other sessions if that is necessary. The memory of those is
// free soon after, before the new ones have loaded much.
func (s *sessions) startIfItFits(of *session) (v *viewer, started bool, err error) {
	switch {
	case s.all[of.key] != of:
		return nil, false, errNoSession
	case of.viewer != nil:
		return of.viewer, false, nil
	}
	watching, loading := s.watching(), 0
	for _, each := range watching {
		if !isClosed(each.viewer.loaded) {
			loading++
		}
	}
	stopped, enough := displaced(watching, of.user, s.memory.mustStop(len(watching), loading, s.live))
	if !enough {
		return nil, false, errNoMemory
	}
	for _, each := range stopped {
		each.stopWatches()
	}
	if v, of.stop, err = s.start(of); err != nil {
		return nil, false, err
	}
	of.viewer, s.measured = v, time.Time{}
	return v, true, nil
}

// watching returns the sessions that have watches.
func (s *sessions) watching() []*session {
	var watching []*session
	for _, each := range s.all {
		if each.viewer != nil {
			watching = append(watching, each)
		}
	}
	return watching
}

// displaced returns n sessions whose watches may be stopped for a session of a user. Those that are in use are only displaced if
// their user has more of them than this user would have: so no user can use up the memory, and users do not displace each other in
// turn. It reports false if there are not enough.
func displaced(watching []*session, user string, n int) (stopped []*session, enough bool) {
	of := map[string]int{}
	for _, each := range watching {
		of[each.user]++
	}
	for range n {
		next := nextToStop(watching, of, user)
		if next.requests > 0 && of[next.user] <= of[user]+1 {
			return nil, false
		}
		stopped = append(stopped, next)
		of[next.user]--
		watching = slices.DeleteFunc(watching, func(each *session) bool { return each == next })
	}
	return stopped, true
}

// nextToStop returns the session whose watches are the first to stop: one without requests if there is any, of the user who has most
// sessions with watches, of this user if others have as many, and the least used one. of are the numbers of sessions.
func nextToStop(watching []*session, of map[string]int, user string) *session {
	others := func(s *session) int {
		if s.user == user {
			return 0
		}
		return 1
	}
	return slices.MinFunc(watching, func(a, b *session) int {
		return cmp.Or(min(a.requests, 1)-min(b.requests, 1), of[b.user]-of[a.user], others(a)-others(b), a.used.Compare(b.used))
	})
}

// relieve stops the watches of a session if those of all use too much memory, for example because the cluster has grown. The last
// ones continue.
func (s *sessions) relieve() {
	if !s.memory.isShort() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	watching, of := s.watching(), map[string]int{}
	for _, each := range watching {
		of[each.user]++
	}
	if len(watching) > 1 {
		nextToStop(watching, of, "").stopWatches()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
