// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// world is what sessions need, without an API server: the token "alice-1" is of alice.
type world struct {
	*sessions
	now time.Time

	mu sync.Mutex
	// revoked are tokens that are not accepted any more, and down is true while the API server does not respond.
	revoked  map[string]bool
	down     bool
	reviewed int
	// watching counts the watches of each user, and ended are the ends of those of a session.
	watching map[string]int
	ended    map[*session]<-chan struct{}
	// load is closed when the objects of a session are loaded.
	load chan struct{}
	// used is the memory in use, and measured counts the measurements with a garbage collection.
	used     int64
	measured int
}

func newWorld() *world {
	w := &world{
		now:      time.Unix(1_000_000, 0),
		revoked:  map[string]bool{},
		watching: map[string]int{},
		ended:    map[*session]<-chan struct{}{},
		load:     make(chan struct{}),
	}
	close(w.load)
	now := func() time.Time { return w.now }
	w.sessions = &sessions{
		now:     now,
		after:   time.After,
		reviews: newReviews(w.review, now, time.After),
		loading: make(chan struct{}, 1),
		all:     map[key]*session{},
		memory: memory{math.MaxInt64, func(collect bool) int64 {
			if collect {
				w.measured++
			}
			return w.used
		}},
		start: func(s *session) (*viewer, context.CancelFunc, error) {
			ctx, stop := context.WithCancel(context.Background())
			w.watching[s.user]++
			w.ended[s] = ctx.Done()
			return &viewer{user: s.user, loaded: w.load, ended: ctx.Done()}, func() {
				w.watching[s.user]--
				stop()
			}, nil
		},
	}
	return w
}

func (w *world) review(_ context.Context, token string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reviewed++
	user, _, is := strings.Cut(token, "-")
	switch {
	case w.down:
		return "", errors.New("no answer")
	case !is || w.revoked[token]:
		return "", apierrors.NewUnauthorized("no")
	}
	return user, nil
}

// request makes a request with a token, and returns its session, which is still used until leave.
func (w *world) request(t *testing.T, token string) (*session, error) {
	t.Helper()
	k := keyOf("token", token)
	if _, _, err := w.enter(t.Context(), k); err == nil {
		return w.all[k], nil
	}
	if _, err := w.begin(t.Context(), k, login{token: token}); err != nil {
		return nil, err
	}
	s, v, err := w.enter(t.Context(), k)
	if err == nil && v.user != s.user {
		t.Errorf("%s has the viewer of %s", s.user, v.user)
	}
	return s, err
}

func (w *world) visit(t *testing.T, token string) {
	t.Helper()
	s, err := w.request(t, token)
	if err != nil {
		t.Fatal(err)
	}
	w.leave(s)
}

// users returns the number of sessions of each user.
func (w *world) users() map[string]int {
	users := map[string]int{}
	for _, s := range w.all {
		users[s.user]++
	}
	return users
}

func TestTokensThatAreNone(t *testing.T) {
	for name, token := range map[string]string{
		"no token, which would be anonymous": "", "a line break": "a-1\nX: y", "a space": "a 1", "a character that is not ASCII": "ä-1",
		"a token that is too long": "a-" + strings.Repeat("1", maxTokenBytes), "a token that the API server does not know": "wrong",
		"the token of the anonymous user": "system:anonymous-1", "a token without a user": "-1",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			var refused *refusal
			if _, err := w.request(t, token); !errors.As(err, &refused) || refused.code != http.StatusUnauthorized || len(w.all) > 0 {
				t.Errorf("error %v, %d sessions", err, len(w.all))
			}
		})
	}
}

func TestAUserHasFewSessions(t *testing.T) {
	w := newWorld()
	for i := range 10 {
		w.now = w.now.Add(time.Second)
		w.visit(t, fmt.Sprintf("alice-%d", i))
		w.visit(t, "bob-1")
	}
	if diff := cmp.Diff(map[string]int{"alice": maxSessionsOfUser, "bob": 1}, w.users()); diff != "" {
		t.Error(diff)
	}
	if w.all[keyOf("token", "alice-9")] == nil || w.all[keyOf("token", "alice-0")] != nil {
		t.Error("the newest session has ended, or the oldest has not")
	}
	if diff := cmp.Diff(map[string]int{"alice": maxSessionsOfUser, "bob": 1}, w.watching); diff != "" {
		t.Errorf("watches: %s", diff)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	w := newWorld()
	var busy []*session
	for i := range maxSessions {
		s, err := w.request(t, fmt.Sprintf("user%d-1", i))
		if err != nil {
			t.Fatal(err)
		}
		busy = append(busy, s)
	}
	if _, err := w.request(t, "late-1"); !errors.Is(err, errTooMany) || len(w.all) != maxSessions {
		t.Errorf("error %v, %d sessions", err, len(w.all))
	}
	w.leave(busy[7]) // this user looks at nothing at the moment
	if _, err := w.request(t, "late-1"); err != nil || len(w.all) != maxSessions || w.users()["user7"] != 0 {
		t.Errorf("error %v, sessions %v", err, w.users())
	}
	if !isClosed(w.ended[busy[7]]) {
		t.Error("the session that made room continues")
	}
}

func TestSessionsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		// during is whether a request lasts while the time passes.
		during                    bool
		passes                    time.Duration
		wantSessions, wantWatches int
	}{
		"a session that was just used":                  {false, time.Minute, 1, 1},
		"no tab is open":                                {false, watchesIdle, 1, 0},
		"no tab was open for long":                      {false, sessionIdle, 0, 0},
		"a tab is open for long":                        {true, sessionIdle, 1, 1},
		"a tab is open for longer than a session lasts": {true, sessionLifetime, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			s, err := w.request(t, "alice-1")
			if err != nil {
				t.Fatal(err)
			}
			if !test.during {
				w.leave(s)
			}
			w.now = w.now.Add(test.passes)
			w.tend(t.Context())
			w.sessions.mu.Lock()
			defer w.sessions.mu.Unlock()
			if len(w.all) != test.wantSessions || w.watching["alice"] != test.wantWatches {
				t.Errorf("%d sessions, %d watches", len(w.all), w.watching["alice"])
			}
			if isClosed(w.ended[s]) != (test.wantWatches == 0) {
				t.Error("its streams end or continue unlike its watches")
			}
		})
	}
}

func TestWatchesBeginAgainIfTheTokenIsStillAccepted(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		want   error
		left   int
	}{
		"it is accepted":                      {func(*world) {}, nil, 1},
		"it is revoked":                       {func(w *world) { w.revoked["alice-1"] = true }, errTokenEnded, 0},
		"the API server does not respond now": {func(w *world) { w.down = true }, &refusal{http.StatusBadGateway, "no answer"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.visit(t, "alice-1")
			w.now = w.now.Add(watchesIdle)
			w.tend(t.Context())
			test.change(w)
			_, _, err := w.enter(t.Context(), keyOf("token", "alice-1"))
			if fmt.Sprint(err) != fmt.Sprint(test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if len(w.all) != test.left {
				t.Errorf("%d sessions", len(w.all))
			}
			if watches := w.watching["alice"]; (watches > 0) != (err == nil) {
				t.Errorf("%d watches", watches)
			}
		})
	}
}

func TestATokenIsReviewedWhileItsTabsAreOpen(t *testing.T) {
	w := newWorld()
	s, err := w.request(t, "alice-1")
	if err != nil {
		t.Fatal(err)
	}
	w.tend(t.Context())
	w.mu.Lock()
	if w.reviewed != 1 {
		t.Errorf("%d reviews", w.reviewed)
	}
	w.revoked["alice-1"] = true
	w.mu.Unlock()
	w.now = w.now.Add(reviewInterval)
	w.tend(t.Context())
	<-w.ended[s]
}
