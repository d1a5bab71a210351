// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/ui/apply"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func newRerunCommand(f *console.Factory) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rerun NAME [NODE…]",
		Short: "Run the task again on nodes that are done",
		Long: `Run the task again on nodes that are done, by removing the label of the record; without nodes, on all of them. It is a run
like the first, within rollout.maxConcurrent. Workloads that require the label are not scheduled there until the node is
done again. For failed nodes, see retry.`,
		Example:           "  kubectl everynode rerun somaxconn -n node-setup node-7\n  kubectl everynode rerun somaxconn -n node-setup --yes",
		Args:              console.AtLeastOneArg("the name of a NodeJob"),
		ValidArgsFunction: f.CompleteJobThenNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSteering(f, args[0])
			if err != nil {
				return err
			}
			return rerun(cmd.Context(), f, s, args[1:], yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func rerun(ctx context.Context, f *console.Factory, s *apply.Steering, names []string, yes bool) error {
	job, err := s.Job(ctx)
	if err != nil {
		return err
	}
	if err := steer.MayChangeNodes(job); err != nil {
		return err
	}
	if len(names) == 0 {
		if names, err = labelled(ctx, s.Client, v1alpha1.RecordKey(s.Key.Namespace, s.Key.Name)); err != nil {
			return err
		}
		if len(names) == 0 {
			return s.SayNothing("it is done on no node")
		}
		if !yes && len(names) > 1 {
			if err := f.Confirm(ctx, fmt.Sprintf("Run %s again on %s: %s", s.Key, plural.Count(len(names), "node"), cmdutil.JoinNames(names)), "--yes"); err != nil {
				return err
			}
		}
	}
	changed, err := s.EachNode(ctx, job, names, func(node steer.Node) steer.NodeDecision { return steer.Rerun(job, node) })
	if !changed {
		return err
	}
	s.TellUntilResumed(job)
	s.TellCommit(job, "a change of what is executed, such as spec.task.env: [{name: RUN, value: \"2\"}]: it runs again on all nodes")
	return err
}

// labelled returns the nodes that have the label of the record.
func labelled(ctx context.Context, c client.Client, key string) ([]string, error) {
	var names []string
	err := cmdutil.EachNode(ctx, c, func(node *metav1.PartialObjectMetadata) { names = append(names, node.Name) }, client.HasLabels{key})
	return names, err
}
