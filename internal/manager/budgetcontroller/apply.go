// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budgetcontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodebudget/budget"
)

const (
	// maxParallelWrites limits the concurrent writes of one pass.
	maxParallelWrites = 16

	// applyTimeout limits the time from what a pass has read to its last write. No other manager leads before the lease, of 30 s,
	// expires.
	applyTimeout = 10 * time.Second
)

// apply executes the actions of the plan in parallel, and reports whether to look again soon. A conflict, or a name that is not free
// yet, means that the view was old.
func (r *Reconciler) apply(ctx context.Context, seen *observation, actions []budget.Action) (again bool, err error) {
	if len(actions) == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	errs := make([]error, len(actions))
	var group errgroup.Group
	group.SetLimit(maxParallelWrites)
	for i, action := range actions {
		group.Go(func() error {
			errs[i] = r.do(ctx, seen, action)
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
	var made []error
	for i := range actions {
		switch {
		case apierrors.IsConflict(errs[i]), apierrors.IsAlreadyExists(errs[i]), errors.Is(errs[i], errNotAvailable):
			errs[i] = nil
		case creates(actions[i]):
			made = append(made, errs[i])
			errs[i] = nil
		}
	}
	_, refusal := r.refusals.Judge(r.refusedFor(), made, r.Now())
	return true, errors.Join(append(errs, refusal)...)
}

func creates(a budget.Action) bool {
	switch a.(type) {
	case budget.CreateFloor, budget.CreateSeat, budget.CreatePlaceholder:
		return true
	default:
		return false
	}
}

func (r *Reconciler) do(ctx context.Context, seen *observation, action budget.Action) error {
	switch a := action.(type) {
	case budget.CreateFloor:
		return r.create(ctx, "poddisruptionbudgets", r.Place.NewFloor(a.State))
	case budget.SetFloor:
		return r.setFloor(ctx, seen, a)
	case budget.DeleteFloor:
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: r.Place.Namespace, Name: budget.FloorName(a.Floor.Group)}}
		return r.delete(ctx, "poddisruptionbudgets", b, a.Floor.UID)
	case budget.CreateSeat:
		return r.createSeat(ctx, a)
	case budget.MoveSeat:
		return r.moveSeat(ctx, a)
	case budget.TolerateTaints:
		return r.tolerate(ctx, a)
	case budget.DeleteSeat:
		return r.deleteSeat(ctx, a)
	case budget.CreatePlaceholder:
		return r.create(ctx, "pods", r.Place.Placeholder(a.Number))
	case budget.DeletePlaceholder:
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Place.Namespace, Name: a.Placeholder.Name}}
		return r.delete(ctx, "pods", pod, a.Placeholder.UID)
	default:
		return fmt.Errorf("applying the plan: unknown action %T", a)
	}
}

func (r *Reconciler) create(ctx context.Context, resource string, o client.Object) error {
	err := r.Metrics.writes.Do("create", resource, func() error { return r.Client.Create(ctx, o) })
	if refused := loop.AsRefusal(err); refused != nil {
		return refused
	}
	return err
}

// setFloor changes a PodDisruptionBudget under its resource version, because a manager with a different view may have changed it.
func (r *Reconciler) setFloor(ctx context.Context, seen *observation, a budget.SetFloor) error {
	live := seen.floors[budget.FloorName(a.Floor.Group)]
	if live == nil {
		return nil
	}
	changed := live.DeepCopy()
	budget.WriteFloor(changed, a.State)
	err := r.Metrics.writes.Do("update", "poddisruptionbudgets", func() error { return r.Client.Update(ctx, changed) })
	return client.IgnoreNotFound(err)
}

// errNotAvailable means that a node has become unavailable since it was observed.
var errNotAvailable = errors.New("the node is not available any more")

// createSeat creates the seat of a node that still is available.
func (r *Reconciler) createSeat(ctx context.Context, a budget.CreateSeat) error {
	return r.ifAvailable(ctx, a.Node, a.NodeUID, func() error { return r.create(ctx, "pods", r.Place.Seat(a)) })
}

// ifAvailable does something that makes a node count as available, if it is, and no NodeJob claims it: the cache of nodes may be
// behind that of pods.
func (r *Reconciler) ifAvailable(ctx context.Context, name string, uid types.UID, do func() error) error {
	return r.Claims.Return(uid, func() error {
		var node corev1.Node
		if err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return client.IgnoreNotFound(err)
		}
		view := kube.ViewNode(&node)
		if by, _ := kube.ReleaseRequest(&view, r.Now()); by != "" || view.UID != uid || !view.Ready {
			return errNotAvailable
		}
		return do()
	})
}

// isStillBroken reports whether a seat may be deleted because its node is broken: the cache may be older than the recovery of the node.
func (r *Reconciler) isStillBroken(ctx context.Context, a budget.DeleteSeat) (bool, error) {
	if a.Broken == "" {
		return true, nil
	}
	var node corev1.Node
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: a.Broken}, &node); err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	view := budget.ViewNode(&node)
	return view.UID != a.Seat.Node || !view.Ready && (!a.AtOnce || budget.IsUnreachable(&view)), nil
}

func (r *Reconciler) deleteSeat(ctx context.Context, a budget.DeleteSeat) error {
	if broken, err := r.isStillBroken(ctx, a); err != nil || !broken {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Place.Namespace, Name: a.Seat.Name}}
	if a.AtOnce {
		return r.delete(ctx, "pods", pod, a.Seat.UID, client.GracePeriodSeconds(0))
	}
	return r.delete(ctx, "pods", pod, a.Seat.UID)
}

// tolerate adds tolerations to a seat, after those that it has: the API server accepts no other change of them.
func (r *Reconciler) tolerate(ctx context.Context, a budget.TolerateTaints) error {
	var live corev1.Pod
	if err := r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Place.Namespace, Name: a.Seat.Name}, &live); err != nil {
		return client.IgnoreNotFound(err)
	}
	if live.UID != a.Seat.UID || !live.DeletionTimestamp.IsZero() {
		return nil
	}
	changed := live.DeepCopy()
	changed.Spec.Tolerations = append(changed.Spec.Tolerations, a.Taints.Tolerations()...)
	patch := client.MergeFromWithOptions(&live, client.MergeFromWithOptimisticLock{})
	err := r.Metrics.writes.Do("patch", "pods", func() error { return r.Client.Patch(ctx, changed, patch) })
	if refused := loop.AsRefusal(err); refused != nil {
		r.rememberFixed(ctx, &live, refused)
		err = nil
	}
	return client.IgnoreNotFound(err)
}

// moveSeat changes the group of a seat. From budget.PendingGroup, that makes its node count as available.
func (r *Reconciler) moveSeat(ctx context.Context, a budget.MoveSeat) error {
	if a.Seat.Group != budget.PendingGroup {
		return r.label(ctx, a)
	}
	return r.ifAvailable(ctx, a.Node, a.Seat.Node, func() error {
		r.seatJoins(a.Seat.Node)
		return r.label(ctx, a)
	})
}

// label writes the group of a seat.
func (r *Reconciler) label(ctx context.Context, a budget.MoveSeat) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": a.Seat.UID, "labels": map[string]string{v1alpha1.BudgetGroupLabel: a.Group},
	}})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Place.Namespace, Name: a.Seat.Name}}
	err = r.Metrics.writes.Do("patch", "pods", func() error { return r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch)) })
	return client.IgnoreNotFound(err)
}

func (r *Reconciler) delete(ctx context.Context, resource string, o client.Object, uid types.UID, options ...client.DeleteOption) error {
	options = append(options, client.Preconditions{UID: &uid})
	err := r.Metrics.writes.Do("delete", resource, func() error { return r.Client.Delete(ctx, o, options...) })
	return client.IgnoreNotFound(err)
}
