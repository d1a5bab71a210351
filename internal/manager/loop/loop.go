// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// Soon is when to check for concurrent changes.
	Soon = 100 * time.Millisecond

	// passTimeout ends a pass whose requests get no response. The longest pass that makes progress takes seconds.
	passTimeout = 2 * time.Minute

	// A failed pass is retried after these waits. The default limit of a quarter of an hour is too long for something
	// that blocks nodes.
	firstErrorWait   = 20 * time.Millisecond
	longestErrorWait = 30 * time.Second
)

// Options returns the options of a controller that reconciles up to parallel objects concurrently.
func Options(parallel int) controller.Options {
	return controller.Options{MaxConcurrentReconciles: parallel, ReconciliationTimeout: passTimeout, RateLimiter: ErrorWaits()}
}

// ErrorWaits returns how long a failed pass waits before it is retried.
func ErrorWaits() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstErrorWait, longestErrorWait)
}
