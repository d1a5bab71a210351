// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/plural"
)

func newSuspendCommand(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "suspend NAME",
		Short: "Suspend a NodeJob: start nothing new, and let running attempts finish",
		Long: `Suspend a NodeJob by setting spec.suspend: no attempt, rollback or drain starts. Attempts that are running finish, and
their outcome is recorded. To end them as well, use abort.`,
		Example:           "  kubectl everynode suspend somaxconn -n node-setup",
		Args:              cmdutil.ExactArgs(1, "the name of a NodeJob"),
		ValidArgsFunction: f.CompleteJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := newMutation(f, args[0])
			if err != nil {
				return err
			}
			return m.change(cmd.Context(), suspend)
		},
	}
}

func suspend(job *v1alpha1.NodeJob) (decision, error) {
	if job.Spec.Suspend {
		return decision{nothing: "it is already suspended"}, nil
	}
	job.Spec.Suspend = true
	d := decision{did: "suspended: spec.suspend false -> true", commit: "spec.suspend: true"}
	if n := job.Status.Nodes.Running; n > 0 {
		d.then = fmt.Sprintf("It is running on %s and may finish there. To end it: kubectl everynode abort %s -n %s", plural.Count(n, "node"), job.Name, job.Namespace)
	}
	return d, nil
}
