// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
)

// nodeGuard returns the names of the nodes that are reported as held for too long when the status of a NodeGuard becomes after,
// the new notifications, and after which time a node that is held now is held for too long; zero if none is. A hold is too long at the
// deadline of the NodeGuard, and after the limit, if it is not 0.
func nodeGuard(g *v1alpha1.NodeGuard, after *v1alpha1.NodeGuardStatus, limit time.Duration, now time.Time) (held []string, made []v1alpha1.Notification, wait time.Duration) {
	var before []string
	if g.Status.ControllerState.Notifications != nil {
		before = g.Status.ControllerState.Notifications.Held
	}
	for i := range after.Waiting {
		h := &after.Waiting[i]
		due := h.Since.Add(limit)
		late := (g.Spec.Release.DeadlineSeconds != nil && h.Until.IsZero()) || (limit > 0 && !now.Before(due))
		switch {
		case slices.Contains(before, h.Node):
			held = append(held, h.Node)
		case late && h.Reason != v1alpha1.ReasonReleasing:
			held, made = append(held, h.Node), append(made, drainHeld(g, h, now))
		case !late && limit > 0:
			wait = loop.Soonest(wait, due.Sub(now))
		}
	}
	return held, made, wait
}

func drainHeld(g *v1alpha1.NodeGuard, h *v1alpha1.WaitingNode, now time.Time) v1alpha1.Notification {
	return v1alpha1.Notification{
		Type: v1alpha1.NotificationDrainHeld, Time: metav1.NewTime(now.Truncate(time.Second)), Generation: g.Generation, Node: h.Node,
		Reason: h.Reason, Message: outcome.CleanHead(guard.Sentence(g.Namespace+"/"+g.Name, h), maxMessageBytes),
		ChangedBy: record.ChangedBy(g.Annotations),
	}
}
