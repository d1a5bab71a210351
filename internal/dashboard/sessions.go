// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of sessions.
const (
	// maxSessions limits the sessions, and maxSessionsOfUser those of one user, so that no user can use up all of them.
	maxSessions       = 32
	maxSessionsOfUser = 4
	// reviewInterval is how often the API server is asked whether it still accepts the token of a session that is in use.
	reviewInterval = time.Minute
	// watchesIdle is the time without a request after which a session has no watches, and sessionIdle the one after which it ends.
	watchesIdle = 2 * time.Minute
	sessionIdle = time.Hour
	// sessionLifetime is the time after which a session ends in any case.
	sessionLifetime = 12 * time.Hour
	// tendInterval is the time between two looks at all sessions.
	tendInterval = 10 * time.Second
	// loadTimeout is how long the next start of watches waits for the objects of the last one, and startTimeout how long a request
	// waits for the start: for longer than all sessions of another user load their objects.
	loadTimeout  = 5 * time.Second
	startTimeout = (maxSessionsOfUser + 2) * loadTimeout
	// measureInterval is the least time between two measurements of the memory, unless watches start in between.
	measureInterval = 2 * time.Second
	// maxTokenBytes limits a token.
	maxTokenBytes = 16 << 10
)

// key identifies a session: a hash of the token, or of the ID in the cookie.
type key [sha256.Size]byte

func keyOf(kind, secret string) key { return sha256.Sum256([]byte(kind + "\x00" + secret)) }

// login is what a session needs to begin.
type login struct {
	token string
	// namespace is read if the user may not read all namespaces; "" for the default.
	namespace string
	// hasCookie is true if the session is found by a cookie, and false if each request has the token.
	hasCookie bool
}

// session is a user who is logged in.
type session struct {
	login
	key  key
	user string

	// These fields are protected by sessions.mu. viewer is nil while the session has no watches, and stop ends them.
	viewer *viewer
	stop   context.CancelFunc
	// requests counts the requests that are being answered or wait for watches.
	requests int
	// began, used and reviewed are when the session began, when its last request began or ended, and when its token was accepted.
	began, used, reviewed time.Time
	reviewing             bool
}

// sessions are the users who are logged in. Each session has its own watches, with its own token. Sessions of one user share
// nothing: two tokens with the same user name can have different groups, and so different permissions.
type sessions struct {
	reviews *reviews
	// start starts the watches of a session.
	start func(*session) (*viewer, context.CancelFunc, error)
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
	// memory limits the watches. loading is taken while watches start and load their objects: only then is it known how much
	// memory they use.
	memory  memory
	loading chan struct{}

	mu  sync.Mutex
	all map[key]*session
	// live is the memory in use that was measured last, and measured when that was; zero if watches have started since.
	live     int64
	measured time.Time
}

// refusal is why there is no session for a request.
type refusal struct {
	code    int
	message string
}

func (r *refusal) Error() string { return r.message }

var (
	errNoSession   = &refusal{http.StatusUnauthorized, "you are not logged in, or your session has ended"}
	errNoToken     = &refusal{http.StatusUnauthorized, "this is not a token of the API server: it must be one line without spaces"}
	errTokenEnded  = &refusal{http.StatusUnauthorized, "the API server does not accept this token: it is wrong, or it has expired"}
	errTooMany     = &refusal{http.StatusServiceUnavailable, "too many users have this page open: try again later"}
	errNotReviewed = &refusal{http.StatusServiceUnavailable, "too many users log in at the moment: try again"}
	errLoading     = &refusal{http.StatusServiceUnavailable, "the objects of other sessions are loaded at the moment: try again"}
	errNoMemory    = &refusal{http.StatusServiceUnavailable, "the dashboard has not enough memory for one more session: close this page in another browser, or try again " +
		"later. An administrator can raise the memory limit: dashboard.resources.limits.memory and dashboard.goMemoryLimit of the chart"}
)

// checkToken returns an error if the API server would treat a token as none, and so the user as anonymous.
func checkToken(token string) error {
	unexpected := func(c rune) bool { return c <= ' ' || c > '~' }
	if token == "" || len(token) > maxTokenBytes || strings.ContainsFunc(token, unexpected) {
		return errNoToken
	}
	return nil
}

// begin begins a session. It is found by the key from now on.
func (s *sessions) begin(ctx context.Context, k key, l login) (*session, error) {
	if err := checkToken(l.token); err != nil {
		return nil, err
	}
	user, err := s.reviews.userOf(ctx, l.token, false)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if existing := s.all[k]; existing != nil { // two requests with the same token came at once
		return existing, nil
	}
	if !s.makeRoom(user) {
		return nil, errTooMany
	}
	now := s.now()
	begun := &session{login: l, key: k, user: user, began: now, used: now, reviewed: now}
	s.all[k] = begun
	return begun, nil
}

// makeRoom ends the session of the user, or of another user if there are too many, that was not used for the longest time. It
// reports false if all others are in use.
func (s *sessions) makeRoom(user string) bool {
	var own, idle []*session
	for _, each := range s.all {
		if each.user == user {
			own = append(own, each)
		}
		if each.requests == 0 {
			idle = append(idle, each)
		}
	}
	switch {
	case len(own) >= maxSessionsOfUser:
		s.remove(slices.MinFunc(own, leastUsed))
	case len(s.all) < maxSessions:
	case len(idle) > 0:
		s.remove(slices.MinFunc(idle, leastUsed))
	default:
		return false
	}
	return true
}

// leastUsed orders sessions by the time of their last request. Those that are in use come last.
func leastUsed(a, b *session) int {
	if inUse := min(a.requests, 1) - min(b.requests, 1); inUse != 0 {
		return inUse
	}
	return a.used.Compare(b.used)
}

// enter finds a session for a request, and starts its watches if it has none. leave must be called afterwards.
func (s *sessions) enter(ctx context.Context, k key) (*session, *viewer, error) {
	s.mu.Lock()
	found := s.all[k]
	if found == nil {
		s.mu.Unlock()
		return nil, nil, errNoSession
	}
	found.requests++
	found.used = s.now()
	v, old := found.viewer, found.used.Sub(found.reviewed) >= reviewInterval
	s.mu.Unlock()
	var err error
	if v == nil && old {
		err = s.reviewAgain(ctx, found)
	}
	if v == nil && err == nil {
		v, err = s.watch(ctx, found)
	}
	if err != nil {
		s.leave(found)
		return nil, nil, err
	}
	return found, v, nil
}

// leave ends a request of a session.
func (s *sessions) leave(of *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.requests--
	of.used = s.now()
}

// reviewAgain ends a session whose token the API server does not accept any more.
func (s *sessions) reviewAgain(ctx context.Context, of *session) error {
	_, err := s.reviews.userOf(ctx, of.token, true)
	if errors.Is(err, errTokenEnded) {
		s.end(of.key)
	}
	if err == nil {
		s.mu.Lock()
		of.reviewed = s.now()
		s.mu.Unlock()
	}
	return err
}

// end ends a session with all its requests and watches.
func (s *sessions) end(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.all[k]; found != nil {
		s.remove(found)
	}
}

func (s *sessions) remove(ended *session) {
	delete(s.all, ended.key)
	ended.stopWatches()
}

// stopWatches ends the watches of a session, and its streams. The page then connects again, which needs the session and memory.
func (s *session) stopWatches() {
	if s.stop != nil {
		s.stop()
	}
	s.viewer, s.stop = nil, nil
}

// tend ends sessions that are over, ends the watches of those without requests, and reviews the tokens of the others.
func (s *sessions) tend(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, each := range s.all {
		unused := now.Sub(each.used)
		switch {
		case now.Sub(each.began) >= sessionLifetime, each.requests == 0 && unused >= sessionIdle:
			s.remove(each)
		case each.requests == 0 && unused >= watchesIdle:
			each.stopWatches()
		case each.viewer != nil && !each.reviewing && now.Sub(each.reviewed) >= reviewInterval:
			each.reviewing = true
			go func() {
				_ = s.reviewAgain(ctx, each) // an API server that does not respond is asked again
				s.mu.Lock()
				each.reviewing = false
				s.mu.Unlock()
			}()
		}
	}
}

// run tends the sessions until the context ends, and then ends all.
func (s *sessions) run(ctx context.Context) {
	for {
		select {
		case <-s.after(tendInterval):
			s.tend(ctx)
			s.relieve()
		case <-ctx.Done():
			s.mu.Lock()
			for _, each := range s.all {
				s.remove(each)
			}
			s.mu.Unlock()
			return
		}
	}
}
