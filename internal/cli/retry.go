// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func newRetryCommand(f *console.Factory) *cobra.Command {
	var failed, withOthers bool
	selection := jobSelection{names: "the name of a NodeJob"}
	cmd := &cobra.Command{
		Use:   "retry NAME [NODE… | --failed] | -l SELECTOR | --all",
		Short: "Retry the task on nodes on which it failed",
		Long: `Retry the task on nodes on which it failed, with attempts counted from 1. Without nodes, on all failed nodes: any new value
of the annotation everynode.dev/retry of the NodeJob requests this. On named nodes, it writes the request to their records.
During a rollout, no other node starts until the named nodes are done, or have failed again; with --with-others, the rollout
continues at the same time. With -l or --all, it is done for all failed nodes of the selected NodeJobs. For nodes that are done, see
rerun.`,
		Example: `  # all nodes on which it failed
  kubectl everynode retry somaxconn -n node-setup

  # first this node, then the others
  kubectl everynode retry somaxconn -n node-setup node-7

  # all nodes on which any of these NodeJobs failed
  kubectl everynode retry -l team=storage -n node-setup`,
		Args:              selection.args,
		ValidArgsFunction: f.CompleteJobThenNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if failed && len(args) > 1 {
				return cmdutil.Failf(cmdutil.ExitUsage, "name nodes, or give --failed for all that have failed: not both")
			}
			if withOthers && len(args) <= 1 {
				return cmdutil.Failf(cmdutil.ExitUsage, "--with-others is for named nodes: without them, all failed nodes are retried, and the rollout continues")
			}
			if len(args) <= 1 {
				return selection.change(cmd.Context(), f, args, func(job *v1alpha1.NodeJob) steer.Decision { return steer.RetryAll(job, f.Now()) })
			}
			s, err := newSteering(f, args[0])
			if err != nil {
				return err
			}
			return s.Retry(cmd.Context(), args[1:], !withOthers)
		},
	}
	cmd.Flags().BoolVar(&failed, "failed", false, "all nodes on which it failed, as without nodes")
	cmd.Flags().BoolVar(&withOthers, "with-others", false, "do not make other nodes wait for the named nodes")
	selection.addFlags(cmd)
	return cmd
}
