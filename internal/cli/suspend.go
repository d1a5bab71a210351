// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/steer"
)

func newSuspendCommand(f *console.Factory) *cobra.Command {
	selection := jobSelection{names: "the names of one or more NodeJobs"}
	cmd := &cobra.Command{
		Use:   "suspend NAME… | -l SELECTOR | --all",
		Short: "Suspend NodeJobs: start nothing new, and let running attempts finish",
		Long: `Suspend NodeJobs by setting spec.suspend: no attempt, rollback or drain starts. Attempts that are running finish, and
their outcome is recorded. To end them as well, use abort.`,
		Example:           "  kubectl everynode suspend somaxconn -n node-setup\n  kubectl everynode suspend somaxconn max-map-count -n node-setup\n  kubectl everynode suspend -l team=storage -A",
		Args:              selection.args,
		ValidArgsFunction: f.CompleteOtherJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return selection.change(cmd.Context(), f, args, steer.Suspend)
		},
	}
	selection.addFlags(cmd)
	return cmd
}
