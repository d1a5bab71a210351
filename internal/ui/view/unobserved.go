// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/text"
)

// CheckManager is the command that shows whether a manager is available, and if not, why.
const CheckManager = "kubectl everynode version"

// observeTimeout is the time within which a manager observes a change.
const observeTimeout = 10 * time.Second

// unobserved returns for how long the last change of a NodeJob has waited for a manager. It returns 0 if a manager has
// observed the change, or may be about to.
func unobserved(job *v1alpha1.NodeJob, now time.Time) time.Duration {
	changed := changedAt(job)
	if job.Status.ObservedGeneration == job.Generation || changed.IsZero() || aboutToBeObserved(job, now) {
		return 0
	}
	return now.Sub(changed)
}

// aboutToBeObserved reports whether the last change of a NodeJob is so new that a manager may just not have observed it yet.
func aboutToBeObserved(job *v1alpha1.NodeJob, now time.Time) bool {
	return now.Sub(changedAt(job)) < observeTimeout
}

// changedAt returns the time of the last change of a NodeJob other than of its status.
func changedAt(job *v1alpha1.NodeJob) time.Time {
	latest := job.CreationTimestamp.Time
	if at := job.DeletionTimestamp; at != nil && at.After(latest) {
		latest = at.Time
	}
	for _, entry := range job.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(latest) {
			latest = entry.Time.Time
		}
	}
	return latest
}

// unobservedMessage returns that no manager has observed the last change of a NodeJob, for how long, and what to do; "" if
// a manager has, or may be about to.
func unobservedMessage(job *v1alpha1.NodeJob, now time.Time) string {
	waited := unobserved(job, now)
	if waited == 0 {
		return ""
	}
	change, older := "the last change of its spec", "; the following is older"
	switch {
	case !job.DeletionTimestamp.IsZero():
		change, older = "its deletion", ""
	case job.Status.ObservedGeneration <= 0:
		change, older = "it", ""
	}
	return noManager(change, waited) + older
}

// noManager returns that no manager has observed something, for how long, and what to do.
func noManager(what string, waited time.Duration) string {
	return fmt.Sprintf("no manager has observed %s for %s; check that one is running: %s", what, duration.HumanDuration(waited), CheckManager)
}

// Unobserved returns a warning about the listed NodeJobs that no manager has observed, for a terminal of this width; nil if
// there are none.
func (l List) Unobserved(width int) []text.Line {
	first, more, longest := "", 0, time.Duration(0)
	for i := range l.Jobs {
		job := &l.Jobs[i]
		waited := unobserved(job, l.Now)
		switch {
		case waited == 0:
			continue
		case first == "":
			first = job.Namespace + "/" + job.Name
		default:
			more++
		}
		longest = max(longest, waited)
	}
	if first == "" {
		return nil
	}
	which := "NodeJob " + first
	if more > 0 {
		which += fmt.Sprintf(" and %d more", more)
	}
	return Warning(noManager(which, longest), width)
}

// Warning draws a warning; nothing if it is "".
func Warning(message string, width int) []text.Line {
	if message == "" {
		return nil
	}
	return text.Wrap(text.Toned(text.Warn, "warning: "), text.Plain, message, width)
}
