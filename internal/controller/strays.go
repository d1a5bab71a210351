package controller

import (
	"context"
	"errors"
	"fmt"

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
	"github.com/everynode/everynode/internal/plan"
)

// strays takes off nodes what NodeJobs have left there that are gone. It has next to nothing to do: a NodeJob
// that goes takes its own away. But a node that is created in the same moment may still be tainted for it.
type strays struct{ *Reconciler }

func (r *Reconciler) setupStrays(mgr ctrl.Manager) error {
	s := strays{r}
	return ctrl.NewControllerManagedBy(mgr).
		Named("strays").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		For(&corev1.Node{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return s.suspicious(context.Background(), e.Object.(*corev1.Node)) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				// What nobody has touched was looked at before.
				return compareNodes(e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)).toAll && s.suspicious(context.Background(), e.ObjectNew.(*corev1.Node))
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&v1alpha1.NodeJob{}, handler.EnqueueRequestsFromMapFunc(s.jobChanged), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(s)
}

// suspicious is true for a node with something on it that, as the cache shows it, is nobody's.
func (s strays) suspicious(ctx context.Context, node *corev1.Node) bool {
	var jobs v1alpha1.NodeJobList
	if err := s.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	view := viewNode(node)
	return plan.Stray(&view, pointers(jobs.Items)) != nil
}

// jobChanged looks at all nodes: the NodeJob may have been what something on them was for.
func (s strays) jobChanged(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := s.Client.List(ctx, &nodes); err != nil {
		return nil // only a cache that is not started answers with an error
	}
	var requests []reconcile.Request
	for i := range nodes.Items {
		if s.suspicious(ctx, &nodes.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: nodes.Items[i].Name}})
		}
	}
	return requests
}

// Reconcile asks the API server itself: the cache may not show a NodeJob yet for which the API server has
// tainted a node already.
func (s strays) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var node corev1.Node
	if err := s.Reader.Get(ctx, req.NamespacedName, &node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var jobs v1alpha1.NodeJobList
	if err := s.Reader.List(ctx, &jobs); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing NodeJobs: %w", err)
	}
	view := viewNode(&node)
	change := plan.Stray(&view, pointers(jobs.Items))
	if change == nil {
		return ctrl.Result{}, nil
	}
	err := s.changeNode(ctx, node.Name, *change)
	switch {
	case errors.Is(err, errRaced):
		return ctrl.Result{RequeueAfter: soon}, nil
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("taking what is nobody's off node %s: %w", node.Name, err)
	}
	logf.FromContext(ctx).Info("took off a node what is nobody's", "taints", change.Taints != nil, "cordon", change.Cordon != nil)
	return ctrl.Result{}, nil
}

func pointers(jobs []v1alpha1.NodeJob) []*v1alpha1.NodeJob {
	all := make([]*v1alpha1.NodeJob, 0, len(jobs))
	for i := range jobs {
		all = append(all, &jobs[i])
	}
	return all
}
