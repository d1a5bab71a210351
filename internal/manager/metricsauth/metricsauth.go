// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsauth protects the metrics of the manager: it asks the API server who a client is, and whether it may get
// the path. controller-runtime has the same as pkg/metrics/filters, but that contains a large part of an API server: it
// makes the manager larger by 20 MB.
package metricsauth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

const (
	// remembered is how long a decision is valid, as the API server itself remembers those of its authorizer.
	remembered = 10 * time.Second
	// maxRemembered limits the decisions of each kind that are remembered.
	maxRemembered = 256
	// knownFor is how long a client that was accepted has a slot that no other client can take.
	knownFor = time.Hour
	// maxReviews limits the reviews of all clients at the same time. One more is for clients that were accepted lately.
	maxReviews = 3
	// reviewTimeout limits the two requests for a decision.
	reviewTimeout = 10 * time.Second
	// maxTokenBytes limits a token: those of service accounts have about 1 kB.
	maxTokenBytes = 16 << 10
)

// Options returns the options of the server of metrics on an address. If it is secure, it serves TLS with a certificate
// that it makes itself, to clients that may get the path.
func Options(address string, secure bool) metricsserver.Options {
	options := metricsserver.Options{BindAddress: address, SecureServing: secure}
	if secure {
		options.FilterProvider = provide
	}
	return options
}

func provide(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	clients, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making a client for reviews: %w", err)
	}
	return newFilter(reviewer{clients}.review, time.Now).wrap, nil //nolint:forbidigo // decisions expire
}

// review returns the status for a request with a token to a path: 200, 401 or 403.
type review func(ctx context.Context, token, path string) (int, error)

// reviewer asks the API server.
type reviewer struct{ clients kubernetes.Interface }

func (r reviewer) review(ctx context.Context, token, path string) (int, error) {
	who, err := r.clients.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return 0, fmt.Errorf("reviewing a token: %w", err)
	case !who.Status.Authenticated:
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	may, err := r.clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return 0, fmt.Errorf("reviewing the access of %s: %w", user.Username, err)
	case !may.Status.Allowed:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// filter passes the requests of clients that may get the path.
type filter struct {
	review review
	now    func() time.Time
	// slots limits the reviews at the same time, and reserved those of clients that were accepted lately and find no other slot.
	slots, reserved chan struct{}

	mu sync.Mutex
	// accepted and refused are apart, so that invalid tokens, of which a client can make any number, displace no accepted one.
	accepted, refused decisions
}

type decision struct {
	status int
	at     time.Time
}

type decisions map[[sha256.Size]byte]decision

// remember stores a decision. If there are too many, it forgets the others: they are only for a while.
func (all decisions) remember(key [sha256.Size]byte, d decision) {
	if _, known := all[key]; !known && len(all) >= maxRemembered {
		clear(all)
	}
	all[key] = d
}

func newFilter(review review, now func() time.Time) *filter {
	return &filter{review: review, now: now, slots: make(chan struct{}, maxReviews), reserved: make(chan struct{}, 1), accepted: decisions{}, refused: decisions{}}
}

func (f *filter) wrap(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := f.decide(r)
		switch {
		case err != nil:
			log.Error(err, "a request for metrics cannot be checked")
			http.Error(w, "the access cannot be checked", http.StatusInternalServerError)
		case status != http.StatusOK:
			http.Error(w, http.StatusText(status), status)
		default:
			next.ServeHTTP(w, r)
		}
	}), nil
}

// decide returns the status for a request.
func (f *filter) decide(r *http.Request) (int, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !ok, token == "", len(token) > maxTokenBytes:
		return http.StatusUnauthorized, nil
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, nil
	}
	key := sha256.Sum256([]byte(token + "\x00" + r.URL.Path))
	status, isKnown := f.recall(key)
	if status != 0 {
		return status, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	var reserved chan struct{} // nil: no other slot
	if isKnown {
		reserved = f.reserved
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case reserved <- struct{}{}:
		defer func() { <-f.reserved }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	status, err := f.review(ctx, token, r.URL.Path)
	if err == nil {
		f.remember(key, status)
	}
	return status, err
}

// recall returns a decision that is valid now, or 0, and whether the client was accepted lately.
func (f *filter) recall(key [sha256.Size]byte) (status int, isKnown bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, accepted := f.accepted[key]
	if !accepted {
		d = f.refused[key]
	}
	age := f.now().Sub(d.at)
	if age < remembered {
		status = d.status
	}
	return status, accepted && age < knownFor
}

func (f *filter) remember(key [sha256.Size]byte, status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := decision{status, f.now()}
	if status == http.StatusOK {
		f.accepted.remember(key, d)
		delete(f.refused, key)
		return
	}
	delete(f.accepted, key)
	f.refused.remember(key, d)
}
