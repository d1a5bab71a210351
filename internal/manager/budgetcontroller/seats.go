// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budgetcontroller

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/nodebudget/budget"
)

// Seated returns the nodes that have a seat which a drain must evict, by UID: from the API server if live, or else from the cache.
func (r *Reconciler) Seated(ctx context.Context, live bool) (map[types.UID]bool, error) {
	from, in := r.Own, budget.Input{}
	if live {
		from = r.Reader
	}
	if err := r.observeSeats(ctx, &in, from); err != nil {
		return nil, err
	}
	return budget.Seated(in.Seats), nil
}

// OnSeated sets what is called when the nodes that have a seat change.
func (r *Reconciler) OnSeated(f func(context.Context)) { r.onSeated = f }

func (r *Reconciler) tellSeated(ctx context.Context, seats []budget.Seat) {
	before := r.seated
	r.seated = budget.Seated(seats)
	if r.onSeated != nil && !maps.Equal(before, r.seated) {
		r.onSeated(ctx)
	}
}
