// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budgetcontroller

import (
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/nodebudget/budget"
)

// coalesce combines events into one pass, because a pass is linear in the number of nodes.
const coalesce = 50 * time.Millisecond

// all is the only request: all budgets are planned together.
var all = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

// Setup adds the controller of NodeDisruptionBudgets to a manager, with a separate cache for seats, and for the
// PodDisruptionBudgets of their namespace.
func Setup(mgr ctrl.Manager, metrics *Metrics, registry *claims.Registry, place budget.Place) (*Reconciler, error) {
	seats := cache.ByObject{Namespaces: map[string]cache.Config{place.Namespace: {LabelSelector: loop.WithLabel(v1alpha1.BudgetGroupLabel)}}}
	here := cache.ByObject{Namespaces: map[string]cache.Config{place.Namespace: {}}}
	own, err := loop.OwnCache(mgr, map[client.Object]cache.ByObject{&corev1.Pod{}: seats, &policyv1.PodDisruptionBudget{}: here})
	if err != nil {
		return nil, err
	}
	r := &Reconciler{
		Client: mgr.GetClient(), Own: own, Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("everynode"),
		Metrics: metrics, Claims: registry, Place: place,
		Now:       time.Now, //nolint:forbidigo // the one clock of the controller
		ungranted: budget.Ungranted{},
		deleted:   map[types.UID]bool{},
		fixed:     map[types.UID]bool{},
		newest:    loop.WrittenObjects[*v1alpha1.NodeDisruptionBudget]{},
		refusals:  loop.NewRefusals(loop.Words{Kind: "NodeDisruptionBudget", Made: "a seat or its PodDisruptionBudget", Field: "the seats"}),
	}
	return r, r.watch(mgr, own)
}

func (r *Reconciler) watch(mgr ctrl.Manager, own cache.Cache) error {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { q.AddAfter(all, coalesce) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q queue) { q.AddAfter(all, coalesce) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { q.AddAfter(all, coalesce) },
	}
	seats := enqueue
	seats.UpdateFunc = func(_ context.Context, e event.UpdateEvent, q queue) {
		// A cache shows an object before its handlers run, so what matters is noted while the seat terminates.
		if pod := e.ObjectNew.(*corev1.Pod); pod.DeletionTimestamp != nil {
			r.seatEnded(pod, true)
			if e.ObjectOld.GetDeletionTimestamp() == nil {
				r.seatDeleted(pod)
			}
		}
		q.AddAfter(all, coalesce)
	}
	seats.DeleteFunc = func(_ context.Context, e event.DeleteEvent, q queue) {
		pod := e.Object.(*corev1.Pod)
		r.seatEnded(pod, !e.DeleteStateUnknown)
		if pod.DeletionTimestamp == nil && !e.DeleteStateUnknown {
			r.seatDeleted(pod) // without a grace period
		}
		q.AddAfter(all, coalesce)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodedisruptionbudget").
		WithOptions(loop.Options(1)).
		Watches(&v1alpha1.NodeDisruptionBudget{}, enqueue, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, enqueue, builder.WithPredicates(nodeChanges)).
		WatchesRawSource(source.Kind[client.Object](own, &corev1.Pod{}, seats, podChanges)).
		WatchesRawSource(source.Kind[client.Object](own, &policyv1.PodDisruptionBudget{}, enqueue)).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.Claims.OnReport(func() { q.AddAfter(all, coalesce) })
			r.Notifier.OnHandled(notify.KindNodeDisruptionBudget, func(context.Context, types.NamespacedName) { q.AddAfter(all, coalesce) })
			q.Add(all) // NodeJobs wait for the first plan, also without budgets
			return nil
		})).
		Complete(r)
}

// nodeChanges passes changes of what the plan reads of a node, but no heartbeats.
var nodeChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := budget.ViewNode(e.ObjectOld.(*corev1.Node)), budget.ViewNode(e.ObjectNew.(*corev1.Node))
	before.ResourceVersion = after.ResourceVersion
	return !reflect.DeepEqual(before, after)
}}

var podChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	return budget.ViewSeat(before) != budget.ViewSeat(after) || before.Annotations[v1alpha1.SealAnnotation] != after.Annotations[v1alpha1.SealAnnotation]
}}
