// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/nodejob/task"
)

const (
	// coalesce combines events into one pass, because a pass is linear in the number of nodes.
	coalesce = 50 * time.Millisecond

	parallelNodeGuards = 4
)

// Setup adds the controller of NodeGuards to a manager, with a separate cache for the objects that they create.
func Setup(mgr ctrl.Manager, metrics *Metrics, opts task.Options) (*Reconciler, error) {
	own, err := loop.OwnCache(mgr, map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: loop.WithLabel(v1alpha1.NodeGuardLabel)}})
	if err != nil {
		return nil, err
	}
	r := &Reconciler{
		Client: mgr.GetClient(), Own: own, Reader: mgr.GetAPIReader(), Options: opts,
		announcer: announcer{Recorder: mgr.GetEventRecorder("everynode"), Metrics: metrics},
		Now:       time.Now, //nolint:forbidigo // the one clock of the controller
		memory:    newMemory(),
	}
	r.targets = newTargets(mgr.GetConfig(), mgr.GetScheme(), &r.wake)
	if err := mgr.Add(r.targets); err != nil {
		return nil, err
	}
	return r, r.watch(mgr, own)
}

func (r *Reconciler) watch(mgr ctrl.Manager, own cache.Cache) error {
	guards := cachedGuards{r.Client}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodeguard").
		WithOptions(loop.Options(parallelNodeGuards)).
		For(&v1alpha1.NodeGuard{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, retryChanged, r.overwritten()))).
		Watches(&v1alpha1.NodeGuard{}, handler.EnqueueRequestsFromMapFunc(guards.others), builder.WithPredicates(goingChanged)).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(guards.inNamespace), builder.WithPredicates(loop.AllowedChanged)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(guards.all), builder.WithPredicates(nodeChanges)).
		WatchesRawSource(source.Kind[client.Object](own, &corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(named), podChanges)).
		WatchesRawSource(source.Kind[client.Object](own, &policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(guards.ofBudget), specChanges)).
		WatchesRawSource(source.Kind[client.Object](own, &appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(guards.ofDaemonSet), predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(r.wake.begin)).
		Complete(r)
}

// Notify sets where NodeGuards are reported.
func (r *Reconciler) Notify(n *notify.Notifier) {
	r.Notifier = n
	n.OnHandled(notify.KindNodeGuard, func(_ context.Context, name client.ObjectKey) { r.wake.guard(name) })
}

// Seats are the seats of NodeDisruptionBudgets.
type Seats interface {
	// Seated returns the nodes that have a seat which a drain must evict, by UID: from the API server if live, or else from a cache.
	Seated(ctx context.Context, live bool) (map[types.UID]bool, error)
	// OnSeated sets what is called when they change.
	OnSeated(func(context.Context))
}

// Follow has NodeDisruptionBudgets decide on a node before NodeGuards do.
func (r *Reconciler) Follow(s Seats) {
	r.Seats = s
	s.OnSeated(r.wakeAll)
}

// waker enqueues NodeGuards for changes that no watch of the manager reports.
type waker struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (w *waker) begin(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
	return nil
}

func (w *waker) guard(name client.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.queue.AddAfter(reconcile.Request{NamespacedName: name}, coalesce)
	}
}

// named returns the NodeGuard that a pod or a budget names in its label.
func named(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[v1alpha1.NodeGuardLabel]}}}
}

// cachedGuards finds the NodeGuards that an event affects.
type cachedGuards struct{ client.Reader }

func (c cachedGuards) those(ctx context.Context, want func(*v1alpha1.NodeGuard) bool) []reconcile.Request {
	var list v1alpha1.NodeGuardList
	if err := c.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only a cache that is not started returns an error
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if want(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

func (c cachedGuards) inNamespace(ctx context.Context, namespace client.Object) []reconcile.Request {
	return c.those(ctx, func(g *v1alpha1.NodeGuard) bool { return g.Namespace == namespace.GetName() })
}

func (c cachedGuards) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return c.those(ctx, func(*v1alpha1.NodeGuard) bool { return true })
}

func (c cachedGuards) others(ctx context.Context, o client.Object) []reconcile.Request {
	return c.those(ctx, func(g *v1alpha1.NodeGuard) bool { return g.UID != o.GetUID() })
}

func (c cachedGuards) ofBudget(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetLabels()[v1alpha1.NodeGuardLabel] != "" {
		return named(ctx, o)
	}
	return c.those(ctx, func(g *v1alpha1.NodeGuard) bool { return g.Namespace == o.GetNamespace() })
}

func (c cachedGuards) ofDaemonSet(ctx context.Context, o client.Object) []reconcile.Request {
	return c.those(ctx, func(g *v1alpha1.NodeGuard) bool {
		return g.Namespace == o.GetNamespace() && g.Spec.Target.DaemonSet == o.GetName()
	})
}

func (r *Reconciler) namespaces() loop.Namespaces {
	return loop.Namespaces{Required: r.RequireNamespaceLabel, Cache: r.Client, Reader: r.Reader}
}

// goingChanged passes the changes of a NodeGuard that matter to others.
var goingChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !equality.Semantic.DeepEqual(e.ObjectOld.(*v1alpha1.NodeGuard).Status.Released, e.ObjectNew.(*v1alpha1.NodeGuard).Status.Released)
}}

// overwritten passes a NodeGuard whose status does not count, so that the manager writes it again.
func (r *Reconciler) overwritten() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		g := e.ObjectNew.(*v1alpha1.NodeGuard).DeepCopy()
		r.reports.open(r.Key, g)
		return g.Status.ControllerState.Seal == ""
	}}
}

// nodeChanges passes changes of what the plan reads of a node, but no heartbeats.
var nodeChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := kube.ViewNode(e.ObjectOld.(*corev1.Node)), kube.ViewNode(e.ObjectNew.(*corev1.Node))
	before.ResourceVersion = after.ResourceVersion
	return !equality.Semantic.DeepEqual(before, after)
}}

var podChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return podChanged(e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod))
}}

func podChanged(before, after *corev1.Pod) bool {
	was, is := guard.ViewPod(before), guard.ViewPod(after)
	was.ResourceVersion = is.ResourceVersion
	return was != is || !maps.Equal(before.Labels, after.Labels)
}

// specChanges passes changes of a budget's spec, and that the disruption controller has observed them, not its counts.
var specChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*policyv1.PodDisruptionBudget), e.ObjectNew.(*policyv1.PodDisruptionBudget)
	observed := func(b *policyv1.PodDisruptionBudget) bool { return b.Status.ObservedGeneration >= b.Generation }
	return before.Generation != after.Generation || observed(before) != observed(after) ||
		!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) || !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
}}

// retryChanged passes the update in which a user confirms a NodeGuard.
var retryChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetAnnotations()[v1alpha1.RetryAnnotation] != e.ObjectNew.GetAnnotations()[v1alpha1.RetryAnnotation]
}, CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false }, GenericFunc: func(event.GenericEvent) bool { return false }}
