// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnknownTokensDoNotHoldOffOthers : the authenticator of the API server is slow, and clients send many wrong tokens.
func TestUnknownTokensDoNotHoldOffOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.reviews.review = func(ctx context.Context, token string) (string, error) {
			if strings.HasPrefix(token, "x") { // as if the authenticator asks another server
				<-ctx.Done()
				return "", ctx.Err()
			}
			return w.review(ctx, token)
		}
		w.visit(t, "alice-1")
		clear(w.reviews.accepted) // too many others were accepted since
		w.visit(t, "bob-1")
		w.end(keyOf("token", "bob-1"))
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range maxReviews + maxWaiting {
			all.Go(func() { _, _ = w.begin(ctx, keyOf("cookie", "x"), login{token: "x" + strconv.Itoa(i)}) })
		}
		synctest.Wait()
		began := time.Now()
		if _, err := w.begin(
			t.Context(),
			keyOf("cookie", "2"),
			login{token: "late-1"},
		); !errors.Is(err, errNotReviewed) ||
			time.Since(began) > 0 {
			t.Errorf("one token too many: error %v after %s", err, time.Since(began))
		}
		if err := w.reviewAgain(t.Context(), w.all[keyOf("token", "alice-1")]); err != nil || time.Since(began) > 0 {
			t.Errorf("the token of a session: error %v after %s", err, time.Since(began))
		}
		if _, err := w.begin(t.Context(), keyOf("cookie", "3"), login{token: "bob-1"}); err != nil || time.Since(began) > 0 {
			t.Errorf("a token that was accepted before: error %v after %s", err, time.Since(began))
		}
		time.Sleep(maxReviewWait)
		synctest.Wait()
		if waiting := len(w.reviews.queue); waiting != maxReviews {
			t.Errorf("%d tokens are reviewed or wait for longer than %s", waiting, maxReviewWait)
		}
		stop()
		all.Wait()
		if _, err := w.begin(t.Context(), keyOf("cookie", "4"), login{token: "late-1"}); err != nil {
			t.Errorf("after that: %v", err)
		}
	})
}

func TestATokenIsRefusedForAWhileWithoutAReview(t *testing.T) {
	w := newWorld()
	w.revoked["alice-1"], w.revoked["bob-1"] = true, true
	for _, step := range []struct {
		token    string
		after    time.Duration
		change   func()
		reviewed int
		want     error
	}{
		{"alice-1", 0, func() {}, 1, errTokenEnded},
		{"alice-1", refusedFor - 1, func() {}, 1, errTokenEnded},
		{"bob-1", 0, func() {}, 2, errTokenEnded},
		{"alice-1", 1, func() {}, 3, errTokenEnded},
		{"alice-1", refusedFor, func() { delete(w.revoked, "alice-1") }, 4, nil},
		{"alice-1", 0, func() {}, 5, nil},
		{"alice-1", 0, func() { w.revoked["alice-1"] = true }, 6, errTokenEnded},
		{"carol-1", 0, func() { w.down = true }, 7, &refusal{http.StatusBadGateway, "no answer"}},
		{"carol-1", 0, func() { w.down = false }, 8, nil},
	} {
		w.now = w.now.Add(step.after)
		step.change()
		_, err := w.reviews.userOf(t.Context(), step.token, false)
		if fmt.Sprint(err) != fmt.Sprint(step.want) || w.reviewed != step.reviewed {
			t.Errorf("%s: error %v after %d reviews, want %v after %d", step.token, err, w.reviewed, step.want, step.reviewed)
		}
		if isAccepted, _ := w.reviews.recall(keyOf("token", step.token)); isAccepted != (err == nil) {
			t.Errorf("%s: accepted %t, error %v", step.token, isAccepted, err)
		}
	}
}

func TestFewTokensAreRemembered(t *testing.T) {
	w := newWorld()
	w.visit(t, "alice-1")
	for i := range 3 * maxRemembered {
		_, _ = w.reviews.userOf(t.Context(), "wrong"+strconv.Itoa(i), false)
	}
	if refused, accepted := len(w.reviews.refused), len(w.reviews.accepted); refused == 0 || refused > maxRemembered || accepted != 1 {
		t.Errorf("%d refused and %d accepted tokens are remembered", refused, accepted)
	}
	w.now = w.now.Add(acceptedFor)
	if isAccepted, _ := w.reviews.recall(keyOf("token", "alice-1")); isAccepted {
		t.Error("a token counts as accepted forever")
	}
}
