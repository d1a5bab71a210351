// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/steer"
)

func newResumeCommand(f *console.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "resume NAME…",
		Short: "Resume NodeJobs after suspend or abort",
		Long: `Resume NodeJobs after suspend or abort by setting spec.suspend to false. If spec.startingDeadlineSeconds has passed,
it is extended so that attempts can start for one more hour.`,
		Example:           "  kubectl everynode resume somaxconn -n node-setup",
		Args:              console.AtLeastOneArg("the names of one or more NodeJobs"),
		ValidArgsFunction: f.CompleteOtherJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeEach(cmd.Context(), f, args, func(job *v1alpha1.NodeJob) steer.Decision { return steer.Resume(job, f.Now()) })
		},
	}
}
