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
	selection := jobSelection{names: "the names of one or more NodeJobs"}
	cmd := &cobra.Command{
		Use:   "resume NAME… | -l SELECTOR | --all",
		Short: "Resume NodeJobs after suspend or abort",
		Long: `Resume NodeJobs after suspend or abort by setting spec.suspend to false. If spec.startingDeadlineSeconds has passed,
it is extended so that attempts can start for one more hour.`,
		Example:           "  kubectl everynode resume somaxconn -n node-setup\n  kubectl everynode resume --all -n node-setup",
		Args:              selection.args,
		ValidArgsFunction: f.CompleteOtherJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return selection.change(cmd.Context(), f, args, func(job *v1alpha1.NodeJob) steer.Decision { return steer.Resume(job, f.Now()) })
		},
	}
	selection.addFlags(cmd)
	return cmd
}
