// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/eta"
)

func TestEstimated(t *testing.T) {
	sunday := time.Date(2026, 7, 5, 4, 10, 20, 0, time.UTC)
	j := job(func(j *v1alpha1.NodeJob) {
		stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonWaitingForBudget, "3 of 12 nodes are done")
		j.Status.Nodes = v1alpha1.NodeCounts{Total: 12, Done: 3, Waiting: 9}
		rollout(j, "canary", v1alpha1.StepStatus{Name: "canary", Nodes: 3, Done: 3}, v1alpha1.StepStatus{Name: "all", Nodes: 9})
	})
	for name, tt := range map[string]struct {
		estimate  eta.Estimate
		promoteTo string
		want      string
	}{
		"in windows": {
			eta.Estimate{Work: 3 * time.Hour, P50: sunday, P95: sunday.Add(50 * time.Minute), Windows: 2}, "all",
			"about 3h of work; ends Sunday 2026-07-05 04:10 UTC (P50) to 05:00 (P95), in 2 windows",
		},
		"over midnight, up to a step": {
			eta.Estimate{Work: 90 * time.Minute, P50: sunday, P95: sunday.Add(20 * time.Hour)}, "canary",
			"about 90m of work; ends Sunday 2026-07-05 04:10 UTC (P50) to Monday 2026-07-06 00:10 (P95), up to step canary",
		},
	} {
		t.Run(name, func(t *testing.T) {
			j.Spec.Rollout.PromoteTo = tt.promoteTo
			if got := estimated(&tt.estimate, j); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
	j.Spec.Rollout.PromoteTo = ""
	estimate := &eta.Estimate{Work: 3 * time.Hour, P50: sunday, P95: sunday.Add(50 * time.Minute), Windows: 2}
	drawn(t, "status-estimate", func(width int) []text.Line { return Status{Job: j, Now: now, Width: width, Estimate: estimate}.Lines() })
}
