// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/observe"
)

const (
	nodeJobIndex   = ".metadata.labels.nodejob"
	configMapIndex = ".spec.configMaps"

	// parallelNodeJobs is how many NodeJobs are reconciled concurrently, so that one with much to do, or whose writes
	// hang, does not delay others.
	parallelNodeJobs = 8
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager registers the watches and the indexes that they need.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := r.shareCache(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.NodeJob{}, configMapIndex, func(o client.Object) []string {
		return observe.ConfigMapNames(o.(*v1alpha1.NodeJob))
	}); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.poll)); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.releasePods)); err != nil {
		return err
	}
	r.Notifier.OnHandled(notify.KindNodeJob, r.wakeUp)
	r.Policies.OnChange(r.wakeAll)
	if err := r.setupOrphanCollector(ctx, mgr); err != nil {
		return err
	}
	watches := ctrl.NewControllerManagedBy(mgr).
		Named("nodejob").
		WithOptions(loop.Options(parallelNodeJobs)).
		For(&v1alpha1.NodeJob{}, builder.WithPredicates(jobChanged)).
		Watches(&v1alpha1.NodeJob{}, handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.peerChanged(ctx, nil, asJob(e.Object), q) },
			UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
				r.peerChanged(ctx, asJob(e.ObjectOld), asJob(e.ObjectNew), q)
			},
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
				r.written.forgetStatus(e.Object.GetUID())
				r.peerChanged(ctx, asJob(e.Object), nil, q)
			},
		}).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		Watches(&corev1.Node{}, handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.nodeChanged(ctx, nil, e.Object, q) },
			UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
				r.nodeChanged(ctx, e.ObjectOld, e.ObjectNew, q)
			},
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
				r.nodeChanged(ctx, nil, e.Object, q)
				r.forgetNode(e.Object.GetName())
			},
		}).
		Watches(&corev1.Pod{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { r.podChanged(e.Object, q) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { r.podChanged(e.ObjectNew, q) },
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
				r.podGone(ctx, e.Object.(*corev1.Pod))
				r.podChanged(e.Object, q)
			},
		}).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.configMapChanged)).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.namespaceChanged), builder.WithPredicates(loop.AllowedChanged))
	if err := r.watchBudgets(mgr, watches); err != nil {
		return err
	}
	return watches.Complete(r)
}

// jobChanged passes the changes of a NodeJob that need a pass. Our own status writes do not: they do not change the
// generation.
var jobChanged = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, finalizersChanged{}, retryRequested{}, statusOverwritten{})

// finalizersChanged passes the update in which we add our finalizer.
type finalizersChanged struct{ predicate.Funcs }

// Update reports whether the number of finalizers changed.
func (finalizersChanged) Update(e event.UpdateEvent) bool {
	return len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
}

// retryRequested passes the update in which a user requests a retry, or names nodes to take over.
type retryRequested struct{ predicate.Funcs }

// Update reports whether one of the annotations changed.
func (retryRequested) Update(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()
	return before[v1alpha1.RetryAnnotation] != after[v1alpha1.RetryAnnotation] || before[v1alpha1.TakeOverAnnotation] != after[v1alpha1.TakeOverAnnotation]
}

// statusOverwritten passes the update in which another client overwrites the status.
type statusOverwritten struct{ predicate.Funcs }

// Update reports whether the status lost its seal.
func (statusOverwritten) Update(e event.UpdateEvent) bool {
	return asJob(e.ObjectOld).Status.ControllerState.Seal != "" && asJob(e.ObjectNew).Status.ControllerState.Seal == ""
}

// watcher finds out which NodeJobs need a pass, by watches and polls.
type watcher struct{ *shell }

// gather triggers a pass of a NodeJob for an event and those that follow.
func (r watcher) gather(job client.ObjectKey, q queue) {
	q.AddAfter(reconcile.Request{NamespacedName: job}, r.looks.gather(job, r.Now()))
}

func (r watcher) podChanged(o client.Object, q queue) {
	name := client.ObjectKey{Namespace: o.GetNamespace(), Name: nodeJobOf(o.(*corev1.Pod))}
	if name.Name == "" {
		return // it only has our label
	}
	wait := r.looks.gather(name, r.Now())
	if uid := o.GetUID(); r.releases.has(uid) || r.written.wasFinalized(uid) {
		wait = max(wait, afterPasses) // usually nothing waits for the end of a pod whose outcome is on record
	}
	q.AddAfter(reconcile.Request{NamespacedName: name}, wait)
}

func (r watcher) configMapChanged(ctx context.Context, o client.Object) []reconcile.Request {
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.InNamespace(o.GetNamespace()), client.MatchingFields{configMapIndex: o.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only a cache that is not started returns an error
	}
	requests := make([]reconcile.Request, 0, len(jobs.Items))
	for i := range jobs.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
	}
	return requests
}
