// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guardcontroller is the shell around package guard: it watches, asks guard.Next what to do, does it, and
// reports. It decides nothing itself.
//
//	watches ──► observe ──► guard.Next ──► apply ──► report
//	(cache)        ▲          │ Confirm    (writes)  (status, events, metrics)
//	               └─ the API server itself
package guardcontroller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/guard"
	"github.com/everynode/everynode/internal/loop"
	"github.com/everynode/everynode/internal/task"
)

// +kubebuilder:rbac:groups=everynode.dev,resources=nodeguards,verbs=get;list;watch
// +kubebuilder:rbac:groups=everynode.dev,resources=nodeguards/status,verbs=update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;watch;create;update;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// decisionTimeout bounds the time from what the API server says to the write that follows from it. A manager that
	// slept longer writes nothing: nobody else leads sooner than the lease (30 s) lasts.
	decisionTimeout = 10 * time.Second

	// soon is when to look again at what has changed meanwhile, and nameTaken at a name that is not free yet.
	soon      = 100 * time.Millisecond
	nameTaken = 2 * time.Second
)

// Reconciler keeps NodeGuards.
type Reconciler struct {
	// Client reads nodes and NodeGuards from the manager's cache, and writes to the API server.
	Client client.Client
	// Own reads what NodeGuards make, and DaemonSets, from a cache of its own.
	Own client.Reader
	// Reader reads from the API server.
	Reader client.Reader
	// Recorder writes events.
	Recorder events.EventRecorder
	// Metrics are those of NodeGuards.
	Metrics *Metrics
	// Options are the installation's choices for pods.
	Options task.Options
	// Now is the clock.
	Now func() time.Time

	targets *targets
	// refusals are of companions, and budgets of PodDisruptionBudgets. refusedOn has more of it, node by node.
	refusals  *loop.Refusals
	budgets   *loop.Refusals
	refusedOn *refusedOn
	taken     *taken
	reports   *reports
	// deciding has one decision at a time, over all NodeGuards: each sees those before.
	deciding sync.Mutex
	wake     waker
}

// How it is told that the API server takes no pod, or no budget.
var (
	podWords = loop.Words{
		Kind:       "NodeGuard",
		Made:       "its pod",
		Privileged: "Take what the namespace's Pod Security does not allow out of spec.template or release.check, or allow it with",
		Field:      "spec.template or release.check",
	}
	budgetWords = loop.Words{Kind: "NodeGuard", Made: "the PodDisruptionBudget, without which nothing holds a node,", Field: "the name"}
)

// Reconcile brings one NodeGuard one step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := &v1alpha1.NodeGuard{}
	switch err := r.Client.Get(ctx, req.NamespacedName, g); {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, r.cleanUpDeleted(ctx, req.NamespacedName)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("getting NodeGuard: %w", err)
	}
	g = r.reports.of(g)
	if err := r.checkTakenNames(ctx, g); err != nil {
		return ctrl.Result{}, err
	}
	seen, err := r.observe(ctx, g, r.cached())
	if err != nil {
		return ctrl.Result{}, err
	}
	p := guard.Next(seen.input)
	if p.Confirm {
		if seen, p, err = r.decide(ctx, req.NamespacedName); err != nil || seen == nil {
			return again(err)
		}
	}
	return r.carryOut(ctx, seen, &p)
}

// again waits a moment after a conflict: the cache will show who was first.
func again(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	return ctrl.Result{}, err
}

// decide plans on what the API server itself says, and writes what was decided before anything is done about it. It
// returns nothing when the NodeGuard is gone.
func (r *Reconciler) decide(ctx context.Context, name client.ObjectKey) (*observation, guard.Plan, error) {
	r.deciding.Lock()
	defer r.deciding.Unlock()
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	live := &v1alpha1.NodeGuard{}
	if err := r.Reader.Get(ctx, name, live); err != nil {
		return nil, guard.Plan{}, client.IgnoreNotFound(fmt.Errorf("getting NodeGuard: %w", err))
	}
	seen, err := r.observe(ctx, live, r.live())
	if err != nil {
		return nil, guard.Plan{}, err
	}
	p := guard.Next(seen.input)
	if len(p.Moves) == 0 {
		return seen, p, nil
	}
	if err := r.writeStatus(ctx, seen, &p); err != nil {
		return nil, guard.Plan{}, err
	}
	return seen, p, nil
}

// carryOut does what was planned, and reports.
func (r *Reconciler) carryOut(ctx context.Context, seen *observation, p *guard.Plan) (ctrl.Result, error) {
	salted := seen.guard.Status.NameSalt != "" || p.Status.NameSalt == ""
	did, applyErr := r.apply(ctx, seen, p.Actions)
	wait, err := r.report(ctx, seen, p)
	switch {
	case applyErr != nil && !onlyConflicts(applyErr):
		return ctrl.Result{}, errors.Join(applyErr, err)
	case err != nil:
		return again(err)
	case len(p.Moves) > 0 || applyErr != nil || did.refused || did.another || !salted:
		wait = loop.Soonest(wait, soon) // a budget follows what was written, and the status what was refused
	case did.taken:
		wait = loop.Soonest(wait, nameTaken)
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// onlyConflicts is true when others were first, which the next pass sees.
func onlyConflicts(err error) bool {
	if joined, many := err.(interface{ Unwrap() []error }); many {
		for _, e := range joined.Unwrap() {
			if !onlyConflicts(e) {
				return false
			}
		}
		return true
	}
	return apierrors.IsConflict(err)
}

// cleanUpDeleted takes away what a NodeGuard left that is deleted: the garbage collector does so too, but for what somebody has
// orphaned (kubectl delete --cascade=orphan). Nothing may be held for a NodeGuard that is not there.
func (r *Reconciler) cleanUpDeleted(ctx context.Context, name client.ObjectKey) error {
	r.targets.forget(name)
	r.refusals.Clear(name)
	r.budgets.Clear(name)
	r.refusedOn.forget(name)
	r.taken.forget(name)
	r.reports.forget(name)
	r.Metrics.forget(name)
	left, err := r.made(ctx, name, r.cached())
	if err != nil {
		return err
	}
	if len(left.pods)+len(left.budgets) == 0 {
		return nil
	}
	// The cache of NodeGuards may be behind that of pods.
	if err := r.Reader.Get(ctx, name, &v1alpha1.NodeGuard{}); !apierrors.IsNotFound(err) {
		return err
	}
	var errs []error
	for i := range left.budgets {
		errs = append(errs, r.deleteBudget(ctx, name.Namespace, guard.ReadBudget(&left.budgets[i])))
	}
	for i := range left.pods {
		if pod := guard.ViewPod(&left.pods[i]); !pod.Leaving {
			errs = append(errs, r.deletePod(ctx, name.Namespace, pod))
		}
	}
	return errors.Join(errs...)
}
