// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package budgetcontroller is the shell around package budget: it watches, asks budget.Next what all NodeDisruptionBudgets need, does
// it, and reports. It makes no decisions.
//
//	watches ──► observe ──► budget.Next ──► apply ──► report
//	(cache)        ▲             │         (writes)  (status, events, metrics, stances for NodeJobs)
//	               └── floors from the API server, if a floor would be lowered or a seat would join
package budgetcontroller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/nodebudget/budget"
)

// +kubebuilder:rbac:groups=everynode.dev,resources=nodedisruptionbudgets,verbs=list;watch
// +kubebuilder:rbac:groups=everynode.dev,resources=nodedisruptionbudgets/status,verbs=update
// +kubebuilder:rbac:groups=everynode.dev,resources=nodejobs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;watch;create;update;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reportsWithin is how long the first passes wait for the reports of NodeJobs. One that cannot be planned would hold all seats back.
const reportsWithin = time.Minute

// Reconciler reconciles all NodeDisruptionBudgets together.
type Reconciler struct {
	// Client reads nodes, NodeJobs and budgets from the manager's cache, and writes to the API server.
	Client client.Client
	// Own reads seats and PodDisruptionBudgets from a separate cache.
	Own client.Reader
	// Reader reads from the API server.
	Reader   client.Reader
	Recorder events.EventRecorder
	Metrics  *Metrics
	// Claims is what NodeJobs tell.
	Claims *claims.Registry
	// Place is where seats are created.
	Place budget.Place
	// JoiningFor and SettleFor replace budget.JoiningFor and budget.SettleFor if they are not zero.
	JoiningFor time.Duration
	SettleFor  time.Duration
	// Notifier reports to the URL of the flag --notifications-url; nil without one. It is set before the manager starts.
	Notifier *notify.Notifier
	// Now is the clock.
	Now func() time.Time

	started time.Time
	// last are the budgets of the last pass, by name, and newest those whose status was written and is not in the cache yet.
	last   map[string]*v1alpha1.NodeDisruptionBudget
	newest loop.WrittenObjects[*v1alpha1.NodeDisruptionBudget]
	// seated are the nodes with seats in the last pass. onSeated is called when they change.
	seated   map[types.UID]bool
	onSeated func(context.Context)
	refusals *loop.Refusals
	// common, paced, counted and fresh are those of the last plan.
	common  map[string]budget.Common
	paced   map[budget.PaceKey]budget.Paced
	counted map[types.UID]budget.Counted
	fresh   budget.Fresh
	// ungranted is written when seats end, beside passes.
	ungranted budget.Ungranted
	// deleted are the nodes whose seat was deleted since the last pass.
	deleted map[types.UID]bool
	// fixed are the seats whose tolerations the API server does not let the manager change, by UID.
	fixed map[types.UID]bool
	// seatsMu guards ungranted, deleted and fixed.
	seatsMu sync.Mutex
	pace    loop.Pace
}

// observation is what one pass observes.
type observation struct {
	budgets []*v1alpha1.NodeDisruptionBudget
	floors  map[string]*policyv1.PodDisruptionBudget
	input   budget.Input
}

// Reconcile runs one pass for all budgets.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if r.started.IsZero() {
		r.started = r.Now()
	}
	seen, err := r.observe(ctx, r.Own)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.tellSeated(ctx, seen.input.Seats)
	p := budget.Next(&seen.input)
	if mayAllowMore(&p) {
		// The cache may not show what this manager, or another one, has written last.
		if seen, err = r.observe(ctx, r.Reader); err != nil {
			return ctrl.Result{}, err
		}
		p = budget.Next(&seen.input)
	}
	r.common, r.paced, r.counted, r.fresh = p.Common, p.Paced, p.Counted, p.Fresh
	r.tellBypasses(seen, p.Bypasses)
	again, applyErr := r.apply(ctx, seen, p.Actions)
	wait, err := r.report(ctx, seen, &p)
	if err := errors.Join(applyErr, err); err != nil {
		return ctrl.Result{}, err
	}
	r.Claims.SetStances(p.Stances)
	if again {
		wait = loop.Soonest(wait, loop.Soon)
	}
	if !seen.input.HoldsKnown {
		wait = loop.Soonest(wait, time.Second)
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// mayAllowMore reports whether a plan may allow more evictions than before.
func mayAllowMore(p *budget.Plan) bool {
	return slices.ContainsFunc(p.Actions, func(a budget.Action) bool {
		switch a := a.(type) {
		case budget.SetFloor:
			return a.State.MinAvailable < a.Floor.MinAvailable || a.Floor.Drifted
		case budget.CreateFloor, budget.CreateSeat, budget.MoveSeat, budget.DeleteFloor:
			return true
		case budget.TolerateTaints, budget.DeleteSeat, budget.CreatePlaceholder, budget.DeletePlaceholder:
		}
		return false
	})
}

// observe collects everything that the plan reads. Seats and floors are read from own.
func (r *Reconciler) observe(ctx context.Context, own client.Reader) (*observation, error) {
	seen := &observation{floors: map[string]*policyv1.PodDisruptionBudget{}}
	in := &seen.input
	in.JoiningFor, in.SettleFor, in.Now, in.Common = r.JoiningFor, r.SettleFor, r.Now(), r.common
	in.Paced, in.Counted, in.Fresh, in.Deleted, in.Fixed = r.paced, r.counted, r.fresh, r.observeDeleted(), r.observeFixed()
	// A floor that another manager lowers after this read is known to be old by its resource version, so floors are read before seats.
	if err := errors.Join(r.observeBudgets(ctx, seen), r.observeFloors(ctx, seen, own), r.observeSeats(ctx, in, own)); err != nil {
		return nil, err
	}
	if len(in.Budgets)+len(in.Seats)+len(in.Floors)+len(in.Placeholders) == 0 {
		in.HoldsKnown = true
		return seen, nil // without budgets, a pass costs nothing
	}
	if err := r.observeNodes(ctx, in); err != nil {
		return nil, err
	}
	in.Closed = r.Claims.Closed()
	in.Holds, in.Waits, in.Answers, in.Refused = r.Claims.Holds(), r.Claims.Waits(), r.Claims.Answers(), r.refusals.Of(r.refusedFor())
	in.Ungranted = r.observeAbsences(in)
	var err error
	in.HoldsKnown, err = r.holdsKnown(ctx)
	return seen, err
}

func (r *Reconciler) observeBudgets(ctx context.Context, seen *observation) error {
	var list v1alpha1.NodeDisruptionBudgetList
	if err := r.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing NodeDisruptionBudgets: %w", err)
	}
	for i := range list.Items {
		seen.budgets = append(seen.budgets, r.newest.Of(&list.Items[i]))
	}
	slices.SortFunc(seen.budgets, func(a, b *v1alpha1.NodeDisruptionBudget) int { return strings.Compare(a.Name, b.Name) })
	seen.input.Budgets = seen.budgets
	return nil
}

func (r *Reconciler) observeNodes(ctx context.Context, in *budget.Input) error {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		in.Nodes = append(in.Nodes, budget.ViewNode(&nodes.Items[i]))
	}
	return nil
}

func (r *Reconciler) observeSeats(ctx context.Context, in *budget.Input, own client.Reader) error {
	var pods corev1.PodList
	if err := own.List(ctx, &pods, client.InNamespace(r.Place.Namespace), client.HasLabels{v1alpha1.BudgetGroupLabel}); err != nil {
		return fmt.Errorf("listing seats: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if placeholder, is := r.Place.ViewPlaceholder(pod); is {
			in.Placeholders = append(in.Placeholders, placeholder)
		} else if r.Place.IsSeat(pod) {
			in.Seats = append(in.Seats, budget.ViewSeat(pod))
		} else {
			in.Strangers = append(in.Strangers, budget.Stranger{Name: pod.Name, Group: pod.Labels[v1alpha1.BudgetGroupLabel]})
		}
	}
	return nil
}

func (r *Reconciler) observeFloors(ctx context.Context, seen *observation, own client.Reader) error {
	var list policyv1.PodDisruptionBudgetList
	if err := own.List(ctx, &list, client.InNamespace(r.Place.Namespace)); err != nil {
		return fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if r.Place.IsFloor(b) {
			seen.floors[b.Name] = b
			seen.input.Floors = append(seen.input.Floors, budget.ViewFloor(b))
		} else if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil { // the API server validates selectors
			seen.input.Foreign = append(seen.input.Foreign, kube.ForeignBudget{Name: b.Name, Selector: selector})
		}
	}
	return nil
}

// holdsKnown reports whether each NodeJob has reported what it does. One that disrupts no nodes may have done so before its spec changed.
func (r *Reconciler) holdsKnown(ctx context.Context) (bool, error) {
	if !r.Now().Before(r.started.Add(reportsWithin)) {
		return true, nil
	}
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing NodeJobs: %w", err)
	}
	return !slices.ContainsFunc(jobs.Items, func(job v1alpha1.NodeJob) bool { return !r.Claims.Reported(job.UID) }), nil
}

// refusedFor is the object that rejections of seats are remembered for.
func (r *Reconciler) refusedFor() client.Object {
	b := &v1alpha1.NodeDisruptionBudget{}
	b.Namespace, b.Name = r.Place.Namespace, "seats"
	return b
}
