// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func newSkipCommand(f *console.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "skip NAME NODE…",
		Short: "Mark nodes as done without a run",
		Long: `Mark nodes as done with the current revision without a run, by setting the label of the record. The next revision runs
on them. A gate opens, and a node that this NodeJob quarantined is uncordoned.`,
		Example:           "  kubectl everynode skip somaxconn -n node-setup node-7",
		ValidArgsFunction: f.CompleteJobThenNodes,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cmdutil.Failf(cmdutil.ExitUsage, "%s takes the name of a NodeJob and of nodes. See: %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSteering(f, args[0])
			if err != nil {
				return err
			}
			return s.Skip(cmd.Context(), args[1:])
		},
	}
}
