// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/seal"
)

// reports remembers the last written version of each NodeGuard until the cache shows it, when it was written, and which
// status counts.
type reports struct {
	loop.Pace
	mu       sync.Mutex
	newest   loop.WrittenObjects[*v1alpha1.NodeGuard]
	statuses guard.Statuses
	uids     map[client.ObjectKey]types.UID
}

func newReports() *reports {
	return &reports{newest: loop.WrittenObjects[*v1alpha1.NodeGuard]{}, uids: map[client.ObjectKey]types.UID{}}
}

// of returns the newest known version of a cached NodeGuard.
func (r *reports) of(cached *v1alpha1.NodeGuard) *v1alpha1.NodeGuard {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest.Of(cached)
}

// open replaces the status of a NodeGuard by the one that counts.
func (r *reports) open(key seal.Key, g *v1alpha1.NodeGuard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := client.ObjectKeyFromObject(g)
	if before := r.uids[name]; before != g.UID {
		r.statuses.Forget(before)
		r.uids[name] = g.UID
	}
	r.statuses.Key = key
	r.statuses.Open(g)
}

// seal marks a status that is about to be written.
func (r *reports) seal(key seal.Key, g *v1alpha1.NodeGuard, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses.Key = key
	r.statuses.Seal(g, now)
}

func (r *reports) wrote(g *v1alpha1.NodeGuard, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest.Remember(g)
	r.Wrote(client.ObjectKeyFromObject(g), now)
}

func (r *reports) forget(name client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.newest, name)
	r.statuses.Forget(r.uids[name])
	delete(r.uids, name)
	r.Forget(name)
}

// writeStatus writes the whole status under the resource version that the plan is based on, and reports the changes.
func (r *Reconciler) writeStatus(ctx context.Context, seen *observation, p *guard.Plan) error {
	before := seen.guard.Status
	changed := seen.guard.DeepCopy()
	changed.Status = p.Status
	changed.Status.ControllerState.Authorization = seen.authorization
	if err := r.storeStatus(ctx, changed); err != nil {
		return err
	}
	seen.guard = changed
	r.Notifier.OfferNodeGuard(changed)
	r.announce(ctx, seen, &before, p)
	return nil
}

// storeStatus seals and writes the status of a NodeGuard, and remembers it.
func (r *Reconciler) storeStatus(ctx context.Context, changed *v1alpha1.NodeGuard) error {
	r.reports.seal(r.Key, changed, r.Now())
	if err := r.Metrics.writes.Do("update", "nodeguards/status", func() error { return r.Client.Status().Update(ctx, changed) }); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.reports.open(r.Key, changed)
	r.reports.wrote(changed, r.Now())
	return nil
}

// report writes the status if it changed, and returns when to check again; zero means only after an event.
func (r *Reconciler) report(ctx context.Context, seen *observation, p *guard.Plan) (time.Duration, error) {
	name, now := client.ObjectKeyFromObject(seen.guard), r.Now()
	next := loop.Until(p.WakeAt, now)
	p.Status.ControllerState.Authorization = seen.authorization
	if seen.idle {
		r.targets.forget(name)
		r.Metrics.forget(name)
		if !r.Metrics.notServed.Add(name) {
			return next, nil
		}
	} else {
		r.Metrics.notServed.Remove(name)
		r.Metrics.status(name, p)
		r.Notifier.OfferNodeGuard(seen.guard)
		next = r.Notifier.NodeGuard(seen.guard, &p.Status, next)
	}
	if seen.guard.Status.ControllerState.Seal != "" && equality.Semantic.DeepEqual(seen.guard.Status, p.Status) {
		return next, nil
	}
	if wait := r.reports.Wait(name, now); wait > 0 {
		return loop.Soonest(next, wait), nil
	}
	return next, client.IgnoreNotFound(r.writeStatus(ctx, seen, p))
}
