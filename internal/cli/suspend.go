// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/plural"
)

func newSuspendCommand(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "suspend NAME…",
		Short: "Suspend NodeJobs: start nothing new, and let running attempts finish",
		Long: `Suspend NodeJobs by setting spec.suspend: no attempt, rollback or drain starts. Attempts that are running finish, and
their outcome is recorded. To end them as well, use abort.`,
		Example:           "  kubectl everynode suspend somaxconn -n node-setup\n  kubectl everynode suspend somaxconn max-map-count -n node-setup",
		Args:              cmdutil.AtLeastOneArg("the names of one or more NodeJobs"),
		ValidArgsFunction: f.CompleteSeveralJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachJob(cmd.Context(), f, args, func(ctx context.Context, m *mutation) error { return m.change(ctx, suspend) })
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
