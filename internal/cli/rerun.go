// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/record"
)

func newRerunCommand(f *cmdutil.Factory) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rerun NAME [NODE…]",
		Short: "Run the task again on nodes that are done",
		Long: `Run the task again on nodes that are done, by removing the label of the record; without nodes, on all of them. It is a run
like the first, within rollout.maxConcurrent. Workloads that require the label are not scheduled there until the node is
done again. For failed nodes, see retry.`,
		Example:           "  kubectl everynode rerun somaxconn -n node-setup node-7\n  kubectl everynode rerun somaxconn -n node-setup --yes",
		Args:              cmdutil.AtLeastOneArg("the name of a NodeJob"),
		ValidArgsFunction: f.CompleteJobThenNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := newMutation(f, args[0])
			if err != nil {
				return err
			}
			return m.rerun(cmd.Context(), args[1:], yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (m *mutation) rerun(ctx context.Context, names []string, yes bool) error {
	job, err := cmdutil.GetJob(ctx, m.client, m.key)
	if err != nil {
		return err
	}
	if err := rejectTerminating(job); err != nil {
		return err
	}
	if len(names) == 0 {
		if names, err = m.labelled(ctx, v1alpha1.RecordKey(m.key.Namespace, m.key.Name)); err != nil {
			return err
		}
		if len(names) == 0 {
			return m.tellNothing("it is done on no node")
		}
		if !yes && len(names) > 1 {
			if err := m.Confirm(ctx, fmt.Sprintf("Run %s again on %s: %s", m.key, plural.Count(len(names), "node"), cmdutil.JoinNames(names)), "--yes"); err != nil {
				return err
			}
		}
	}
	changed, err := m.eachNode(ctx, names, newNodeActions(job).rerun)
	if !changed {
		return err
	}
	m.tellUntilResumed(job)
	m.tellCommit(job, "a change of what is executed, such as spec.task.env: [{name: RUN, value: \"2\"}]: it runs again on all nodes")
	return err
}

// labelled returns the nodes that have the label of the record.
func (m *mutation) labelled(ctx context.Context, key string) ([]string, error) {
	var names []string
	page := cmdutil.NewNodeMetadataList()
	err := cmdutil.EachPage(ctx, m.client, page, func() {
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
		}
	}, client.HasLabels{key})
	return names, err
}

// rerun decides about a node on which it is to run again.
func (a nodeActions) rerun(on nodeMetadata) nodeChange {
	rec := on.Record
	switch {
	case !a.isDone(on) && !a.isOld(rec) && rec.Outcome == record.Failed:
		return nodeChange{nothing: "it has failed there; to run it again, use retry"}
	case !a.isDone(on):
		return nodeChange{nothing: "it is not done there, and runs automatically"}
	case a.isOld(rec) || rec.Outcome == record.Succeeded:
		return nodeChange{labels: map[string]*string{a.key: nil}, did: "rerun requested: label " + a.key + " removed"}
	case rec.Outcome == record.Rebooting:
		return nodeChange{nothing: "it runs there now: the node is being rebooted"}
	}
	return a.forget(on, "rerun requested: ") // a user has skipped the node after a failure, which would count again
}
