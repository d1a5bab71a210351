// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsauth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

func TestRequests(t *testing.T) {
	const good = "Bearer good"
	tests := map[string]struct {
		method, authorization string
		want, reviews         int
	}{
		"a client that may get the metrics": {http.MethodGet, good, http.StatusOK, 1},
		"a client that may not":             {http.MethodGet, "Bearer other", http.StatusForbidden, 1},
		"an invalid token":                  {http.MethodGet, "Bearer bad", http.StatusUnauthorized, 1},
		"no token":                          {http.MethodGet, "", http.StatusUnauthorized, 0},
		"an empty token":                    {http.MethodGet, "Bearer ", http.StatusUnauthorized, 0},
		"a password":                        {http.MethodGet, "Basic good", http.StatusUnauthorized, 0},
		"a token that is too long": {
			http.MethodGet,
			"Bearer " + strings.Repeat("a", maxTokenBytes+1),
			http.StatusUnauthorized,
			0,
		},
		"another method":                         {http.MethodPost, good, http.StatusMethodNotAllowed, 0},
		"an API server that cannot be asked now": {http.MethodGet, "Bearer error", http.StatusInternalServerError, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			reviews := 0
			f := newFilter(counting(&reviews), func() time.Time { return time.Unix(1, 0) })
			if got := request(t, f, tt.method, tt.authorization); got != tt.want || reviews != tt.reviews {
				t.Errorf("the status is %d after %d reviews, want %d after %d", got, reviews, tt.want, tt.reviews)
			}
		})
	}
}

func TestDecisionsAreRememberedForAWhile(t *testing.T) {
	reviews, now := 0, time.Unix(1, 0)
	f := newFilter(counting(&reviews), func() time.Time { return now })
	for _, step := range []struct {
		token   string
		after   time.Duration
		reviews int
	}{
		{"good", 0, 1}, {"good", remembered - 1, 1}, {"bad", 0, 2}, {"bad", 0, 2}, {"good", 1, 3}, {"error", 0, 4}, {"error", 0, 5},
	} {
		now = now.Add(step.after)
		if request(t, f, http.MethodGet, "Bearer "+step.token); reviews != step.reviews {
			t.Errorf("%s: %d reviews, want %d", step.token, reviews, step.reviews)
		}
	}
	for i := range 3 * maxRemembered {
		request(t, f, http.MethodGet, "Bearer bad"+strconv.Itoa(i))
	}
	if len(f.refused) > maxRemembered {
		t.Errorf("it remembers %d decisions", len(f.refused))
	}
}

func TestInvalidTokensDisplaceNoAcceptedOne(t *testing.T) {
	reviews := 0
	f := newFilter(counting(&reviews), func() time.Time { return time.Unix(1, 0) })
	request(t, f, http.MethodGet, "Bearer good")
	for i := range 3 * maxRemembered {
		request(t, f, http.MethodGet, "Bearer bad"+strconv.Itoa(i))
	}
	before := reviews
	if got := request(t, f, http.MethodGet, "Bearer good"); got != http.StatusOK || reviews != before {
		t.Errorf("the status is %d after %d more reviews", got, reviews-before)
	}
}

// TestAKnownClientHasASlot : the API server does not answer to clients with invalid tokens, which take all other slots.
func TestAKnownClientHasASlot(t *testing.T) {
	now := time.Unix(1, 0)
	var clock sync.Mutex
	entered := make(chan struct{})
	f := newFilter(func(ctx context.Context, token, _ string) (int, error) {
		if token == "good" {
			return http.StatusOK, nil
		}
		entered <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	}, func() time.Time {
		clock.Lock()
		defer clock.Unlock()
		return now
	})
	request(t, f, http.MethodGet, "Bearer good")
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range maxReviews {
		all.Go(func() { _ = requestIn(ctx, t, f, http.MethodGet, "Bearer bad"+strconv.Itoa(i)) })
		<-entered
	}
	clock.Lock()
	now = now.Add(remembered)
	clock.Unlock()
	if got := requestIn(ctx, t, f, http.MethodGet, "Bearer good"); got != http.StatusOK {
		t.Errorf("the status of the known client is %d", got)
	}
	stop()
	all.Wait()
}

// counting is a review that counts, and decides by the token.
func counting(n *int) review {
	return func(_ context.Context, token, path string) (int, error) {
		*n++
		switch {
		case path != "/metrics":
			return http.StatusForbidden, nil
		case token == "good":
			return http.StatusOK, nil
		case token == "other":
			return http.StatusForbidden, nil
		case token == "error":
			return 0, errors.New("no answer")
		}
		return http.StatusUnauthorized, nil
	}
}

func request(t *testing.T, f *filter, method, authorization string) int {
	t.Helper()
	return requestIn(t.Context(), t, f, method, authorization)
}

func requestIn(ctx context.Context, t *testing.T, f *filter, method, authorization string) int {
	t.Helper()
	handler, err := f.wrap(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(ctx, method, "/metrics", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Code
}
