// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/record"
)

func newRetryCommand(f *cmdutil.Factory) *cobra.Command {
	var failed, withOthers bool
	cmd := &cobra.Command{
		Use:   "retry NAME [NODE… | --failed]",
		Short: "Retry the task on nodes on which it failed",
		Long: `Retry the task on nodes on which it failed, with attempts counted from 1. Without nodes, on all failed nodes: any new value
of the annotation everynode.dev/retry of the NodeJob requests this. On named nodes, it writes the request to their records.
During a rollout, no other node starts until the named nodes are done, or have failed again; with --with-others, the rollout
continues at the same time. For nodes that are done, see rerun.`,
		Example: `  # all nodes on which it failed
  kubectl everynode retry somaxconn -n node-setup

  # first this node, then the others
  kubectl everynode retry somaxconn -n node-setup node-7`,
		Args:              cmdutil.AtLeastOneArg("the name of a NodeJob"),
		ValidArgsFunction: f.CompleteJobThenNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if failed && len(args) > 1 {
				return cmdutil.Failf(cmdutil.ExitUsage, "name nodes, or give --failed for all that have failed: not both")
			}
			if withOthers && len(args) == 1 {
				return cmdutil.Failf(cmdutil.ExitUsage, "--with-others is for named nodes: without them, all failed nodes are retried, and the rollout continues")
			}
			m, err := newMutation(f, args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return m.change(cmd.Context(), func(job *v1alpha1.NodeJob) (decision, error) { return retryAll(job, f.Now()) })
			}
			return m.retryNodes(cmd.Context(), args[1:], !withOthers)
		},
	}
	cmd.Flags().BoolVar(&failed, "failed", false, "all nodes on which it failed, as without nodes")
	cmd.Flags().BoolVar(&withOthers, "with-others", false, "do not make other nodes wait for the named nodes")
	return cmd
}

// retryAll requests a retry on every failed node.
func retryAll(job *v1alpha1.NodeJob, now time.Time) (decision, error) {
	status := &job.Status
	unrecorded := status.Rollout != nil && len(status.Rollout.UnrecordedFailures) > 0
	if status.Nodes.Failed == 0 && len(status.Failures) == 0 && !unrecorded {
		return decision{nothing: "no node has failed"}, nil
	}
	value := strconv.FormatInt(now.Unix(), 10)
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	job.Annotations[v1alpha1.RetryAnnotation] = value
	n := max(int(status.Nodes.Failed), len(status.Failures))
	return decision{
		did:    fmt.Sprintf("retry requested on %s: annotation %s=%s", plural.Count(n, "node"), v1alpha1.RetryAnnotation, value),
		then:   untilResumed(job),
		commit: "metadata.annotations: {" + v1alpha1.RetryAnnotation + ": " + strconv.Quote(value) + "}; any new value requests a retry",
	}, nil
}

func (m *mutation) retryNodes(ctx context.Context, names []string, alone bool) error {
	job, err := m.job(ctx)
	if err != nil {
		return err
	}
	if err := rejectTerminating(job); err != nil {
		return err
	}
	changed, err := m.eachNode(ctx, names, func(on nodeMetadata) nodeChange { return newNodeActions(job).retry(on, alone) })
	if changed {
		m.tellUntilResumed(job)
		m.tellDim("With GitOps, commit nothing: the change is on the nodes.")
	}
	return err
}

// retry decides what to write to a node to retry the task there. With alone, other nodes wait for its end.
func (a nodeActions) retry(on nodeMetadata, alone bool) nodeChange {
	rec := on.Record
	switch {
	case on.Altered && on.Label == "":
		return nodeChange{nothing: "its record was changed by something other than the manager and is ignored: the task runs there automatically"}
	case rec == nil && on.Label == "":
		return nodeChange{nothing: "no attempt has ended there"}
	case a.isDone(on):
		return nodeChange{nothing: "it is done there; to run it again, use rerun"}
	case a.isOld(rec):
		return nodeChange{nothing: "it has not run there with revision " + a.revision() + " yet, and does so automatically"}
	case rec.Outcome != record.Failed && rec.Outcome != record.Disrupted:
		return nodeChange{nothing: "it has not failed there: the record says " + string(rec.Outcome)}
	}
	return a.requestRetry(on, alone)
}
