// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// deadline returns when the release deadline of a held node passes; zero if there is none.
func (o observed) deadline(n *nodePlan) time.Time {
	seconds := o.in.Guard.Spec.Release.DeadlineSeconds
	if seconds == nil {
		return time.Time{}
	}
	return n.requestedAt.Add(time.Duration(*seconds) * time.Second)
}

func (o observed) pastDeadline(n *nodePlan) bool {
	deadline := o.deadline(n)
	return !deadline.IsZero() && !o.in.Now.Before(deadline)
}

func (o observed) onDeadline() v1alpha1.DeadlineAction {
	if o.in.Guard.Spec.Release.OnDeadline == "" {
		return v1alpha1.OnDeadlineHold
	}
	return o.in.Guard.Spec.Release.OnDeadline
}

// pastReleaseDeadline reports whether the deadline has passed. After it, a node no longer waits for its condition, nor
// for nodes that are unavailable without a release.
func (o observed) pastReleaseDeadline(n *nodePlan) bool {
	return o.pastDeadline(n) && o.onDeadline() == v1alpha1.OnDeadlineRelease
}

// withDeadline notes in a hold that the deadline has passed.
func (o observed) withDeadline(n *nodePlan, h *holding) *holding {
	late := *h
	late.late = o.pastDeadline(n)
	switch {
	case late.late && o.onDeadline() == v1alpha1.OnDeadlineHold:
		late.note = "; its deadline has passed, and release.onDeadline is Hold"
	case late.late:
		late.note = "; its deadline has passed, and it waits for nothing else"
	}
	return &late
}
