// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Promote sets the last step of a rollout: step to, or without it the step after the current one, not the step
// after promoteTo. So a repeated command promotes by one step only.
func Promote(job *v1alpha1.NodeJob, to string) (Decision, error) {
	steps := StepNames(job)
	last := len(steps) - 1
	ceiling := last
	if job.Spec.Rollout.PromoteTo != "" {
		ceiling = slices.Index(steps, job.Spec.Rollout.PromoteTo)
	}
	at := currentStep(job, steps)
	target, err := promotionTarget(job, steps, at, to)
	if err != nil {
		return Decision{}, err
	}
	switch {
	case target < ceiling && to != "":
		return Decision{}, refuse(Unsuitable, "it may already reach step %s, and promote does not go back. To suspend it: kubectl everynode suspend %s -n %s",
			steps[ceiling], job.Name, job.Namespace)
	case target <= ceiling:
		return nothing(fmt.Sprintf("it may reach step %s already, and is in step %s", steps[ceiling], steps[at])), nil
	}
	changed := job.DeepCopy()
	changed.Spec.Rollout.PromoteTo = steps[target]
	d := Decision{
		Job:    changed,
		Did:    fmt.Sprintf("promoted: spec.rollout.promoteTo %s -> %s", cmp.Or(job.Spec.Rollout.PromoteTo, "(none)"), steps[target]),
		Commit: "spec.rollout.promoteTo: " + steps[target],
	}
	if target == last {
		d.Then = fmt.Sprintf("The next revision runs all steps without a pause. To pause it, set promoteTo: %s in the change that creates it.",
			steps[max(ceiling, 0)])
	}
	return d, nil
}

// promotionTarget returns the step to which the rollout is promoted.
func promotionTarget(job *v1alpha1.NodeJob, steps []string, at int, to string) (int, error) {
	last := len(steps) - 1
	switch {
	case to != "":
		target := slices.Index(steps, to)
		if target < 0 {
			return 0, refuse(UnknownStep, "there is no step %s; the steps are %s", to, strings.Join(steps, ", "))
		}
		return target, nil
	case at > 0 && job.Status.ObservedGeneration != job.Generation:
		// The status may have the step of the previous revision. A new revision starts with the first step.
		return 0, refuse(TooEarly, "the manager has not observed the current spec of the NodeJob yet, so its step is not known: wait a moment, or give --to STEP")
	}
	return min(at+1, last), nil
}

// StepNames returns the names of the steps, also if the API server has not set the defaults.
func StepNames(job *v1alpha1.NodeJob) []string {
	names := make([]string, 0, len(job.Spec.Rollout.Steps))
	for i := range job.Spec.Rollout.Steps {
		names = append(names, job.Spec.Rollout.Steps[i].Name)
	}
	if len(names) == 0 {
		return []string{"canary", "all"}
	}
	return names
}

// currentStep returns the current step of the rollout: the first if none is known.
func currentStep(job *v1alpha1.NodeJob, steps []string) int {
	if job.Status.Rollout == nil {
		return 0
	}
	return max(slices.Index(steps, job.Status.Rollout.Step), 0)
}
