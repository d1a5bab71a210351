// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/plural"
)

// reasonDeleted is the reason of Thawed if the budget is deleted.
const reasonDeleted = "Deleted"

// NodeDisruptionBudget does the same as NodeJob for a NodeDisruptionBudget.
func (n *Notifier) NodeDisruptionBudget(b *v1alpha1.NodeDisruptionBudget, after *v1alpha1.NodeDisruptionBudgetStatus, next time.Duration) time.Duration {
	if n == nil {
		return next
	}
	pending := budgetPending(b)
	after.ControllerState = b.Status.ControllerState
	unchanged := equality.Semantic.DeepEqual(&b.Status, after)
	reported, made := nodeDisruptionBudget(b, after, n.Now())
	rest, wait := n.update(budgetObject(b), pending, made, unchanged)
	if !unchanged || len(made) > 0 || len(rest) < len(pending) {
		after.ControllerState.Notifications = &v1alpha1.NodeDisruptionBudgetNotifications{Reported: reported, Pending: rest}
	}
	return loop.Soonest(next, wait)
}

// OfferNodeDisruptionBudget sends the notifications in the stored status of a NodeDisruptionBudget.
func (n *Notifier) OfferNodeDisruptionBudget(b *v1alpha1.NodeDisruptionBudget) {
	if n != nil {
		n.offer(budgetObject(b), budgetPending(b), nil)
	}
}

// DeletedNodeDisruptionBudget sends that a freeze was deleted, and what is pending. b is its last known version. As its status no longer
// exists, this is sent only as long as this manager runs.
func (n *Notifier) DeletedNodeDisruptionBudget(b *v1alpha1.NodeDisruptionBudget) {
	if n == nil {
		return
	}
	pending := budgetPending(b)
	if state := b.Status.ControllerState.Notifications; state != nil && slices.Contains(state.Reported, v1alpha1.NotificationFrozen) {
		pending = append(pending, budgetNotification(b, v1alpha1.NotificationThawed, reasonDeleted, thawText, n.Now()))
	}
	n.offer(budgetObject(b), pending, nil)
	n.Deleted(KindNodeDisruptionBudget, types.NamespacedName{Name: b.Name})
}

func budgetObject(b *v1alpha1.NodeDisruptionBudget) Object {
	return Object{KindNodeDisruptionBudget, types.NamespacedName{Name: b.Name}, b.UID}
}

func budgetPending(b *v1alpha1.NodeDisruptionBudget) []v1alpha1.Notification {
	if state := b.Status.ControllerState.Notifications; state != nil {
		return bounded(state.Pending)
	}
	return nil
}

// nodeDisruptionBudget returns the states of a budget that are reported when its status becomes after, and the new notifications. What
// happened before the manager had a URL counts as reported.
func nodeDisruptionBudget(b *v1alpha1.NodeDisruptionBudget, after *v1alpha1.NodeDisruptionBudgetStatus, now time.Time) (reported []v1alpha1.NotificationType, made []v1alpha1.Notification) {
	before := budgetStates(b, &b.Status, nil)
	if state := b.Status.ControllerState.Notifications; state != nil {
		before = state.Reported
	}
	reported = budgetStates(b, after, before)
	ready := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return before, nil
	}
	add := func(kind v1alpha1.NotificationType, reason, message string) {
		made = append(made, budgetNotification(b, kind, reason, message, now))
	}
	for _, kind := range reported {
		switch {
		case slices.Contains(before, kind):
		case kind == v1alpha1.NotificationFrozen:
			add(kind, v1alpha1.ReasonFrozen, freezeText(b))
		case kind == v1alpha1.NotificationExceeded:
			add(kind, v1alpha1.ReasonMaxUnavailableReached, exceededText(after))
		default:
			add(kind, ready.Reason, ready.Message)
		}
	}
	if slices.Contains(before, v1alpha1.NotificationFrozen) && !slices.Contains(reported, v1alpha1.NotificationFrozen) {
		add(v1alpha1.NotificationThawed, ready.Reason, thawText)
	}
	return reported, made
}

// budgetStates returns which states that are reported a status has. While seats start, nodes without one count as unavailable, so that
// the budget is exceeded then is no news.
func budgetStates(b *v1alpha1.NodeDisruptionBudget, status *v1alpha1.NodeDisruptionBudgetStatus, before []v1alpha1.NotificationType) []v1alpha1.NotificationType {
	var states []v1alpha1.NotificationType
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	enforced := b.Spec.Enforcement != v1alpha1.BudgetReport && (ready == nil || ready.Reason != v1alpha1.ReasonExpired)
	if enforced && status.ObservedGeneration == b.Generation && budget.IsFreeze(&b.Spec) {
		states = append(states, v1alpha1.NotificationFrozen)
	}
	starting := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReconciling)
	if status.Nodes.Exceeding > 0 && (!starting || slices.Contains(before, v1alpha1.NotificationExceeded)) {
		states = append(states, v1alpha1.NotificationExceeded)
	}
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled) {
		states = append(states, v1alpha1.NotificationStalled)
	}
	return states
}

const thawText = "the freeze has ended: disruptions of its nodes may begin, as far as other NodeDisruptionBudgets allow them"

// freezeText says what a freeze stops, for how long, and who has begun it and why.
func freezeText(b *v1alpha1.NodeDisruptionBudget) string {
	text := "no disruption of nodes begins"
	if b.Spec.AppliesTo == v1alpha1.AppliesToAllTasks {
		text = "no disruption of nodes and no attempt of a NodeJob begins"
	}
	if b.Spec.Selector != nil {
		text += ", on nodes with " + metav1.FormatLabelSelector(b.Spec.Selector)
	}
	if at := b.Spec.ExpiresAt; at != nil {
		text += ", until " + at.UTC().Format(time.RFC3339)
	} else {
		text += ", without an end"
	}
	if by := record.ChangedBy(b.Annotations); by != "" {
		text += ", by " + by
	}
	if b.Spec.Description != "" {
		text += ": " + b.Spec.Description
	}
	return text
}

func exceededText(status *v1alpha1.NodeDisruptionBudgetStatus) string {
	var names []string
	for i := range status.Unavailable {
		names = append(names, fmt.Sprintf("%s (%s)", status.Unavailable[i].Node, status.Unavailable[i].By))
	}
	return fmt.Sprintf("%s not available, which are %d more than the limits allow: %s. To see why: kubectl everynode budgets",
		plural.CountAre(int(status.Nodes.Unavailable), "node"), status.Nodes.Exceeding, strings.Join(names, ", "))
}

func budgetNotification(b *v1alpha1.NodeDisruptionBudget, kind v1alpha1.NotificationType, reason, message string, now time.Time) v1alpha1.Notification {
	return v1alpha1.Notification{
		Type: kind, Time: metav1.NewTime(now.Truncate(time.Second)), Generation: b.Generation, Reason: reason,
		Message: outcome.CleanHead(message, maxMessageBytes), ChangedBy: outcome.CleanHead(record.ChangedBy(b.Annotations), maxNameBytes),
	}
}
