// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/view"
)

func newSkipCommand(f *cmdutil.Factory) *cobra.Command {
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
			m, err := newMutation(f, args[0])
			if err != nil {
				return err
			}
			return m.skip(cmd.Context(), args[1:])
		},
	}
}

// revisionOf returns the revision with which nodes are done.
func revisionOf(job *v1alpha1.NodeJob) (string, error) {
	switch revision := job.Status.Revision; {
	case job.Status.ObservedGeneration != job.Generation:
		return "", cmdutil.Failf(cmdutil.ExitError, "the current revision is not known yet, because the manager has not observed the current spec: wait, or check with: kubectl everynode status %s -n %s", job.Name, job.Namespace)
	case revision == "":
		_, reason, message := view.Situation(job)
		return "", cmdutil.Failf(cmdutil.ExitError, "the current revision is not known (%s): %s", reason, message)
	default:
		return revision, nil
	}
}

func (m *mutation) skip(ctx context.Context, names []string) error {
	job, err := m.job(ctx)
	if err != nil {
		return err
	}
	if err := rejectTerminating(job); err != nil {
		return err
	}
	revision, err := revisionOf(job)
	if err != nil {
		return err
	}
	key := v1alpha1.RecordKey(m.key.Namespace, m.key.Name)
	changed, err := m.eachNode(ctx, names, func(on nodeMetadata) nodeChange {
		if on.Label == revision {
			return nodeChange{nothing: "it counts as done with revision " + revision + " already"}
		}
		return nodeChange{labels: map[string]*string{key: &revision}, did: "counts as done without a run: label " + key + "=" + revision}
	})
	if !changed {
		return err
	}
	m.tellCommit(job, "a label of your own on such nodes, and a spec.nodes.selector that excludes it: skip applies to the current revision only")
	return err
}
