// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditioncontroller writes to nodes, as the conditions of KEP-5683, how far NodeJobs are with their disruption, and the
// conditions that NodeJobs publish. The conditions are for other tools: Everynode makes no decision from them, and no NodeJob waits
// until they are written.
//
//	passes of NodeJobs ──► claims.Registry ──► Reconcile ──► nodes/status
//	                                              ▲
//	                                        cache of nodes
package conditioncontroller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodecondition"
)

const (
	// coalesce combines events into one pass, because a pass is linear in the number of nodes.
	coalesce = 100 * time.Millisecond

	// maxTries is how often a write is tried that conflicts with other writes to the node, such as heartbeats.
	maxTries = 5
)

// all is the only request: the conditions of all nodes are compared together.
var all = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

// Reconciler writes the conditions of nodes.
type Reconciler struct {
	// Client reads nodes and NodeJobs from the manager's cache, and writes to the API server. Reader reads from the API server.
	Client client.Client
	Reader client.Reader
	// Claims is what NodeJobs report.
	Claims *claims.Registry
	// Enabled is true if conditions are written. Otherwise those that an earlier manager has written are removed at the start.
	Enabled bool
	// Writes counts the writes.
	Writes loop.Writes
	Now    func() time.Time
}

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, registry *claims.Registry, writes loop.Writes, enabled bool) (*Reconciler, error) {
	r := &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Claims: registry, Enabled: enabled, Writes: writes,
		Now: time.Now, //nolint:forbidigo // the one clock of the controller
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { q.AddAfter(all, coalesce) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q queue) { q.AddAfter(all, coalesce) },
	}
	return r, ctrl.NewControllerManagedBy(mgr).
		Named("nodeconditions").
		WithOptions(loop.Options(1)).
		Watches(&corev1.Node{}, enqueue, builder.WithPredicates(r.changes())).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			if enabled {
				registry.OnDisruptions(func() { q.AddAfter(all, coalesce) })
			}
			q.Add(all)
			return nil
		})).
		Complete(r)
}

// changes passes nodes whose conditions other clients may have changed. While no conditions are written, it passes nothing: what is
// left of an earlier manager is removed at the start.
func (r *Reconciler) changes() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			return r.Enabled && len(nodecondition.Kept(e.Object.(*corev1.Node).Status.Conditions)) > 0
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			return r.Enabled && !slices.EqualFunc(
				nodecondition.Kept(before.Status.Conditions), nodecondition.Kept(after.Status.Conditions), nodecondition.Same)
		},
	}
}

// Reconcile writes the conditions of all nodes that have others than they should. A node that fails does not stop the others.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	desired, known, err := r.desired(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing nodes: %w", err)
	}
	var errs []error
	for i := range nodes.Items {
		if node := &nodes.Items[i]; desired(node.UID).Patch(node, r.Now()) != nil {
			errs = append(errs, r.write(ctx, node.Name, desired))
		}
	}
	result := ctrl.Result{}
	if !known {
		result.RequeueAfter = time.Second // a NodeJob that is deleted before it has reported triggers nothing
	}
	return result, errors.Join(errs...)
}

// desired returns what the conditions of nodes should say, by their UIDs, and whether all NodeJobs have reported what they do.
func (r *Reconciler) desired(ctx context.Context) (of func(node types.UID) nodecondition.Desired, known bool, err error) {
	if !r.Enabled {
		return func(types.UID) nodecondition.Desired { return nodecondition.Desired{} }, true, nil
	}
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, false, fmt.Errorf("listing NodeJobs: %w", err)
	}
	silent := map[string]bool{}
	for i := range jobs.Items {
		if job := &jobs.Items[i]; !r.Claims.Reported(job.UID) {
			silent[job.Namespace+"/"+job.Name] = true
		}
	}
	// After Reported: a NodeJob that reports in between is not missing.
	disruptions, published := r.Claims.Disruptions(), r.Claims.Published()
	unknown := func(job string) bool { return silent[job] }
	return func(node types.UID) nodecondition.Desired {
		return nodecondition.Desired{Disruptions: disruptions[node], Published: published[node], Unknown: unknown}
	}, len(silent) == 0, nil
}

// write writes the conditions of a node as the API server stores it, so that a condition that another client has just written stays.
func (r *Reconciler) write(ctx context.Context, name string, desired func(types.UID) nodecondition.Desired) error {
	for try := 1; ; try++ {
		live := &corev1.Node{}
		if err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, live); err != nil {
			return client.IgnoreNotFound(err)
		}
		patch := desired(live.UID).Patch(live, r.Now())
		if patch == nil {
			return nil
		}
		err := r.Writes.Do("patch", "nodes/status", func() error {
			return r.Client.Status().Patch(ctx, live, client.RawPatch(types.StrategicMergePatchType, patch))
		})
		switch {
		case err == nil || apierrors.IsNotFound(err):
			return nil
		case apierrors.IsForbidden(err) && !r.Enabled:
			logf.FromContext(ctx).Error(err, "conditions of Everynode are left on a node, and the manager may not remove them: "+
				"remove those with the reason "+nodecondition.Reason+" with kubectl edit node --subresource=status", "node", name)
			return nil
		case apierrors.IsForbidden(err):
			return fmt.Errorf("writing the conditions of node %s: %w; install config/node-conditions, or remove --node-maintenance-conditions", name, err)
		case !apierrors.IsConflict(err) || try == maxTries:
			return fmt.Errorf("writing the conditions of node %s: %w", name, err)
		}
	}
}
