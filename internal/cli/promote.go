// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/ui/apply"
)

func newPromoteCommand(f *console.Factory) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "promote NAME… [--to STEP]",
		Short: "Promote a rollout to its next step, or a later one",
		Long: `Promote a rollout to the step after the current one, or to a later step (--to). This sets
spec.rollout.promoteTo. A soak in progress is not shortened, and failed nodes still stop the rollout.`,
		Example:           "  kubectl everynode promote somaxconn -n node-setup\n  kubectl everynode promote somaxconn -n node-setup --to production-eu",
		Args:              console.AtLeastOneArg("the names of one or more NodeJobs"),
		ValidArgsFunction: f.CompleteOtherJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachJob(cmd.Context(), f, args, func(ctx context.Context, s *apply.Steering) error {
				return s.Change(ctx, func(job *v1alpha1.NodeJob) (steer.Decision, error) { return steer.Promote(job, to) })
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the last step that the rollout may reach")
	_ = cmd.RegisterFlagCompletionFunc("to", f.CompleteSteps)
	return cmd
}
