// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/text"
)

// The steering commands change what a user could also change with kubectl. They use the resource version that they have
// read, and print what they have changed. They are idempotent.

// mutation is the execution of a steering command on a NodeJob.
type mutation struct {
	*Factory
	client client.WithWatch
	key    client.ObjectKey
}

func (f *Factory) steer(name string) (*mutation, error) {
	namespace, err := f.Namespace()
	if err != nil {
		return nil, err
	}
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	return &mutation{f, c, client.ObjectKey{Namespace: namespace, Name: name}}, nil
}

// maxSteerTries limits how often a change is decided again because the NodeJob was modified in the meantime. The status
// of a NodeJob is written up to once a second.
const maxSteerTries = 10

// decision is the result of a command's decision: a description of the change, or the reason why there is nothing to
// change.
type decision struct {
	did     string
	nothing string
	// commit is the change to make in Git instead.
	commit string
	// then describes the effect; "" if it is obvious.
	then string
}

// change applies the change that decide returns. After a conflict with another writer, it calls decide again.
func (s *mutation) change(ctx context.Context, decide func(*v1alpha1.NodeJob) (decision, error)) error {
	for try := 1; ; try++ {
		job, err := GetJob(ctx, s.client, s.key)
		if err != nil {
			return err
		}
		changed := job.DeepCopy()
		d, err := decide(changed)
		if err != nil {
			return err
		}
		if d.nothing != "" {
			return s.tellNothing(d.nothing)
		}
		err = s.client.Patch(ctx, changed, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{}))
		switch {
		case apierrors.IsConflict(err) && try < maxSteerTries:
			continue
		case apierrors.IsConflict(err):
			return Failf(ExitError, "NodeJob %s is being modified concurrently and was not changed: try again", s.key)
		case err != nil:
			return Explain(err)
		}
		return s.tell(job, d)
	}
}

func (s *mutation) tell(job *v1alpha1.NodeJob, d decision) error {
	if err := s.Print([]text.Line{text.Of("nodejob "+s.key.Name+": ").Tone(text.Strong, d.did)}); err != nil {
		return err
	}
	if d.then != "" {
		s.tellDim(d.then)
	}
	if d.commit != "" {
		s.tellCommit(job, d.commit)
	}
	return nil
}

func (s *mutation) tellNothing(why string) error {
	return s.Print([]text.Line{text.Of("nodejob " + s.key.Name + ": nothing to change: ").With(why)})
}

func (s *mutation) tellDim(message string) { s.Tell(text.Toned(text.Dim, message)) }

// tellCommit prints what to change in Git, and which tool otherwise reverts the change.
func (s *mutation) tellCommit(job *v1alpha1.NodeJob, commit string) {
	if owner := managedBy(job); owner != "" {
		s.Tell(text.Toned(text.Warn, "note: ").With("this NodeJob is managed by " + owner + ", which may revert the change. Commit: " + commit))
		return
	}
	s.tellDim("With GitOps, commit this instead: " + commit)
}

// managedBy returns the name of the tool that applies the NodeJob; "" if none is known. Sources: Argo CD, resource
// tracking; Flux, labels of the kustomize and helm controllers; Helm, the annotations of a release.
func managedBy(job *v1alpha1.NodeJob) string {
	l, a := job.Labels, job.Annotations
	switch {
	case a["argocd.argoproj.io/tracking-id"] != "":
		return "Argo CD"
	case l["kustomize.toolkit.fluxcd.io/name"] != "":
		return "Flux (Kustomization " + l["kustomize.toolkit.fluxcd.io/namespace"] + "/" + l["kustomize.toolkit.fluxcd.io/name"] + ")"
	case l["helm.toolkit.fluxcd.io/name"] != "":
		return "Flux (HelmRelease " + l["helm.toolkit.fluxcd.io/namespace"] + "/" + l["helm.toolkit.fluxcd.io/name"] + ")"
	case a["meta.helm.sh/release-name"] != "":
		return "Helm (release " + a["meta.helm.sh/release-name"] + ")"
	}
	return ""
}

func newPromoteCommand(f *Factory) *cobra.Command {
	var to string
	var full bool
	cmd := &cobra.Command{
		Use:   "promote NAME [--to STEP | --full]",
		Short: "Promote a rollout to its next step, a later step, or the last step",
		Long: `Promote a rollout to the step after the current one, to a later step (--to), or to the last step (--full). This sets
spec.rollout.promoteTo. A soak in progress is not shortened, and failed nodes still stop the rollout.`,
		Example:           "  kubectl everynode promote somaxconn -n node-setup\n  kubectl everynode promote somaxconn -n node-setup --to production-eu\n  kubectl everynode promote somaxconn -n node-setup --full",
		Args:              exactArgs(1, "the name of a NodeJob"),
		ValidArgsFunction: f.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if to != "" && full {
				return Failf(ExitUsage, "give --to or --full, not both")
			}
			s, err := f.steer(args[0])
			if err != nil {
				return err
			}
			return s.change(cmd.Context(), func(job *v1alpha1.NodeJob) (decision, error) { return promote(job, to, full) })
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the last step that the rollout may reach")
	cmd.Flags().BoolVar(&full, "full", false, "it may reach the last step")
	_ = cmd.RegisterFlagCompletionFunc("to", f.completeSteps)
	return cmd
}

// promote sets the last step of a rollout. Without a step in the arguments, it sets the step after the current one, not
// the step after promoteTo. So a repeated command promotes by one step only.
func promote(job *v1alpha1.NodeJob, to string, full bool) (decision, error) {
	steps := stepNames(job)
	last := len(steps) - 1
	ceiling := last
	if job.Spec.Rollout.PromoteTo != "" {
		ceiling = slices.Index(steps, job.Spec.Rollout.PromoteTo)
	}
	at := currentStep(job, steps)
	target, err := promotionTarget(job, steps, at, to, full)
	if err != nil {
		return decision{}, err
	}
	switch {
	case target < ceiling && to != "":
		return decision{}, Failf(ExitUsage, "it may already reach step %s, and promote does not go back. To suspend it: kubectl everynode suspend %s -n %s", steps[ceiling], job.Name, job.Namespace)
	case target <= ceiling:
		return decision{nothing: fmt.Sprintf("it may reach step %s already, and is in step %s", steps[ceiling], steps[at])}, nil
	}
	before := cmp.Or(job.Spec.Rollout.PromoteTo, "(none)")
	job.Spec.Rollout.PromoteTo = steps[target]
	d := decision{
		did:    fmt.Sprintf("promoted: spec.rollout.promoteTo %s -> %s", before, steps[target]),
		commit: "spec.rollout.promoteTo: " + steps[target],
	}
	if target == last {
		d.then = fmt.Sprintf("The next revision goes through all steps without a halt. To have it halt, set promoteTo: %s in the change that makes it.", steps[max(ceiling, 0)])
	}
	return d, nil
}

// promotionTarget returns the step to which the rollout is promoted.
func promotionTarget(job *v1alpha1.NodeJob, steps []string, at int, to string, full bool) (int, error) {
	last := len(steps) - 1
	switch {
	case to != "":
		target := slices.Index(steps, to)
		if target < 0 {
			return 0, Failf(ExitNotFound, "there is no step %s; the steps are %s", to, list(steps))
		}
		return target, nil
	case full:
		return last, nil
	case at > 0 && job.Status.ObservedGeneration != job.Generation:
		// The status may have the step of the previous revision. A new revision starts with the first step.
		return 0, Failf(ExitError, "the manager has not looked at this version of the NodeJob yet, so its step is not known: wait a moment, or give --to STEP")
	}
	return min(at+1, last), nil
}

// stepNames returns the names of the steps, also if the API server has not set the defaults.
func stepNames(job *v1alpha1.NodeJob) []string {
	names := make([]string, 0, len(job.Spec.Rollout.Steps))
	for i := range job.Spec.Rollout.Steps {
		names = append(names, job.Spec.Rollout.Steps[i].Name)
	}
	if len(names) == 0 {
		return []string{"canary", "all"}
	}
	return names
}

// currentStep returns the current step of the rollout: the first if none is known.
func currentStep(job *v1alpha1.NodeJob, steps []string) int {
	if job.Status.Rollout == nil {
		return 0
	}
	return max(slices.Index(steps, job.Status.Rollout.Step), 0)
}

func newSuspendCommand(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "suspend NAME",
		Short: "Suspend a NodeJob: start nothing new, and let running attempts finish",
		Long: `Suspend a NodeJob by setting spec.suspend: no attempt, rollback or drain starts. Attempts that are running finish, and
their outcome is recorded. To end them as well, use abort.`,
		Example:           "  kubectl everynode suspend somaxconn -n node-setup",
		Args:              exactArgs(1, "the name of a NodeJob"),
		ValidArgsFunction: f.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.steer(args[0])
			if err != nil {
				return err
			}
			return s.change(cmd.Context(), suspend)
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
		d.then = fmt.Sprintf("It is running on %s and may finish there. To end it: kubectl everynode abort %s -n %s", countNodes(int(n)), job.Name, job.Namespace)
	}
	return d, nil
}

func newResumeCommand(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "resume NAME",
		Short: "Resume a NodeJob after suspend or abort",
		Long: `Resume a NodeJob after suspend or abort by setting spec.suspend to false. If spec.startingDeadlineSeconds has passed,
it is extended so that attempts can start for one more hour.`,
		Example:           "  kubectl everynode resume somaxconn -n node-setup",
		Args:              exactArgs(1, "the name of a NodeJob"),
		ValidArgsFunction: f.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.steer(args[0])
			if err != nil {
				return err
			}
			return s.change(cmd.Context(), func(job *v1alpha1.NodeJob) (decision, error) { return resume(job, f.Now()) })
		},
	}
}

// moreTime is the additional time that resume gives a NodeJob whose startingDeadlineSeconds has passed.
const moreTime = time.Hour

func resume(job *v1alpha1.NodeJob, now time.Time) (decision, error) {
	age := now.Sub(job.CreationTimestamp.Time)
	late := job.Spec.StartingDeadlineSeconds != nil && age >= time.Duration(*job.Spec.StartingDeadlineSeconds)*time.Second
	if !job.Spec.Suspend && !late {
		return decision{nothing: "it is not suspended"}, nil
	}
	var d decision
	if job.Spec.Suspend {
		job.Spec.Suspend = false
		d = decision{did: "resumed: spec.suspend true -> false", commit: "spec.suspend: false"}
	}
	if late {
		before := *job.Spec.StartingDeadlineSeconds
		after := int32((age + moreTime) / time.Second)
		job.Spec.StartingDeadlineSeconds = &after
		more := fmt.Sprintf("spec.startingDeadlineSeconds %d -> %d", before, after)
		if d.did == "" {
			d = decision{did: "resumed: " + more, commit: fmt.Sprintf("spec.startingDeadlineSeconds: %d", after)}
		} else {
			d.did, d.commit = d.did+", "+more, fmt.Sprintf("%s, spec.startingDeadlineSeconds: %d", d.commit, after)
		}
	}
	return d, nil
}

// retryAll requests a retry on every failed node.
func retryAll(job *v1alpha1.NodeJob, now time.Time) (decision, error) {
	status := &job.Status
	casualties := status.Rollout != nil && len(status.Rollout.UnrecordedFailures) > 0
	if status.Nodes.Failed == 0 && len(status.Failures) == 0 && !casualties {
		return decision{nothing: "no node has failed"}, nil
	}
	value := strconv.FormatInt(now.Unix(), 10)
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	job.Annotations[v1alpha1.RetryAnnotation] = value
	n := max(int(status.Nodes.Failed), len(status.Failures))
	return decision{
		did:    fmt.Sprintf("asked for another try on %s: annotation %s=%s", countNodes(n), v1alpha1.RetryAnnotation, value),
		commit: "metadata.annotations: {" + v1alpha1.RetryAnnotation + ": " + strconv.Quote(value) + "}; any new value is another try",
	}, nil
}
