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

// How often a list or a watch is asked for that the API server does not serve just now: at first after firstPause, at
// last each mostPause, half as long again at random, and for insistFor. Then it is client-go's turn.
const (
	firstPause = 500 * time.Millisecond
	mostPause  = 2 * time.Second
	insistFor  = time.Minute
)

// NewInformer is for caches, in the place of client-go's own, which waits for 30 to 60 seconds after some failures in a
// row. An API server that is away for a while, and then does not know yet who may do what, is enough for that: it is
// back, and nodes that join stay closed since nobody has seen them.
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

// insist asks until it is served, or refused for good, or insistFor is over.
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

// passes is true for what an API server answers, or does not, that is away or has just begun.
func passes(err error) bool {
	if err == nil {
		return false
	}
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}
