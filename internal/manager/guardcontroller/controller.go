// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guardcontroller is the shell around package guard: it watches, asks guard.Next what to do, does it, and
// reports. It makes no decisions.
//
//	watches ──► observe ──► guard.Next ──► apply ──► report
//	(cache)        ▲          │ Confirm    (writes)  (status, events, metrics)
//	               └─ the API server itself
package guardcontroller

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
)

// +kubebuilder:rbac:groups=everynode.dev,resources=nodeguards,verbs=get;list;watch
// +kubebuilder:rbac:groups=everynode.dev,resources=nodeguards/status,verbs=update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// decisionTimeout limits the time from a live read to the write that is based on it, and from an observation to the last write of its pass.
	// After a longer sleep, a manager does not write. No other manager leads before the lease (30 s) expires.
	decisionTimeout = 10 * time.Second

	// nameTaken is when to check a name that is not free yet.
	nameTaken = 2 * time.Second

	// turnWait is when a NodeGuard tries to decide again at the latest while another one of its namespace does.
	turnWait = 5 * time.Second
)

// errTurn means that another NodeGuard of the namespace decides.
var errTurn = errors.New("another NodeGuard of the namespace decides")

// Reconciler reconciles NodeGuards.
type Reconciler struct {
	// Client reads nodes and NodeGuards from the manager's cache, and writes to the API server.
	Client client.Client
	// Own reads the objects of NodeGuards, and DaemonSets, from a separate cache.
	Own client.Reader
	// Reader reads from the API server.
	Reader client.Reader
	announcer
	// Options are the settings of the installation for pods.
	Options task.Options
	// Notifier reports to the URL of the flag --notifications-url; nil without one. Notify sets it.
	Notifier *notify.Notifier
	// Key seals the status of NodeGuards and their pods, and is part of the pods' names. The zero Key is for tests.
	Key seal.Key
	// RequireNamespaceLabel is true if only NodeGuards in namespaces with the label v1alpha1.EnabledLabel are served.
	RequireNamespaceLabel bool
	// Policies knows whether the admission policies are in force; nil if they do not matter. Require sets it.
	Policies *policies.Checker
	// Seats are those of NodeDisruptionBudgets; nil without any. Follow sets it.
	Seats Seats
	// Now is the clock.
	Now func() time.Time

	memory
	turns turns
	wake  waker
}

// Messages for rejected pods and budgets.
var (
	podWords = loop.Words{
		Kind:     "NodeGuard",
		Made:     "its companion",
		Template: func(client.Object) string { return "spec.template" }, // the built-in companion violates no level
		Field:    "spec.template",
	}
	checkWords = loop.Words{
		Kind:       "NodeGuard",
		Made:       "the pod of its check",
		Privileged: "A script of release.check is root on its node: keep such NodeGuards in a namespace of their own and allow it there with",
		Template: func(o client.Object) string {
			if g, is := o.(*v1alpha1.NodeGuard); is && g.Spec.Release.Check != nil && g.Spec.Release.Check.Container != nil {
				return "spec.release.check.container"
			}
			return ""
		},
		Field: "spec.release.check",
	}
	placeholderWords = loop.Words{
		Kind:     "NodeGuard",
		Made:     "its placeholder",
		Template: func(client.Object) string { return "" }, // it violates no level
		Field:    "the name",
	}
	budgetWords = loop.Words{Kind: "NodeGuard", Made: "the PodDisruptionBudget, without which nothing holds a node,", Field: "the name"}
)

// Reconcile runs one pass for a NodeGuard.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g, err := r.getNodeGuard(ctx, r.Client, req.NamespacedName)
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, r.cleanUpDeleted(ctx, req.NamespacedName)
	case err != nil:
		return ctrl.Result{}, err
	}
	g = r.reports.of(g)
	if err := r.checkTakenNames(ctx, g); err != nil {
		return ctrl.Result{}, err
	}
	seen, err := r.observeAuthorized(ctx, g, r.cached())
	if err != nil {
		return again(err)
	}
	p := guard.Next(seen.input)
	if p.Confirm {
		cached := seen
		seen, p, err = r.decide(ctx, req.NamespacedName)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			p = guard.PlanTooSlow(&cached.input, r.turns.slowest(req.Namespace), decisionTimeout)
			_, reportErr := r.report(ctx, cached, &p)
			return again(errors.Join(err, reportErr))
		}
		if err != nil || seen == nil {
			return again(err)
		}
	}
	return r.carryOut(ctx, seen, &p)
}

// again waits a moment after a conflict, until the cache shows the other write.
func again(err error) (ctrl.Result, error) {
	if wait, is := errors.AsType[policies.UndecidedError](err); is {
		return ctrl.Result{RequeueAfter: time.Duration(wait)}, nil
	}
	switch {
	case errors.Is(err, errTurn):
		return ctrl.Result{RequeueAfter: turnWait}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: loop.Soon}, nil
	}
	return ctrl.Result{}, err
}

// decide plans based on a live read of the API server, and writes the decision before acting on it. It returns nothing
// if the NodeGuard is deleted.
func (r *Reconciler) decide(ctx context.Context, name client.ObjectKey) (*observation, guard.Plan, error) {
	end := r.turns.take(name, r.wake.guard)
	if end == nil {
		return nil, guard.Plan{}, errTurn
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	live, err := r.getNodeGuard(ctx, r.Reader, name)
	if err != nil {
		return nil, guard.Plan{}, client.IgnoreNotFound(err)
	}
	seen, err := r.observeAuthorized(ctx, live, r.live())
	if err != nil {
		return nil, guard.Plan{}, err
	}
	r.turns.inTime()
	p := guard.Next(seen.input)
	if len(p.Moves) == 0 {
		return seen, p, nil
	}
	if err := r.writeStatus(ctx, seen, &p); err != nil {
		return nil, guard.Plan{}, err
	}
	return seen, p, nil
}

// carryOut executes the plan, and reports.
func (r *Reconciler) carryOut(ctx context.Context, seen *observation, p *guard.Plan) (ctrl.Result, error) {
	did, applyErr := r.apply(ctx, seen, p.Actions)
	wait, err := r.report(ctx, seen, p)
	switch {
	case applyErr != nil && !onlyConflicts(applyErr):
		return ctrl.Result{}, errors.Join(applyErr, err)
	case err != nil:
		return again(err)
	case len(p.Moves) > 0 || applyErr != nil || did.refused || did.another:
		wait = loop.Soonest(wait, loop.Soon) // a budget follows the stored status, and the status shows what was rejected
	case did.taken:
		wait = loop.Soonest(wait, nameTaken)
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// onlyConflicts reports whether all errors are conflicts. The next pass sees what the other writers did.
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

// cleanUpDeleted deletes what a deleted NodeGuard left. The garbage collector does so too, except for objects that a
// user has orphaned (kubectl delete --cascade=orphan). No node may be held for a NodeGuard that does not exist.
func (r *Reconciler) cleanUpDeleted(ctx context.Context, name client.ObjectKey) error {
	r.forget(name)
	r.Metrics.forget(name)
	r.Metrics.notServed.Remove(name)
	r.Notifier.Deleted(notify.KindNodeGuard, name)
	left, err := r.made(ctx, name, r.cached())
	if err != nil {
		return err
	}
	if len(left.pods)+len(left.budgets) == 0 {
		return nil
	}
	// The cache of NodeGuards may be behind the cache of pods.
	if err := r.Reader.Get(ctx, name, &v1alpha1.NodeGuard{}); !apierrors.IsNotFound(err) {
		return err
	}
	var errs []error
	for i := range left.budgets {
		errs = append(errs, r.deleteBudget(ctx, name.Namespace, guard.ReadBudget(&left.budgets[i])))
	}
	for i := range left.pods {
		if pod := guard.ViewPod(&left.pods[i]); !pod.Terminating {
			errs = append(errs, r.deletePod(ctx, name.Namespace, guard.DeletePod{Pod: pod}))
		}
	}
	return errors.Join(errs...)
}
