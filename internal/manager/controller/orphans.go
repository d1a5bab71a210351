// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/observe"
)

// orphanCollector removes what deleted NodeJobs have left on nodes. It rarely has anything to do: a NodeJob that is
// deleted cleans up its own nodes. But a node that is created at the same moment may still be tainted for it.
type orphanCollector struct{ writer }

func (r *Reconciler) setupOrphanCollector(ctx context.Context, mgr ctrl.Manager) error {
	s := orphanCollector{r.writer}
	return ctrl.NewControllerManagedBy(mgr).
		Named("strays").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: loop.ErrorWaits()}).
		For(&corev1.Node{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return s.mayHaveOrphans(ctx, e.Object.(*corev1.Node)) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				// A node without changes was checked before.
				was, is := observe.Node(e.ObjectOld.(*corev1.Node)), observe.Node(e.ObjectNew.(*corev1.Node))
				return plan.CompareNodes(&was, &is).IsGeneral() && s.mayHaveOrphans(ctx, e.ObjectNew.(*corev1.Node))
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&v1alpha1.NodeJob{}, handler.EnqueueRequestsFromMapFunc(s.jobChanged), builder.WithPredicates(claimsChanged)).
		Complete(s)
}

// claimsChanged passes the changes of a NodeJob that may leave orphaned taints or cordons on nodes. The creation of a
// NodeJob cannot.
var claimsChanged = predicate.And[client.Object](predicate.GenerationChangedPredicate{},
	predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }})

// mayHaveOrphans reports whether the node has an orphaned taint or cordon according to the cache.
func (s orphanCollector) mayHaveOrphans(ctx context.Context, node *corev1.Node) bool {
	if !mayBeOurs(node) {
		return false
	}
	var jobs v1alpha1.NodeJobList
	if err := s.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	return orphaned(node, pointers(jobs.Items)) != nil
}

// mayBeOurs reports whether the node has anything that could be orphaned. Nearly all nodes have nothing.
func mayBeOurs(node *corev1.Node) bool {
	return node.Annotations[v1alpha1.CordonedAnnotation] != "" ||
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Value == v1alpha1.GateValue })
}

func orphaned(node *corev1.Node, jobs []*v1alpha1.NodeJob) *record.Change {
	view := observe.Node(node)
	return plan.Orphaned(&view, jobs)
}

// jobChanged enqueues all nodes, because something on them may have belonged to the NodeJob.
func (s orphanCollector) jobChanged(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	var jobs v1alpha1.NodeJobList
	if err := errors.Join(s.Client.List(ctx, &nodes), s.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy)); err != nil {
		return nil // only a cache that is not started returns an error
	}
	claims := pointers(jobs.Items)
	var requests []reconcile.Request
	for i := range nodes.Items {
		if node := &nodes.Items[i]; mayBeOurs(node) && orphaned(node, claims) != nil {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: nodes.Items[i].Name}})
		}
	}
	return requests
}

// Reconcile asks the API server. The cache may not show a NodeJob yet for which the API server has already tainted a
// node.
func (s orphanCollector) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var node corev1.Node
	if err := s.Reader.Get(ctx, req.NamespacedName, &node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var jobs v1alpha1.NodeJobList
	if err := s.Reader.List(ctx, &jobs); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing NodeJobs: %w", err)
	}
	view := observe.Node(&node)
	change := plan.Orphaned(&view, pointers(jobs.Items))
	if change == nil {
		return ctrl.Result{}, nil
	}
	err := s.changeNode(ctx, []plan.Node{view}, node.Name, *change)
	switch {
	case errors.Is(err, errRaced):
		return ctrl.Result{RequeueAfter: loop.Soon}, nil
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("removing orphaned taints and cordons from node %s: %w", node.Name, err)
	}
	logf.FromContext(ctx).Info("removed orphaned taints or an orphaned cordon from a node", "taints", change.Taints != nil, "cordon", change.Cordon != nil)
	return ctrl.Result{}, nil
}

func pointers[T any](items []T) []*T {
	all := make([]*T, 0, len(items))
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}
