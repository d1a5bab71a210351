// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/task"
)

func newAbortCommand(f *cmdutil.Factory) *cobra.Command {
	var rollback, yes bool
	cmd := &cobra.Command{
		Use:   "abort NAME [--rollback]",
		Short: "Start nothing new, and end what runs; with --rollback undo what was done",
		Long: `Start nothing new (spec.suspend), and end the attempts that run: their scripts get SIGTERM, and 25 seconds. Nodes that
are done stay as they are; resume goes on with the others. Rollbacks, and runs whose node is being rebooted, may end.

With --rollback, what was done is undone: the NodeJob is deleted with deletionPolicy RollBack, which runs spec.rollback on
every node that the task has run on, and takes the records away. The NodeJob is gone when the last is undone.`,
		Example:           "  kubectl everynode abort somaxconn -n node-setup\n  kubectl everynode abort somaxconn -n node-setup --rollback",
		Args:              cmdutil.ExactArgs(1, "the name of a NodeJob"),
		ValidArgsFunction: f.CompleteJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newMutation(f, args[0])
			if err != nil {
				return err
			}
			if rollback {
				return s.abortAndRollBack(cmd.Context(), yes)
			}
			return s.abort(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&rollback, "rollback", false, "delete the NodeJob, and run its rollback on every node that it has run on")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (s *mutation) abort(ctx context.Context) error {
	if err := s.change(ctx, func(job *v1alpha1.NodeJob) (decision, error) {
		d, err := suspend(job)
		d.then = "" // running attempts are ended now
		return d, err
	}); err != nil {
		return err
	}
	return s.endAttempts(ctx)
}

// Timeouts of abort.
const (
	heedEvery = 200 * time.Millisecond
	heedTries = 50
)

// waitObserved waits until the manager has observed the current spec of the NodeJob. A reconcile that began earlier may
// still start an attempt.
func (s *mutation) waitObserved(ctx context.Context) (*v1alpha1.NodeJob, error) {
	for range heedTries {
		job, err := cmdutil.GetJob(ctx, s.client, s.key)
		if err != nil || job.Status.ObservedGeneration == job.Generation {
			return job, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.After(heedEvery):
		}
	}
	s.tellDim("No manager has confirmed yet that nothing new starts: look again with status.")
	return cmdutil.GetJob(ctx, s.client, s.key)
}

// endAttempts deletes the pods of running tasks.
func (s *mutation) endAttempts(ctx context.Context) error {
	job, err := s.waitObserved(ctx)
	if err != nil {
		return err
	}
	pods, err := cmdutil.PodsOf(ctx, s.client, job)
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		phase := task.PhaseOf(pod.Labels[v1alpha1.PhaseLabel])
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if ended || !pod.DeletionTimestamp.IsZero() || (phase != task.Task && phase != task.Verify) {
			continue
		}
		if err := s.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("ending what runs on node %s: %w", pod.Spec.NodeName, cmdutil.Explain(err))
		}
		if err := s.Print([]text.Line{text.Of("node "+pod.Spec.NodeName+": ").Tone(text.Strong, "what runs there is ended")}); err != nil {
			return err
		}
	}
	return nil
}

func (s *mutation) abortAndRollBack(ctx context.Context, yes bool) error {
	job, err := cmdutil.GetJob(ctx, s.client, s.key)
	switch {
	case err != nil:
		return err
	case job.Spec.Rollback == nil:
		return cmdutil.Failf(cmdutil.ExitUsage, "NodeJob %s has no spec.rollback, so it cannot be rolled back. Add spec.rollback, or stop it without a rollback: kubectl everynode abort %s -n %s", s.key, job.Name, job.Namespace)
	case !job.DeletionTimestamp.IsZero() && job.Spec.DeletionPolicy == v1alpha1.DeletionRollBack:
		return s.tellNothing("it is being rolled back already")
	}
	n := job.Status.Nodes
	if !yes {
		question := fmt.Sprintf("Delete NodeJob %s, and undo it on the nodes that it has run on (%d done, %d running, %d failed)", s.key, n.Done, n.Running, n.Failed)
		if err := s.Confirm(ctx, question, "--yes"); err != nil {
			return err
		}
	}
	if err := s.change(ctx, func(job *v1alpha1.NodeJob) (decision, error) {
		before := job.Spec.DeletionPolicy
		job.Spec.DeletionPolicy, job.Spec.Suspend = v1alpha1.DeletionRollBack, true
		return decision{did: fmt.Sprintf("aborted: spec.suspend true, spec.deletionPolicy %s -> %s", before, v1alpha1.DeletionRollBack)}, nil
	}); err != nil {
		return err
	}
	if err := s.endAttempts(ctx); err != nil {
		return err
	}
	if err := s.client.Delete(ctx, job, client.Preconditions{UID: &job.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeJob %s: %w", s.key, cmdutil.Explain(err))
	}
	return s.tell(job, decision{
		did:    "is being rolled back, and is gone when that is done",
		then:   fmt.Sprintf("To see how far it is: kubectl everynode status %s -n %s --watch", job.Name, job.Namespace),
		commit: "spec.deletionPolicy: RollBack first, and then the removal of the NodeJob",
	})
}
