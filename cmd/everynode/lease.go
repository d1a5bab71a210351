// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ownLease is a lease whose loss is detected as early as possible. If another process has acquired the lease, for
// example while this process was frozen for longer than the lease lasts, client-go's LeaderElector continues to lead
// for the whole renewDeadline. If it is told to end meanwhile, it releases the lease of the other process, based on
// outdated data. In both cases two processes would lead at once.
type ownLease struct {
	resourcelock.Interface
	// lost is called when another process has the lease that was ours. It must not return.
	lost func(holder string)
	held bool
}

func (l *ownLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	if err == nil && l.held && r.HolderIdentity != "" && r.HolderIdentity != l.Identity() {
		l.lost(r.HolderIdentity)
	}
	return r, raw, err
}

func (l *ownLease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, r)
	l.held = l.held || err == nil
	return err
}

func (l *ownLease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, r)
	if err == nil {
		l.held = r.HolderIdentity == l.Identity()
	}
	return err
}
