// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newFullWorld is a world with memory for some sessions: each needs 100 bytes.
func newFullWorld(sessions int64) *world {
	w := newWorld()
	w.memory.limit = (100*sessions+25)*5/4 + 5
	w.memory.live = func(collect bool) int64 {
		if collect {
			w.measured++
		}
		all := 0
		for _, n := range w.watching {
			all += n
		}
		return int64(100 * all)
	}
	return w
}

// open opens tabs, each with its own token.
func (w *world) open(t *testing.T, tokens ...string) (of []*session) {
	t.Helper()
	for _, token := range tokens {
		w.now = w.now.Add(measureInterval)
		s, err := w.request(t, token)
		if err != nil {
			t.Fatalf("%s: %v", token, err)
		}
		of = append(of, s)
	}
	return of
}

// watchers returns the tokens of the sessions that have watches.
func (w *world) watchers() map[string]bool {
	all := map[string]bool{}
	for _, s := range w.all {
		if s.viewer != nil {
			all[s.token] = true
		}
	}
	return all
}

func set(tokens ...string) map[string]bool {
	all := map[string]bool{}
	for _, token := range tokens {
		all[token] = true
	}
	return all
}

func TestMustStop(t *testing.T) {
	for name, test := range map[string]struct {
		limit            int64
		viewers, loading int
		live             int64
		want             int
	}{
		"the first one, whatever is in use":              {100, 0, 0, 1000, 0},
		"no limit":                                       {math.MaxInt64, 10, 0, math.MaxInt64 / 2, 0},
		"another one fits":                               {400, 1, 0, 100, 0},
		"another one fits exactly":                       {500, 4, 0, 300, 0}, // 300 + 75 * 5/4 = 393 of 400
		"another one does not fit":                       {400, 4, 0, 300, 1},
		"another one fits, but not with one that loads":  {500, 5, 1, 300, 2},
		"the only other one is large":                    {400, 1, 0, 300, 1},
		"three must stop, because the others have grown": {400, 4, 0, 400, 3},
		"more than all":                                  {400, 2, 0, 4000, 2},
		"all are loading":                                {400, 2, 2, 100, 2}, // each of them could need as much as is in use now
	} {
		if got := (memory{limit: test.limit}).mustStop(test.viewers, test.loading, test.live); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestTheMemoryOfTheProgramIsMeasured(t *testing.T) {
	m := newMemory()
	before := m.live(true)
	large := make([]byte, 32<<20)
	after := m.live(true)
	if m.limit <= 0 || before <= 0 || after-before < int64(len(large)/2) {
		t.Errorf("limit %d, %d bytes before and %d after %d more", m.limit, before, after, len(large))
	}
	runtime.KeepAlive(large)
}

func TestWhoseWatchesMakeRoom(t *testing.T) {
	for name, test := range map[string]struct {
		// open are the tokens of tabs that are open, and closed those of tabs that were closed after that.
		open, closed []string
		next         string
		want         map[string]bool
		err          error
	}{
		"there is room":                                    {[]string{"alice-1", "bob-1"}, nil, "carol-1", set("alice-1", "bob-1", "carol-1"), nil},
		"a tab of another user was closed":                 {[]string{"alice-1", "bob-1", "carol-1"}, []string{"bob-1"}, "dave-1", set("alice-1", "carol-1", "dave-1"), nil},
		"the first of two closed tabs":                     {[]string{"alice-1", "bob-1", "carol-1"}, []string{"bob-1", "alice-1"}, "dave-1", set("alice-1", "carol-1", "dave-1"), nil},
		"closed tabs of the user and of another one":       {[]string{"alice-1", "bob-1", "carol-1"}, []string{"alice-1", "bob-1"}, "bob-2", set("alice-1", "bob-2", "carol-1"), nil},
		"a closed tab of the user with most sessions":      {[]string{"alice-1", "bob-1", "bob-2"}, []string{"alice-1", "bob-1"}, "carol-1", set("alice-1", "bob-2", "carol-1"), nil},
		"a closed tab goes before tabs that are open":      {[]string{"alice-1", "bob-1", "bob-2"}, []string{"alice-1"}, "carol-1", set("bob-1", "bob-2", "carol-1"), nil},
		"all are in use, and one user has most of them":    {[]string{"alice-1", "alice-2", "alice-3"}, nil, "bob-1", set("alice-2", "alice-3", "bob-1"), nil},
		"all are in use, and no user has more":             {[]string{"alice-1", "bob-1", "carol-1"}, nil, "dave-1", set("alice-1", "bob-1", "carol-1"), errNoMemory},
		"all are in use, and another user would have less": {[]string{"alice-1", "bob-1", "bob-2"}, nil, "alice-2", set("alice-1", "bob-1", "bob-2"), errNoMemory},
		"all are in use by the user":                       {[]string{"alice-1", "alice-2", "alice-3"}, nil, "alice-4", set("alice-1", "alice-2", "alice-3"), errNoMemory},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFullWorld(3)
			w.open(t, test.open...)
			for _, token := range test.closed {
				w.now = w.now.Add(time.Second)
				w.leave(w.all[keyOf("token", token)])
			}
			w.now = w.now.Add(measureInterval)
			if _, err := w.request(t, test.next); !errors.Is(err, test.err) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, w.watchers()); diff != "" {
				t.Errorf("watches (-want +got):\n%s", diff)
			}
			if len(w.all) != len(test.open)+1 {
				t.Errorf("%d sessions: those without watches must stay logged in", len(w.all))
			}
			for _, s := range w.all {
				if ended := w.ended[s]; ended != nil && isClosed(ended) != (s.viewer == nil) {
					t.Errorf("the streams of %s end or continue unlike its watches", s.token)
				}
			}
		})
	}
}

// TestAUserCannotTakeTheWatchesOfOthers : tabs whose watches were stopped connect again and again.
func TestAUserCannotTakeTheWatchesOfOthers(t *testing.T) {
	w := newFullWorld(4)
	w.open(t, "alice-1", "alice-2", "alice-3", "alice-4", "bob-1", "carol-1")
	for range 3 {
		for _, token := range []string{"alice-1", "alice-2", "alice-3", "alice-4"} {
			w.now = w.now.Add(measureInterval)
			_, _ = w.request(t, token)
		}
	}
	if diff := cmp.Diff(map[string]int{"alice": 2, "bob": 1, "carol": 1}, w.watching); diff != "" {
		t.Errorf("watches (-want +got):\n%s", diff)
	}
}

func TestASessionWithoutMemorySaysWhatHelps(t *testing.T) {
	w := newFullWorld(1)
	first := w.open(t, "alice-1")[0]
	w.now = w.now.Add(measureInterval)
	_, err := w.request(t, "bob-1")
	var refused *refusal
	if !errors.As(err, &refused) || refused.code != http.StatusServiceUnavailable ||
		!strings.Contains(refused.message, "dashboard.resources.limits.memory") {
		t.Errorf("error %v", err)
	}
	if s := w.all[keyOf("token", "bob-1")]; s == nil || s.requests != 0 {
		t.Errorf("session %+v", s)
	}
	w.leave(first)
	w.open(t, "bob-1")
	if diff := cmp.Diff(set("bob-1"), w.watchers()); diff != "" {
		t.Errorf("watches (-want +got):\n%s", diff)
	}
}

// TestGarbageIsNotCollectedForEachRequest : tabs without watches connect again and again.
func TestGarbageIsNotCollectedForEachRequest(t *testing.T) {
	w := newFullWorld(2)
	w.open(t, "alice-1") // the first session needs no measurement
	if w.measured != 0 {
		t.Errorf("%d measurements for the first session", w.measured)
	}
	if _, err := w.request(t, "bob-1"); err != nil || w.measured != 1 {
		t.Errorf("error %v, %d measurements for the second session", err, w.measured)
	}
	for range 10 { // the watches of bob have started since the last measurement
		if _, err := w.request(t, "carol-1"); !errors.Is(err, errNoMemory) || w.measured != 2 {
			t.Errorf("error %v, %d measurements", err, w.measured)
		}
	}
	w.now = w.now.Add(measureInterval)
	if _, err := w.request(t, "carol-1"); !errors.Is(err, errNoMemory) || w.measured != 3 {
		t.Errorf("error %v, %d measurements after a while", err, w.measured)
	}
	w.memory.limit = math.MaxInt64
	w.now = w.now.Add(measureInterval)
	if _, err := w.request(t, "carol-1"); err != nil || w.measured != 3 {
		t.Errorf("error %v, %d measurements without a limit", err, w.measured)
	}
}

// TestOneSessionLoadsAtATime has alice load objects while others wait.
func TestOneSessionLoadsAtATime(t *testing.T) {
	for name, test := range map[string]struct {
		// then is what happens after bob has waited for a moment.
		then func(w *world, leave context.CancelFunc)
		want error
	}{
		"the objects are loaded":          {func(w *world, _ context.CancelFunc) { close(w.load) }, nil},
		"the session of alice ends":       {func(w *world, _ context.CancelFunc) { w.end(keyOf("token", "alice-1")) }, nil},
		"the API server does not respond": {func(*world, context.CancelFunc) { <-time.After(loadTimeout) }, nil},
		"the tab is closed":               {func(_ *world, leave context.CancelFunc) { leave() }, errLoading},
		"the session of bob ends":         {func(w *world, _ context.CancelFunc) { w.end(keyOf("token", "bob-1")); close(w.load) }, errNoSession},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.load = make(chan struct{})
				w.open(t, "alice-1")
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if _, err := w.begin(ctx, keyOf("token", "bob-1"), login{token: "bob-1"}); err != nil {
					t.Fatal(err)
				}
				entered := make(chan error, 1)
				go func() {
					_, _, err := w.enter(ctx, keyOf("token", "bob-1"))
					entered <- err
				}()
				synctest.Wait()
				if len(entered) != 0 || w.watching["bob"] != 0 {
					t.Error("the watches of bob have started")
				}
				test.then(w, leave)
				if err := <-entered; !errors.Is(err, test.want) {
					t.Errorf("error %v, want %v", err, test.want)
				}
				if w.watching["bob"] > 0 != (test.want == nil) {
					t.Errorf("%d watches of bob", w.watching["bob"])
				}
				w.end(keyOf("token", "alice-1"))
				w.end(keyOf("token", "bob-1"))
			})
		})
	}
}

func TestARequestDoesNotWaitForeverForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.loading <- struct{}{}
		if _, err := w.request(t, "alice-1"); !errors.Is(err, errLoading) || w.watching["alice"] != 0 {
			t.Errorf("error %v, %d watches", err, w.watching["alice"])
		}
		<-w.loading
		w.visit(t, "alice-1")
	})
}

// TestRequestsOfASessionShareItsWatches : a second request waits for the watches that the first one starts.
func TestRequestsOfASessionShareItsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		k := keyOf("token", "alice-1")
		if _, err := w.begin(t.Context(), k, login{token: "alice-1"}); err != nil {
			t.Fatal(err)
		}
		w.loading <- struct{}{}
		viewers := make(chan *viewer, 2)
		for range cap(viewers) {
			go func() {
				_, v, _ := w.enter(t.Context(), k)
				viewers <- v
			}()
		}
		synctest.Wait()
		<-w.loading
		if one, other := <-viewers, <-viewers; one == nil || one != other || w.watching["alice"] != 1 || w.all[k].requests != 2 {
			t.Errorf("viewers %p and %p, %d watches, %d requests", one, other, w.watching["alice"], w.all[k].requests)
		}
		w.end(k)
	})
}

// TestAUserGivesUpWhatIsMoreThanOthersHave needs memory of more than one session.
func TestAUserGivesUpWhatIsMoreThanOthersHave(t *testing.T) {
	for n, want := range []bool{true, true, true, false} {
		w := newWorld()
		w.open(t, "alice-1", "alice-2", "alice-3")
		if stopped, enough := displaced(w.sessions.watching(), "bob", n); enough != want || enough && len(stopped) != n {
			t.Errorf("%d of 3: %d sessions, enough %t", n, len(stopped), enough)
		}
	}
}

func TestWatchesStopIfTheyUseTooMuchMemory(t *testing.T) {
	for name, test := range map[string]struct {
		used int64
		open []string
		want map[string]bool
	}{
		"enough memory":                  {900, []string{"alice-1", "bob-1", "bob-2"}, set("alice-1", "bob-1", "bob-2")},
		"the cluster has grown":          {901, []string{"alice-1", "bob-1", "bob-2"}, set("alice-1", "bob-2")},
		"the only watches use too much":  {901, []string{"alice-1"}, set("alice-1")},
		"there is garbage in the memory": {-1, []string{"alice-1", "bob-1", "bob-2"}, set("alice-1", "bob-1", "bob-2")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.open(t, test.open...)
			w.memory = memory{1000, func(collect bool) int64 {
				if test.used >= 0 {
					return test.used
				}
				return map[bool]int64{false: 1000, true: 500}[collect]
			}}
			w.relieve()
			if diff := cmp.Diff(test.want, w.watchers()); diff != "" {
				t.Errorf("watches (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheMemoryIsCheckedAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.open(t, "alice-1", "bob-1")
		w.memory.limit = 1000
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { w.run(ctx) })
		<-time.After(tendInterval)
		synctest.Wait()
		if len(w.watchers()) != 2 {
			t.Error("watches have stopped")
		}
		w.used = 1000
		<-time.After(tendInterval)
		synctest.Wait()
		if len(w.watchers()) != 1 {
			t.Error("no watches have stopped")
		}
		end()
		all.Wait()
	})
}

// TestTheWatchesOfOpenTabsCanStop : the streams end, and the tabs then get everything from the new watches.
func TestTheWatchesOfOpenTabsCanStop(t *testing.T) {
	s := newSite(t, func(*InCluster) {})
	c := s.logIn("alice")
	var last change
	s.stream(http.MethodGet, "/api/stream?since=0", "", with(c), func(tab *http.Response) {
		lines := json.NewDecoder(tab.Body)
		for last.Version == 0 {
			if err := lines.Decode(&last); err != nil {
				t.Fatal(err)
			}
		}
		s.sessions.mu.Lock()
		for _, each := range s.sessions.all {
			each.stopWatches()
		}
		s.sessions.mu.Unlock()
		for err := error(nil); !errors.Is(err, io.EOF); err = lines.Decode(&change{}) {
			if err != nil {
				t.Fatalf("the stream does not end normally: %v", err)
			}
		}
	})
	s.nodes(with(c)) // the new watches have loaded the objects
	s.stream(http.MethodGet, fmt.Sprintf("/api/stream?since=%d", last.Version), "", with(c), func(tab *http.Response) {
		var next change
		if err := json.NewDecoder(tab.Body).Decode(&next); err != nil || !next.Reset || next.Version <= last.Version {
			t.Errorf("error %v, version %d after %d, reset %t", err, next.Version, last.Version, next.Reset)
		}
	})
}
