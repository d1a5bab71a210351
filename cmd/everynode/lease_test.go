// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lockOf returns a lease that every client can write to.
type lockOf struct {
	resourcelock.Interface
	record resourcelock.LeaderElectionRecord
}

func (l *lockOf) Identity() string { return "us" }

func (l *lockOf) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r := l.record
	return &r, nil, nil
}

func (l *lockOf) Create(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.record = r
	return nil
}

func (l *lockOf) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.record = r
	return nil
}

func TestTheLossOfTheLeaseIsNoticedWhenItIsObserved(t *testing.T) {
	by := func(holder string) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: holder}
	}
	for name, tt := range map[string]struct {
		before   func(*ownLease) error
		holder   string
		wantLost bool
	}{
		"another holds a lease that was never ours": {holder: "other"},
		"another holds a lease that we created": {
			before: func(l *ownLease) error { return l.Create(t.Context(), by("us")) }, holder: "other", wantLost: true,
		},
		"another holds a lease that we acquired": {
			before: func(l *ownLease) error { return l.Update(t.Context(), by("us")) }, holder: "other", wantLost: true,
		},
		"another holds a lease that we released": {
			before: func(l *ownLease) error { return l.Update(t.Context(), by("")) }, holder: "other",
		},
		"we hold the lease":       {before: func(l *ownLease) error { return l.Update(t.Context(), by("us")) }, holder: "us"},
		"the lease has no holder": {before: func(l *ownLease) error { return l.Update(t.Context(), by("us")) }, holder: ""},
	} {
		t.Run(name, func(t *testing.T) {
			lock := &lockOf{}
			lost := false
			lease := &ownLease{Interface: lock, lost: func(string) { lost = true }}
			if tt.before != nil {
				if err := tt.before(lease); err != nil {
					t.Fatal(err)
				}
			}
			lock.record = by(tt.holder)
			if _, _, err := lease.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			if lost != tt.wantLost {
				t.Errorf("lost: %v, want %v", lost, tt.wantLost)
			}
		})
	}
}
