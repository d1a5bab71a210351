// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
)

func newPromoteCommand(f *cmdutil.Factory) *cobra.Command {
	var to string
	var full bool
	cmd := &cobra.Command{
		Use:   "promote NAME… [--to STEP | --full]",
		Short: "Promote a rollout to its next step, a later step, or the last step",
		Long: `Promote a rollout to the step after the current one, to a later step (--to), or to the last step (--full). This sets
spec.rollout.promoteTo. A soak in progress is not shortened, and failed nodes still stop the rollout.`,
		Example:           "  kubectl everynode promote somaxconn -n node-setup\n  kubectl everynode promote somaxconn -n node-setup --to production-eu\n  kubectl everynode promote somaxconn -n node-setup --full",
		Args:              cmdutil.AtLeastOneArg("the names of one or more NodeJobs"),
		ValidArgsFunction: f.CompleteSeveralJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if to != "" && full {
				return cmdutil.Failf(cmdutil.ExitUsage, "give --to or --full, not both")
			}
			return eachJob(cmd.Context(), f, args, func(ctx context.Context, m *mutation) error {
				return m.change(ctx, func(job *v1alpha1.NodeJob) (decision, error) { return promote(job, to, full) })
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the last step that the rollout may reach")
	cmd.Flags().BoolVar(&full, "full", false, "it may reach the last step")
	_ = cmd.RegisterFlagCompletionFunc("to", f.CompleteSteps)
	return cmd
}

// promote sets the last step of a rollout. Without a step in the arguments, it sets the step after the current one, not
// the step after promoteTo. So a repeated command promotes by one step only.
func promote(job *v1alpha1.NodeJob, to string, full bool) (decision, error) {
	steps := stepNames(job)
	last := len(steps) - 1
	ceiling := last
	if job.Spec.Rollout.PromoteTo != "" {
		ceiling = slices.Index(steps, job.Spec.Rollout.PromoteTo)
	}
	at := currentStep(job, steps)
	target, err := promotionTarget(job, steps, at, to, full)
	if err != nil {
		return decision{}, err
	}
	switch {
	case target < ceiling && to != "":
		return decision{}, cmdutil.Failf(cmdutil.ExitUsage, "it may already reach step %s, and promote does not go back. To suspend it: kubectl everynode suspend %s -n %s", steps[ceiling], job.Name, job.Namespace)
	case target <= ceiling:
		return decision{nothing: fmt.Sprintf("it may reach step %s already, and is in step %s", steps[ceiling], steps[at])}, nil
	}
	before := cmp.Or(job.Spec.Rollout.PromoteTo, "(none)")
	job.Spec.Rollout.PromoteTo = steps[target]
	d := decision{
		did:    fmt.Sprintf("promoted: spec.rollout.promoteTo %s -> %s", before, steps[target]),
		commit: "spec.rollout.promoteTo: " + steps[target],
	}
	if target == last {
		d.then = fmt.Sprintf("The next revision runs all steps without a pause. To pause it, set promoteTo: %s in the change that creates it.", steps[max(ceiling, 0)])
	}
	return d, nil
}

// promotionTarget returns the step to which the rollout is promoted.
func promotionTarget(job *v1alpha1.NodeJob, steps []string, at int, to string, full bool) (int, error) {
	last := len(steps) - 1
	switch {
	case to != "":
		target := slices.Index(steps, to)
		if target < 0 {
			return 0, cmdutil.Failf(cmdutil.ExitNotFound, "there is no step %s; the steps are %s", to, cmdutil.JoinNames(steps))
		}
		return target, nil
	case full:
		return last, nil
	case at > 0 && job.Status.ObservedGeneration != job.Generation:
		// The status may have the step of the previous revision. A new revision starts with the first step.
		return 0, cmdutil.Failf(cmdutil.ExitError, "the manager has not observed the current spec of the NodeJob yet, so its step is not known: wait a moment, or give --to STEP")
	}
	return min(at+1, last), nil
}

// stepNames returns the names of the steps, also if the API server has not set the defaults.
func stepNames(job *v1alpha1.NodeJob) []string {
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
