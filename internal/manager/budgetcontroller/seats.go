// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budgetcontroller

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

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

// seatEnded notes how a seat has ended. known is false if the watch may have missed its last state.
func (r *Reconciler) seatEnded(pod *corev1.Pod, known bool) {
	if !r.Place.IsSeat(pod) {
		return
	}
	seat := budget.ViewSeat(pod)
	r.seatsMu.Lock()
	defer r.seatsMu.Unlock()
	r.ungranted.Ended(&seat, known)
	delete(r.fixed, pod.UID)
}

// seatDeleted notes that a seat was deleted, unless it was evicted, has failed, or did not count yet. While a budget of its node is closed,
// the manager deletes no other seats.
func (r *Reconciler) seatDeleted(pod *corev1.Pod) {
	seat := budget.ViewSeat(pod)
	if !r.Place.IsSeat(pod) || seat.Evicted || seat.Ended || seat.Group == budget.PendingGroup {
		return
	}
	r.seatsMu.Lock()
	defer r.seatsMu.Unlock()
	r.deleted[seat.Node] = true
}

func (r *Reconciler) observeDeleted() map[types.UID]bool {
	r.seatsMu.Lock()
	defer r.seatsMu.Unlock()
	return maps.Clone(r.deleted)
}

func (r *Reconciler) observeFixed() map[types.UID]bool {
	r.seatsMu.Lock()
	defer r.seatsMu.Unlock()
	return maps.Clone(r.fixed)
}

// rememberFixed notes that the API server does not let the manager change the tolerations of a seat, such as because of an admission webhook. It
// is not tried again, and prevents nothing else.
func (r *Reconciler) rememberFixed(ctx context.Context, pod *corev1.Pod, err error) {
	ctrl.LoggerFrom(ctx).Error(err, "adding tolerations to a seat", "seat", pod.Name, "node", pod.Spec.NodeName)
	r.seatsMu.Lock()
	defer r.seatsMu.Unlock()
	r.fixed[pod.UID] = true
}

// seatJoins notes that a seat is about to join its group.
func (r *Reconciler) seatJoins(node types.UID) {
	r.seatsMu.Lock()
	defer r.seatsMu.Unlock()
	r.ungranted.Joined(node)
}

// observeAbsences returns the nodes whose absence was not granted, and forgets those that do not exist any more.
func (r *Reconciler) observeAbsences(in *budget.Input) budget.Ungranted {
	r.seatsMu.Lock()
	defer r.seatsMu.Unlock()
	r.ungranted.Held(in.Holds)
	if len(r.ungranted) > 0 {
		exist := make(map[types.UID]bool, len(in.Nodes))
		for i := range in.Nodes {
			exist[in.Nodes[i].UID] = true
		}
		maps.DeleteFunc(r.ungranted, func(node types.UID, _ bool) bool { return !exist[node] })
	}
	return maps.Clone(r.ungranted)
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
