// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// lookEvery is how often a manager that was told to end checks whether it has cleaned up.
	lookEvery = 500 * time.Millisecond

	// leaveWithin is how long a manager continues after it was told to end while its installation is being deleted. Its
	// ServiceAccount is deleted too, and the API server accepts its token for 60 s after that, even while a finalizer
	// prevents the deletion (k8s.io/kubernetes pkg/serviceaccount/claims.go, jwt.DefaultLeeway).
	leaveWithin = 45 * time.Second

	// watchEvery is how often a running manager checks whether its RBAC objects are being deleted. If it observes this
	// twice, and the CRDs are not deleted, a user is replacing these objects, which must not wait for a finalizer.
	watchEvery = 30 * time.Second

	// crdsWithin is how long a manager that was told to end, and whose RBAC objects are being deleted, waits for the
	// deletion of its CRDs. Not every tool deletes them first.
	crdsWithin = 10 * time.Second
)

// Departure lets a manager finish the deletion of its own installation.
type Departure struct {
	// Client reads and writes without a cache.
	Client client.Client
	Log    *slog.Logger
	// Now and After are the clock.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// Leads is closed when this manager becomes the leader. Only the leader cleans up.
	Leads <-chan struct{}
	// Leave has the manager start nothing any more; nil for nothing to do.
	Leave func()
}

// Run protects the manager's RBAC objects while it leads, until ctx ends.
func (d *Departure) Run(ctx context.Context) error {
	if err := ProtectRights(ctx, d.Client); err != nil {
		d.Log.Warn("what gives the manager its rights is not protected from deletion", "error", err)
	}
	for seen := 0; ctx.Err() == nil; d.wait(ctx, watchEvery) {
		if stage, err := StageOf(ctx, d.Client); err != nil || stage != LosingRights {
			seen = 0
			continue
		}
		if seen++; seen < 2 {
			continue
		}
		d.Log.Warn("what gives the manager its rights is being deleted, and its CRDs are not")
		if err := UnprotectRights(ctx, d.Client, d.wait); err != nil {
			d.Log.Error("releasing what gives the manager its rights", "error", err)
		}
		seen = 0
	}
	return nil
}

// Linger returns false at once if the manager was told to end for any reason other than the deletion of its
// installation. Otherwise the manager continues, and Linger returns true when it has cleaned up, or its time has
// passed.
func (d *Departure) Linger(ctx context.Context) bool {
	select {
	case <-d.Leads:
	default:
		return false
	}
	began, last := d.Now(), Staying
	for ctx.Err() == nil {
		stage, err := StageOf(ctx, d.Client)
		if err != nil {
			d.Log.Warn("looking whether the installation is being deleted", "error", err)
			stage = last
		}
		if stage != last {
			d.Log.Info("the installation is being deleted: cleaning up before the end")
		}
		if last = stage; stage != Staying && d.Leave != nil {
			d.Leave()
		}
		took := d.Now().Sub(began)
		switch {
		case stage == Staying:
			return false
		case stage == CleanedUp, took >= leaveWithin, stage == LosingRights && took >= crdsWithin:
			return true
		}
		d.wait(ctx, lookEvery)
	}
	return last != Staying
}

// Finish cleans up the nodes, and releases the manager's RBAC objects. This is the last action of a manager.
func (d *Departure) Finish(ctx context.Context) {
	stage, err := StageOf(ctx, d.Client)
	switch {
	case err == nil && stage == CleanedUp:
		if _, err := CleanNodes(ctx, d.Client, Scope{}); err != nil {
			d.Log.Error("cleaning up nodes", "error", err)
		}
	case err != nil, stage == CleaningUp:
		d.Log.Error("not all NodeJobs and NodeGuards are cleaned up: run kubectl everynode uninstall", "error", err)
	}
	if err := UnprotectRights(ctx, d.Client, d.wait); err != nil {
		d.Log.Error("releasing what gives the manager its rights: run kubectl everynode uninstall", "error", err)
	}
}

func (d *Departure) wait(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-d.After(duration):
	}
}
