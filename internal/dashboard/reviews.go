// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// Limits of reviews.
const (
	// maxReviews limits the tokens that are reviewed at the same time: those that were accepted before, and as many others.
	maxReviews = 4
	// reviewTimeout limits how long a review takes, with the wait for a slot.
	reviewTimeout = 10 * time.Second
	// maxWaiting limits the other tokens that wait for a slot, and maxReviewWait how long they do.
	maxWaiting    = 8
	maxReviewWait = 2 * time.Second
	// acceptedFor is how long a token counts as accepted before, and refusedFor how long it is refused without another review.
	acceptedFor = sessionLifetime
	refusedFor  = 10 * time.Second
	// maxRemembered limits the tokens of each kind that are remembered.
	maxRemembered = 256
)

// reviews ask the API server for the users of tokens. Everyone who reaches the page can send tokens. So those that were accepted
// before have their own slots, and do not wait behind others when the API server takes long to review a token.
type reviews struct {
	// review asks the API server for the user of a token.
	review func(ctx context.Context, token string) (user string, err error)
	now    func() time.Time
	after  func(time.Duration) <-chan time.Time
	// known are the slots of tokens that were accepted before, and unknown those of other tokens. queue limits the other tokens
	// that have a slot or wait for one.
	known, unknown, queue chan struct{}

	mu sync.Mutex
	// accepted and refused are the times of the reviews, by a hash of the token. They are apart, so that invalid tokens, of which
	// a client can send any number, displace none that was accepted.
	accepted, refused map[key]time.Time
}

func newReviews(review func(context.Context, string) (string, error), now func() time.Time, after func(time.Duration) <-chan time.Time) *reviews {
	return &reviews{
		review: review, now: now, after: after, known: make(chan struct{}, maxReviews), unknown: make(chan struct{}, maxReviews),
		queue: make(chan struct{}, maxReviews+maxWaiting), accepted: map[key]time.Time{}, refused: map[key]time.Time{},
	}
}

// userOf returns the user of a token if the API server accepts it. hasSession is true for the token of a session that exists.
func (r *reviews) userOf(ctx context.Context, token string, hasSession bool) (string, error) {
	k := keyOf("token", token)
	isAccepted, isRefused := r.recall(k)
	if isRefused {
		return "", errTokenEnded
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	release, isFree := r.slot(ctx, hasSession || isAccepted)
	if !isFree {
		return "", errNotReviewed
	}
	defer release()
	user, err := r.review(ctx, token)
	switch {
	case apierrors.IsUnauthorized(err), err == nil && (user == "" || user == "system:anonymous"):
		r.remember(k, r.refused, r.accepted)
		return "", errTokenEnded
	case err != nil:
		return "", &refusal{http.StatusBadGateway, cmdutil.Explain(err).Error()}
	}
	r.remember(k, r.accepted, r.refused)
	return user, nil
}

// slot waits for a slot. It reports false if there is none in time.
func (r *reviews) slot(ctx context.Context, isKnown bool) (release func(), isFree bool) {
	if isKnown {
		select {
		case r.known <- struct{}{}:
			return func() { <-r.known }, true
		case <-ctx.Done():
			return nil, false
		}
	}
	if !acquire(r.queue) {
		return nil, false
	}
	select {
	case r.unknown <- struct{}{}:
		return func() { <-r.unknown; <-r.queue }, true
	case <-r.after(maxReviewWait):
	case <-ctx.Done():
	}
	<-r.queue
	return nil, false
}

// recall reports whether a token was accepted before, or refused a moment ago.
func (r *reviews) recall(k key) (isAccepted, isRefused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	accepted, wasAccepted := r.accepted[k]
	refused, wasRefused := r.refused[k]
	return wasAccepted && now.Sub(accepted) < acceptedFor, wasRefused && now.Sub(refused) < refusedFor
}

// remember moves a token from one kind to the other. If there are too many, it forgets the others: they are only for a while.
func (r *reviews) remember(k key, to, from map[key]time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(from, k)
	if _, has := to[k]; !has && len(to) >= maxRemembered {
		clear(to)
	}
	to[k] = r.now()
}
