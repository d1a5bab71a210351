// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// How often a list or a watch is retried that the API server does not serve at the moment: first after firstPause,
// later every mostPause, plus up to half as much at random, and for at most insistFor. After that, client-go takes
// over.
const (
	firstPause = 500 * time.Millisecond
	mostPause  = 2 * time.Second
	insistFor  = time.Minute
)

// NewInformer replaces the informer of client-go in caches. That one waits for 30 to 60 seconds after some failures in
// a row. An API server that does not respond for a while, and whose authorizer is not ready after that, is enough for
// that: the API server is available again, but the gates of joining nodes stay closed because the manager does not see
// the nodes.
func NewInformer(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if l, ok := lw.(*toolscache.ListWatch); ok && l.ListWithContextFunc != nil && l.WatchFuncWithContext != nil {
		list, watches := l.ListWithContextFunc, l.WatchFuncWithContext
		l.ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return insist(ctx, func() (runtime.Object, error) { return list(ctx, options) })
		}
		l.WatchFuncWithContext = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return insist(ctx, func() (watch.Interface, error) { return watches(ctx, options) })
		}
	}
	return toolscache.NewSharedIndexInformer(lw, o, resync, indexers)
}

// insist retries until a request is served or finally rejected, or insistFor has passed.
func insist[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	began, pause := time.Now(), firstPause //nolint:forbidigo // it waits, and decides nothing
	for {
		answer, err := ask()
		if !passes(err) || time.Since(began) >= insistFor { //nolint:forbidigo // see above
			return answer, err
		}
		if pause == firstPause {
			logf.FromContext(ctx).Info("the API server does not serve a watch; it is asked again", "err", err.Error())
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(wait.Jitter(pause, 0.5)): //nolint:forbidigo // see above
		}
		pause = min(2*pause, mostPause)
	}
}

// passes reports whether an error is temporary: the API server does not respond or has just started. Until it has read
// the objects of a kind from etcd, it replies to their watches with code 429.
func passes(err error) bool {
	if err == nil {
		return false
	}
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err)
}
