// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestAnInformerInsists(t *testing.T) {
	unreachable := errors.New("dial tcp 10.0.0.1:6443: connect: connection refused")
	forbidden := apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("not yet"))
	initializing := apierrors.NewTooManyRequests("storage is (re)initializing", 1)
	expired := apierrors.NewResourceExpired("too old")
	tests := map[string]struct {
		errs []error
		// wantAsked is the number of requests, wantErr the returned error, and atLeast and atMost bound the time.
		wantAsked       int
		wantErr         error
		atLeast, atMost time.Duration
	}{
		"the kind is served": {nil, 1, nil, 0, 0},
		"the API server does not respond at first": {
			[]error{unreachable, unreachable},
			3,
			nil,
			1500 * time.Millisecond,
			2250 * time.Millisecond,
		},
		"permissions are not in effect yet": {
			[]error{unreachable, forbidden, forbidden},
			4,
			nil,
			3500 * time.Millisecond,
			5250 * time.Millisecond,
		},
		"the objects of the kind are not read yet": {
			[]error{initializing, initializing},
			3,
			nil,
			1500 * time.Millisecond,
			2250 * time.Millisecond,
		},
		"the resource version is too old": {[]error{expired}, 1, expired, 0, 0},
		"an outage, then the resource version is too old": {
			[]error{unreachable, expired},
			2,
			expired,
			500 * time.Millisecond,
			750 * time.Millisecond,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, began := 0, time.Now()
				_, err := insist(t.Context(), func() (watch.Interface, error) {
					if asked++; asked <= len(tt.errs) {
						return nil, tt.errs[asked-1]
					}
					return watch.NewFake(), nil
				})
				if took := time.Since(
					began,
				); asked != tt.wantAsked || !errors.Is(err, tt.wantErr) || took < tt.atLeast ||
					took > tt.atMost {
					t.Errorf("asked %d times, and after %s returned %v", asked, took, err)
				}
			})
		})
	}
}

func TestAnInformerDoesNotInsistForever(t *testing.T) {
	unreachable := errors.New("no route to host")
	synctest.Test(t, func(t *testing.T) {
		asked, began := 0, time.Now()
		_, err := insist(t.Context(), func() (bool, error) { asked++; return false, unreachable })
		if took := time.Since(
			began,
		); !errors.Is(err, unreachable) || took < insistFor || took > insistFor+2*mostPause || asked < 20 ||
			asked > 32 {
			t.Errorf("asked %d times, and after %s returned %v", asked, took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := insist(
			ctx,
			func() (bool, error) { return false, unreachable },
		); !errors.Is(err, unreachable) ||
			time.Since(began) != time.Second {
			t.Errorf("after %s it returned %v", time.Since(began), err)
		}
	})
}

// TestAnInformerIsBackSoon has an API server that does not respond to six tries, after which client-go's informer would
// wait for 50 s.
func TestAnInformerIsBackSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 6
		away := func() error {
			if failures--; failures >= 0 {
				return errors.New("connection refused")
			}
			return nil
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}}
		informer := NewInformer(&toolscache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Node{*node}}, away()
			},
			WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
				if options.SendInitialEvents != nil {
					return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "", nil) // no streamed lists
				}
				return watch.NewFake(), nil
			},
		}, &corev1.Node{}, 0, toolscache.Indexers{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		go informer.RunWithContext(ctx)
		if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatal("it is not in sync")
		}
		if took := time.Since(began); took < 9*time.Second || took > 15*time.Second {
			t.Errorf("it was in sync after %s", took)
		}
		cancel()
		synctest.Wait()
	})
}
