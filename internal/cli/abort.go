// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/task"
	"github.com/everynode/everynode/internal/text"
)

func newAbortCommand(f *cmdutil.Factory) *cobra.Command {
	var rollback, yes bool
	cmd := &cobra.Command{
		Use:   "abort NAME… [--rollback]",
		Short: "Suspend NodeJobs and end running attempts; with --rollback, also roll them back",
		Long: `Suspend NodeJobs by setting spec.suspend, and end running attempts: their scripts get SIGTERM, and have 25 seconds to
end. Nodes that are done do not change; resume continues with the other nodes. Running rollbacks, and runs whose node is
being rebooted, finish.

With --rollback, each NodeJob is deleted with deletionPolicy Rollback: spec.rollback runs on every node on which the task
has run, and the records are removed. The NodeJob exists until all rollbacks are done.`,
		Example:           "  kubectl everynode abort somaxconn -n node-setup\n  kubectl everynode abort somaxconn -n node-setup --rollback",
		Args:              cmdutil.AtLeastOneArg("the names of one or more NodeJobs"),
		ValidArgsFunction: f.CompleteSeveralJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachJob(cmd.Context(), f, args, func(ctx context.Context, m *mutation) error {
				if rollback {
					return m.abortAndRollBack(ctx, yes)
				}
				return m.abort(ctx)
			})
		},
	}
	cmd.Flags().BoolVar(&rollback, "rollback", false, "delete the NodeJob, and run its rollback on every node on which it has run")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (m *mutation) abort(ctx context.Context) error {
	if err := m.change(ctx, func(job *v1alpha1.NodeJob) (decision, error) {
		d, err := suspend(job)
		d.then = "" // running attempts are ended now
		return d, err
	}); err != nil {
		return err
	}
	return m.endAttempts(ctx)
}

// observedInterval and observedTries limit how long abort waits for the manager.
const (
	observedInterval = 200 * time.Millisecond
	observedTries    = 50
)

// waitObserved waits until the manager has observed the current spec of the NodeJob. A reconcile that began earlier may
// still start an attempt.
func (m *mutation) waitObserved(ctx context.Context) (*v1alpha1.NodeJob, error) {
	for range observedTries {
		job, err := cmdutil.GetJob(ctx, m.client, m.key)
		if err != nil || job.Status.ObservedGeneration == job.Generation {
			return job, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.After(observedInterval):
		}
	}
	m.tellDim(fmt.Sprintf("The manager has not confirmed yet that no new attempts start. Check with: kubectl everynode status %s -n %s", m.key.Name, m.key.Namespace))
	return cmdutil.GetJob(ctx, m.client, m.key)
}

// endAttempts deletes the pods of running tasks.
func (m *mutation) endAttempts(ctx context.Context) error {
	job, err := m.waitObserved(ctx)
	if err != nil {
		return err
	}
	pods, err := cmdutil.PodsOf(ctx, m.client, job)
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		phase := task.PhaseOf(pod.Labels[v1alpha1.PhaseLabel])
		ended := observe.Ended(pod)
		if ended || !pod.DeletionTimestamp.IsZero() || (phase != task.Task && phase != task.Check) {
			continue
		}
		if err := m.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("ending what runs on node %s: %w", pod.Spec.NodeName, cmdutil.Explain(err))
		}
		if err := m.Say(text.Of("node "+pod.Spec.NodeName+": ").Tone(text.Strong, "the running attempt is ended")); err != nil {
			return err
		}
	}
	return nil
}

func (m *mutation) abortAndRollBack(ctx context.Context, yes bool) error {
	job, err := cmdutil.GetJob(ctx, m.client, m.key)
	switch {
	case err != nil:
		return err
	case job.Spec.Rollback == nil:
		return cmdutil.Failf(cmdutil.ExitUsage, "NodeJob %s has no spec.rollback, so it cannot be rolled back. Add spec.rollback, or stop it without a rollback: kubectl everynode abort %s -n %s", m.key, job.Name, job.Namespace)
	case !job.DeletionTimestamp.IsZero() && job.Spec.DeletionPolicy == v1alpha1.DeletionRollback:
		return m.tellNothing("it is being rolled back already")
	}
	n := job.Status.Nodes
	if !yes {
		question := fmt.Sprintf("Delete NodeJob %s, and roll it back on the nodes on which it has run (%d done, %d running, %d failed)", m.key, n.Done, n.Running, n.Failed)
		if err := m.Confirm(ctx, question, "--yes"); err != nil {
			return err
		}
	}
	if err := m.change(ctx, func(job *v1alpha1.NodeJob) (decision, error) {
		before := job.Spec.DeletionPolicy
		job.Spec.DeletionPolicy, job.Spec.Suspend = v1alpha1.DeletionRollback, true
		return decision{did: fmt.Sprintf("aborted: spec.suspend true, spec.deletionPolicy %s -> %s", before, v1alpha1.DeletionRollback)}, nil
	}); err != nil {
		return err
	}
	if err := m.endAttempts(ctx); err != nil {
		return err
	}
	if err := m.client.Delete(ctx, job, client.Preconditions{UID: &job.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeJob %s: %w", m.key, cmdutil.Explain(err))
	}
	return m.tell(job, decision{
		did:    "is being rolled back, and is deleted afterwards",
		then:   fmt.Sprintf("To watch the progress: kubectl everynode status %s -n %s --watch", job.Name, job.Namespace),
		commit: "spec.deletionPolicy: Rollback first, and then the removal of the NodeJob",
	})
}
