// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/ui/eta"
)

// estimated says when a rollout ends, in whole minutes. It does not look more precise than it is.
func estimated(e *eta.Estimate, job *v1alpha1.NodeJob) string {
	const day, minute = "Monday 2006-01-02", " 15:04"
	p50, p95 := e.P50.UTC().Round(time.Minute), e.P95.UTC().Round(time.Minute)
	said := "about " + duration.HumanDuration(e.Work.Round(time.Second)) + " of work; ends " + p50.Format(day+minute) + " UTC (P50) to"
	if p50.Format(day) != p95.Format(day) {
		said += " " + p95.Format(day)
	}
	said += p95.Format(minute) + " (P95)"
	if e.Windows > 0 {
		said += ", in " + plural.Count(e.Windows, "window")
	}
	if steps := job.Status.Rollout.Steps; job.Spec.Rollout.PromoteTo != "" && steps[len(steps)-1].Name != job.Spec.Rollout.PromoteTo {
		said += ", up to step " + job.Spec.Rollout.PromoteTo
	}
	return said
}
