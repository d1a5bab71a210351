// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budgetcontroller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodebudget/budget"
)

// report writes the statuses that have changed, and returns when to plan again; zero means only after an event.
func (r *Reconciler) report(ctx context.Context, seen *observation, p *budget.Plan) (time.Duration, error) {
	next := loop.Until(p.WakeAt, seen.input.Now)
	var errs []error
	r.remember(seen.budgets)
	for i, b := range seen.budgets {
		name := client.ObjectKeyFromObject(b)
		r.Notifier.OfferNodeDisruptionBudget(b)
		next = r.Notifier.NodeDisruptionBudget(b, &p.Statuses[i], next)
		if !b.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(b.Status, p.Statuses[i]) {
			continue
		}
		if wait := r.pace.Wait(name, r.Now()); wait > 0 {
			next = loop.Soonest(next, wait)
			continue
		}
		changed := b.DeepCopy()
		changed.Status = p.Statuses[i]
		err := r.Metrics.writes.Do("update", "nodedisruptionbudgets/status", func() error { return r.Client.Status().Update(ctx, changed) })
		switch {
		case apierrors.IsConflict(err):
			next = loop.Soonest(next, loop.Soon)
			continue
		case err != nil && !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("writing the status of NodeDisruptionBudget %s: %w", b.Name, err))
			continue
		}
		r.pace.Wrote(name, r.Now())
		r.last[b.Name] = changed
		r.newest.Remember(changed)
		r.Notifier.OfferNodeDisruptionBudget(changed)
		r.announce(changed, &b.Status)
	}
	r.Metrics.report(seen.budgets, p)
	return next, errors.Join(errs...)
}

// remember notes the budgets, and reports those that have been deleted.
func (r *Reconciler) remember(budgets []*v1alpha1.NodeDisruptionBudget) {
	before := r.last
	r.last = make(map[string]*v1alpha1.NodeDisruptionBudget, len(budgets))
	for _, b := range budgets {
		r.last[b.Name] = b
	}
	for name, was := range before {
		if is := r.last[name]; is == nil || is.UID != was.UID {
			r.Notifier.DeletedNodeDisruptionBudget(was)
			delete(r.newest, client.ObjectKeyFromObject(was))
		}
	}
}

// announce sends events: what has opened, closed or stalled, and which nodes have become unavailable.
func (r *Reconciler) announce(b *v1alpha1.NodeDisruptionBudget, before *v1alpha1.NodeDisruptionBudgetStatus) {
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionStalled} {
		if is := meta.FindStatusCondition(b.Status.Conditions, kind); isNews(is, meta.FindStatusCondition(before.Conditions, kind)) {
			level := corev1.EventTypeNormal
			if kind == v1alpha1.ConditionStalled {
				level = corev1.EventTypeWarning
			}
			loop.Event(r.Recorder, b, nil, level, is.Reason, actionLimit, is.Message)
		}
	}
	for _, n := range newlyUnavailable(&b.Status, before) {
		loop.Event(r.Recorder, b, loop.Node(n.Node, ""), corev1.EventTypeNormal, v1alpha1.ReasonNodeUnavailable, actionLimit,
			fmt.Sprintf("node %s uses NodeDisruptionBudget %s: %s", n.Node, b.Name, n.By))
	}
}

// newlyUnavailable returns the nodes that have become unavailable since the last status. A new budget has no news: its nodes only have no
// seats yet, or were unavailable before.
func newlyUnavailable(is, before *v1alpha1.NodeDisruptionBudgetStatus) []v1alpha1.UnavailableNode {
	if before.ObservedGeneration == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(is.Unavailable), func(n v1alpha1.UnavailableNode) bool {
		return slices.ContainsFunc(before.Unavailable, func(o v1alpha1.UnavailableNode) bool { return o.Node == n.Node })
	})
}

// tellBypasses reports the nodes that were taken although a budget was closed, once for each seat.
func (r *Reconciler) tellBypasses(seen *observation, bypasses []budget.Bypass) {
	for i := range bypasses {
		b := &bypasses[i]
		r.Metrics.bypassed.WithLabelValues(b.Budget).Inc()
		at := slices.IndexFunc(seen.budgets, func(o *v1alpha1.NodeDisruptionBudget) bool { return o.Name == b.Budget })
		loop.Event(r.Recorder, seen.budgets[at], loop.Node(b.Node, ""), corev1.EventTypeWarning, v1alpha1.ReasonBudgetBypassed, actionLimit,
			fmt.Sprintf("the seat of node %s was deleted instead of evicted, which no PodDisruptionBudget prevents: %s. The audit log of the API server names who has deleted it",
				b.Node, b.Message))
	}
	r.seatsMu.Lock()
	defer r.seatsMu.Unlock()
	maps.DeleteFunc(r.deleted, func(node types.UID, _ bool) bool { return seen.input.Deleted[node] })
}

// actionLimit is the action of events.
const actionLimit = "Limit"

// isNews reports whether a condition has become True, or has another reason. That a limit is reached, and no longer reached, is what
// the events about nodes say.
func isNews(is, was *metav1.Condition) bool {
	if is == nil || is.Status != metav1.ConditionTrue {
		return false
	}
	if was != nil && was.Status == is.Status && (was.Reason == is.Reason || was.Reason == v1alpha1.ReasonMaxUnavailableReached && is.Reason == v1alpha1.ReasonBudgetOpen) {
		return false
	}
	return is.Reason != v1alpha1.ReasonMaxUnavailableReached
}
