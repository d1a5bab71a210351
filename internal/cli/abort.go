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
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/apply"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func newAbortCommand(f *console.Factory) *cobra.Command {
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
		Args:              console.AtLeastOneArg("the names of one or more NodeJobs"),
		ValidArgsFunction: f.CompleteOtherJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachJob(cmd.Context(), f, args, func(ctx context.Context, s *apply.Steering) error {
				a := aborting{f, s}
				if rollback {
					return a.abortAndRollBack(ctx, yes)
				}
				return a.abort(ctx)
			})
		},
	}
	cmd.Flags().BoolVar(&rollback, "rollback", false, "delete the NodeJob, and run its rollback on every node on which it has run")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// aborting is the execution of the command for a NodeJob.
type aborting struct {
	f *console.Factory
	*apply.Steering
}

func (a aborting) abort(ctx context.Context) error {
	if err := a.Change(ctx, possible(steer.Abort)); err != nil {
		return err
	}
	return a.endAttempts(ctx)
}

// observedInterval and observedTries limit how long abort waits for the manager.
const (
	observedInterval = 200 * time.Millisecond
	observedTries    = 50
)

// waitObserved waits until the manager has observed the current spec of the NodeJob. A reconcile that began earlier may
// still start an attempt.
func (a aborting) waitObserved(ctx context.Context) (*v1alpha1.NodeJob, error) {
	for range observedTries {
		job, err := cmdutil.GetJob(ctx, a.Client, a.Key)
		if err != nil || job.Status.ObservedGeneration == job.Generation {
			return job, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-a.f.After(observedInterval):
		}
	}
	a.TellHint(fmt.Sprintf("The manager has not confirmed yet that no new attempts start. Check with: kubectl everynode status %s -n %s", a.Key.Name, a.Key.Namespace))
	return cmdutil.GetJob(ctx, a.Client, a.Key)
}

// endAttempts deletes the pods of running tasks.
func (a aborting) endAttempts(ctx context.Context) error {
	job, err := a.waitObserved(ctx)
	if err != nil {
		return err
	}
	pods, err := cmdutil.PodsOf(ctx, a.Client, job)
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		phase := task.PhaseOf(pod.Labels[v1alpha1.PhaseLabel])
		ended := observe.Ended(pod)
		if ended || !pod.DeletionTimestamp.IsZero() || (phase != task.Task && phase != task.Check && !phase.Asks()) {
			continue
		}
		if err := a.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("ending what runs on node %s: %w", pod.Spec.NodeName, cmdutil.Explain(err))
		}
		if err := a.Say(text.Of("node "+pod.Spec.NodeName+": ").Tone(text.Strong, "the running attempt is ended")); err != nil {
			return err
		}
	}
	return nil
}

func (a aborting) abortAndRollBack(ctx context.Context, yes bool) error {
	job, err := a.Job(ctx)
	if err != nil {
		return err
	}
	d, err := steer.RollBack(job)
	switch {
	case err != nil:
		return err
	case d.Job == nil:
		return a.SayNothing(d.Nothing)
	}
	n := job.Status.Nodes
	if !yes {
		question := fmt.Sprintf("Delete NodeJob %s, and roll it back on the nodes on which it has run (%d done, %d running, %d failed)", a.Key, n.Done, n.Running, n.Failed)
		if err := a.f.Confirm(ctx, question, "--yes"); err != nil {
			return err
		}
	}
	if err := a.Change(ctx, steer.RollBack); err != nil {
		return err
	}
	if err := a.endAttempts(ctx); err != nil {
		return err
	}
	if err := a.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeJob %s: %w", a.Key, cmdutil.Explain(err))
	}
	return a.SayDone(job, steer.Decision{
		Did:    "is being rolled back, and is deleted afterwards",
		Then:   fmt.Sprintf("To watch the progress: kubectl everynode status %s -n %s --watch", job.Name, job.Namespace),
		Commit: "spec.deletionPolicy: Rollback first, and then the removal of the NodeJob",
	})
}
