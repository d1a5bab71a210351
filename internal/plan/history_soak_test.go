// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// The status says how far a rollout is, and the planner believes it. So the oracle checks each progress that a status
// claims against its own log.

// soakMore gives the second step a soak in some histories.
func (h *history) soakMore() {
	if specs := h.job.Spec.Rollout.Steps; len(specs) == 3 && h.roll(2) {
		specs[1].SoakSeconds = 20
	}
}

// stepsOf are the steps of the NodeJob, or the default ones.
func (h *history) stepsOf() []v1alpha1.RolloutStep {
	if specs := h.job.Spec.Rollout.Steps; len(specs) > 0 {
		return specs
	}
	return []v1alpha1.RolloutStep{{Name: "canary"}, {Name: "all"}}
}

// checkProgress checks the progress of a rollout that a new status claims.
func (h *history) checkProgress(in Input, before, after *v1alpha1.NodeJobStatus) {
	var was v1alpha1.RolloutStatus
	if before.Rollout != nil && before.Revision == after.Revision {
		was = *before.Rollout
	}
	is := after.Rollout
	if is == nil || after.Revision != h.rev {
		return
	}
	specs := h.stepsOf()
	index := func(step string) int {
		return slices.IndexFunc(specs, func(st v1alpha1.RolloutStep) bool { return st.Name == step })
	}
	from, to := max(index(was.Step), 0), index(is.Step)
	switch {
	case to < 0:
		h.break_("status", "the step %q does not exist", is.Step)
		return
	case was.Step == "" || to < from:
		h.stepBegan = h.now
	}
	stable := was.StableAt.IsZero() && !is.StableAt.IsZero()
	if stable && to != len(specs)-1 {
		h.break_("rule 4", "the revision is called stable in step %s", is.Step)
	}
	for k := from; k <= to; k++ {
		passed := k < to || stable
		if soak := time.Duration(specs[k].SoakSeconds) * time.Second; soak > 0 && h.stableAt().IsZero() &&
			(passed || !is.SoakedAt.IsZero()) && !(was.Step == specs[k].Name && !was.SoakedAt.IsZero()) {
			// No step soaks before it begins. The success of the first step is checked when a task starts past it.
			if since := h.now.Sub(h.stepBegan); since+clockStep+time.Second < soak {
				h.break_("rule 4", "step %s is passed %s after it began, and soaks for %s", specs[k].Name, since, soak)
			}
		}
		if k < to {
			h.stepBegan = h.now
		}
	}
	for _, c := range is.UnrecordedFailures {
		known := slices.ContainsFunc(was.UnrecordedFailures, func(b v1alpha1.UnrecordedFailure) bool { return b.UID == c.UID })
		ready := slices.ContainsFunc(in.Nodes, func(n Node) bool { return n.UID == c.UID && n.Ready == corev1.ConditionTrue })
		if !known && ready && c.Reason == v1alpha1.ReasonNotReadyInSoak {
			h.break_("rule 5", "%s counts as failed in its soak, and is Ready", c.Node)
		}
	}
}
