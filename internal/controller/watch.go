package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
)

const (
	nodeJobIndex   = ".metadata.labels.nodejob"
	configMapIndex = ".spec.configMaps"

	// parallelNodeJobs is how many NodeJobs are looked at at once, so that one with much to do, or one
	// whose writes hang, delays no other.
	parallelNodeJobs = 8

	// passTimeout ends a pass whose requests are left unanswered. The longest pass that makes progress
	// takes seconds.
	passTimeout = 2 * time.Minute

	// A pass that failed is tried again after these waits. The stock limit of a quarter of an hour is
	// too long for something that holds nodes.
	firstErrorWait   = 20 * time.Millisecond
	longestErrorWait = 30 * time.Second
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager registers the watches and the indexes that they need.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &corev1.Pod{}, nodeJobIndex, func(o client.Object) []string {
		return []string{o.GetLabels()[v1alpha1.NodeJobLabel]}
	}); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &v1alpha1.NodeJob{}, configMapIndex, func(o client.Object) []string {
		return observe.ConfigMapNames(o.(*v1alpha1.NodeJob))
	}); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.poll)); err != nil {
		return err
	}
	if err := r.setupStrays(ctx, mgr); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodejob").
		WithOptions(controller.Options{
			MaxConcurrentReconciles: parallelNodeJobs,
			ReconciliationTimeout:   passTimeout,
			RateLimiter:             errorWaits(),
		}).
		For(&v1alpha1.NodeJob{}, builder.WithPredicates(jobChanged)).
		Watches(&v1alpha1.NodeJob{}, handler.EnqueueRequestsFromMapFunc(r.peerChanged), builder.WithPredicates(peerChanges)).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		Watches(&corev1.Node{}, handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.nodeChanged(ctx, nil, e.Object, q) },
			UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
				r.nodeChanged(ctx, e.ObjectOld, e.ObjectNew, q)
			},
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
				r.memory.forgetNode(e.Object.GetName())
				r.records.forgetNode(e.Object.GetName())
				r.nodeChanged(ctx, nil, e.Object, q)
			},
		}).
		Watches(&corev1.Pod{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { r.podChanged(e.Object, q) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { r.podChanged(e.ObjectNew, q) },
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
				r.memory.forgetPod(e.Object.GetUID())
				r.podChanged(e.Object, q)
			},
		}).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.configMapChanged)).
		Complete(r)
}

func errorWaits() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstErrorWait, longestErrorWait)
}

// jobChanged passes the changes of a NodeJob that need a pass. Our own status writes do not: they change
// no generation.
var jobChanged = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, finalizersChanged{}, retryAsked{})

// finalizersChanged passes the update with which we put our finalizer on.
type finalizersChanged struct{ predicate.Funcs }

// Update is true when the number of finalizers changed.
func (finalizersChanged) Update(e event.UpdateEvent) bool {
	return len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
}

// retryAsked passes the update with which a user asks for another try.
type retryAsked struct{ predicate.Funcs }

// Update is true when the annotation changed.
func (retryAsked) Update(e event.UpdateEvent) bool {
	return e.ObjectOld.GetAnnotations()[v1alpha1.RetryAnnotation] != e.ObjectNew.GetAnnotations()[v1alpha1.RetryAnnotation]
}

// peerChanges pass what of a NodeJob matters to others.
var peerChanges = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.NodeJob), e.ObjectNew.(*v1alpha1.NodeJob)
		return before.Generation != after.Generation || before.Status.Revision != after.Status.Revision ||
			before.Status.ObservedGeneration != after.Status.ObservedGeneration || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	},
}

// peerChanged wakes the NodeJobs to which the change of another one matters: those that depend on it, and, where
// there is a gate, all, since no gate may keep a task off a node.
func (r *Reconciler) peerChanged(ctx context.Context, o client.Object) []reconcile.Request {
	changed := o.(*v1alpha1.NodeJob)
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only a cache that is not started answers with an error
	}
	var requests []reconcile.Request
	for i := range jobs.Items {
		job := &jobs.Items[i]
		depends := job.Namespace == changed.Namespace && (slices.Contains(job.Spec.DependsOn, changed.Name) || len(job.Spec.DependsOn)*len(changed.Spec.DependsOn) > 0)
		if job.UID != changed.UID && (depends || changed.Spec.Gate != nil) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		}
	}
	return requests
}

func (r *Reconciler) podChanged(o client.Object, q queue) {
	name := client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[v1alpha1.NodeJobLabel]}
	q.AddAfter(reconcile.Request{NamespacedName: name}, r.looks.gather(name))
}

func (r *Reconciler) configMapChanged(ctx context.Context, o client.Object) []reconcile.Request {
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.InNamespace(o.GetNamespace()), client.MatchingFields{configMapIndex: o.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only a cache that is not started answers with an error
	}
	requests := make([]reconcile.Request, 0, len(jobs.Items))
	for i := range jobs.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
	}
	return requests
}

// nodeChanged wakes the NodeJobs to which the change matters. A heartbeat matters to none, and a
// record only to the NodeJob whose it is and to those that select on its label.
func (r *Reconciler) nodeChanged(ctx context.Context, before, after client.Object, q queue) {
	var was *corev1.Node
	if before != nil {
		was = before.(*corev1.Node)
	}
	change := compareNodes(was, after.(*corev1.Node))
	if change.nothing() {
		return
	}
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return // only a cache that is not started answers with an error
	}
	for i := range jobs.Items {
		if job := &jobs.Items[i]; change.matters(job) {
			name := client.ObjectKeyFromObject(job)
			q.AddAfter(reconcile.Request{NamespacedName: name}, r.looks.gather(name))
		}
	}
}

// nodeChange is what of a node's change a plan would read.
type nodeChange struct {
	before, after *corev1.Node
	// toAll is true for a change that any NodeJob may act on.
	toAll       bool
	labels      bool
	annotations bool
}

func compareNodes(before, after *corev1.Node) nodeChange {
	c := nodeChange{before: before, after: after}
	if before == nil {
		c.toAll = true
		return c
	}
	c.labels = !maps.Equal(before.Labels, after.Labels)
	c.annotations = !maps.Equal(before.Annotations, after.Annotations)
	c.toAll = before.UID != after.UID ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		before.Spec.Unschedulable != after.Spec.Unschedulable ||
		before.Annotations[v1alpha1.CordonedAnnotation] != after.Annotations[v1alpha1.CordonedAnnotation] ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
		before.Status.NodeInfo.MachineID != after.Status.NodeInfo.MachineID ||
		readyStatus(before) != readyStatus(after)
	return c
}

func (c nodeChange) nothing() bool { return !c.toAll && !c.labels && !c.annotations }

func (c nodeChange) matters(job *v1alpha1.NodeJob) bool {
	if c.toAll {
		return true
	}
	key := v1alpha1.RecordKey(job.Namespace, job.Name)
	if c.before.Annotations[key] != c.after.Annotations[key] || c.before.Labels[key] != c.after.Labels[key] {
		return true
	}
	if c.mattersElse(job) {
		return true
	}
	if !c.labels {
		return false
	}
	if c.selectedAnew(job.Spec.NodeSelector) {
		return true
	}
	for i := range job.Spec.Rollout.Steps {
		if c.selectedAnew(job.Spec.Rollout.Steps[i].NodeSelector) {
			return true
		}
	}
	return false
}

// mattersElse is true for a change of what a NodeJob publishes, removes, or waits for.
func (c nodeChange) mattersElse(job *v1alpha1.NodeJob) bool {
	spec := &job.Spec
	labelChanged := func(key string) bool { return differs(c.before.Labels, c.after.Labels, key) }
	published := func(f v1alpha1.Fact) bool {
		return (f.Label != "" && labelChanged(f.Label)) || (f.Annotation != "" && differs(c.before.Annotations, c.after.Annotations, f.Annotation))
	}
	if slices.ContainsFunc(spec.Publish, published) || slices.ContainsFunc(spec.RemoveLabels, labelChanged) {
		return true
	}
	if len(spec.Publish) > 0 && differs(c.before.Annotations, c.after.Annotations, v1alpha1.PublishedAnnotation) {
		return true
	}
	return c.mattersToPeers(job)
}

// mattersToPeers is true for a change by which what a NodeJob waits for may be over.
func (c nodeChange) mattersToPeers(job *v1alpha1.NodeJob) bool {
	spec := &job.Spec
	// By its labels another NodeJob is for a node, or not, and done there, or not. Which labels these are is in
	// the other one, and labels change seldom.
	if waits := len(spec.DependsOn) > 0 || (spec.Gate != nil && spec.Gate.Key != ""); waits && c.labels {
		return true
	}
	// In its record is what no label tells.
	return slices.ContainsFunc(spec.DependsOn, func(name string) bool {
		return differs(c.before.Annotations, c.after.Annotations, v1alpha1.RecordKey(job.Namespace, name))
	})
}

func differs(a, b map[string]string, key string) bool {
	was, had := a[key]
	is, has := b[key]
	return had != has || was != is
}

// selectedAnew is true when the node has come under a selector, or left it.
func (c nodeChange) selectedAnew(spec *metav1.LabelSelector) bool {
	if spec == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(spec)
	return err == nil && selector.Matches(labels.Set(c.before.Labels)) != selector.Matches(labels.Set(c.after.Labels))
}

func readyStatus(node *corev1.Node) corev1.ConditionStatus {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return node.Status.Conditions[i].Status
		}
	}
	return ""
}
