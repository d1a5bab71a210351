// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// plan --on-nodes: the check of a NodeJob that is not applied is asked by an audit, which is a NodeJob with only that check. It is deleted
// when all nodes have answered, the command is interrupted, or the time is over; otherwise by the manager.

const (
	// auditTTL is when the manager deletes an audit that the command has left.
	auditTTL = 10 * time.Minute

	// auditCleanup limits the deletion.
	auditCleanup = 10 * time.Second

	// maxAuditName limits the part of the name that is the name of the NodeJob.
	maxAuditName = 40
)

// askNodes asks the checks of all plans, one after the other.
func (o *planOptions) askNodes(ctx context.Context, file *planFile, plans []view.Plan) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for i := range plans {
		v := &plans[i]
		switch check := v.Job.Spec.Task.Check; {
		case check == nil:
			return cmdutil.Failf(cmdutil.ExitUsage, "NodeJob %s/%s has no spec.task.check, and only that runs with --on-nodes: add it, or leave --on-nodes out",
				v.Job.Namespace, v.Job.Name)
		case v.Obstacle != nil:
			return cmdutil.Failf(cmdutil.ExitError, "the nodes of NodeJob %s/%s are not asked, because nothing would run: %s: %s",
				v.Job.Namespace, v.Job.Name, v.Obstacle.Reason, v.Obstacle.Message)
		}
		source, _, err := observe.Source(v.Job, o.fetch(ctx, file, v))
		if err != nil {
			return cmdutil.Explain(err)
		}
		if err := o.audit(ctx, v, auditOf(v.Job, source.Check)); err != nil {
			return err
		}
	}
	return nil
}

// auditOf returns a NodeJob that asks only the check of another one, whose script is resolved.
func auditOf(job *v1alpha1.NodeJob, script string) *v1alpha1.NodeJob {
	of := job.Spec.Task
	return &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, GenerateName: job.Name[:min(len(job.Name), maxAuditName)] + "-check-",
			Labels: map[string]string{cmdutil.CreatedByLabel: cmdutil.CreatedByPlan},
		},
		Spec: v1alpha1.NodeJobSpec{
			Nodes: job.Spec.Nodes,
			Task: v1alpha1.TaskSpec{
				Check: &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: script, Interpreter: of.Check.Interpreter}},
				Env:   of.Env, Files: of.Files, TimeoutSeconds: of.TimeoutSeconds, Resources: of.Resources,
			},
			TTLSecondsAfterFinished: new(int32(auditTTL / time.Second)),
			DeletionPolicy:          v1alpha1.DeletionForget,
		},
	}
}

// audit creates an audit, waits for the answers, and deletes it.
func (o *planOptions) audit(ctx context.Context, v *view.Plan, job *v1alpha1.NodeJob) (err error) {
	if err := o.client.Create(ctx, job); err != nil {
		return cmdutil.Explain(err)
	}
	name := job.Namespace + "/" + job.Name
	o.Tell(text.Toned(text.Dim, fmt.Sprintf("-- NodeJob %s runs task.check on its nodes, and is then deleted", name)))
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditCleanup)
		defer cancel()
		if left := client.IgnoreNotFound(o.client.Delete(ctx, job, client.Preconditions{UID: &job.UID})); left != nil {
			err = cmp.Or(err, cmdutil.Failf(cmdutil.ExitError, "NodeJob %s could not be deleted: %w. The manager deletes it %s after its end; or: kubectl delete nodejob %s -n %s",
				name, cmdutil.Explain(left), auditTTL, job.Name, job.Namespace))
		}
	}()
	last, err := o.untilAnswered(ctx, job)
	if err != nil {
		return err
	}
	seen, err := readCluster(ctx, o.Factory, o.client, job.Namespace)
	if err != nil {
		return err
	}
	in := seen.Input(last, nil)
	found := view.ComplianceOf(in, plan.Next(in), nil)
	found.NodeJob = v.Job.Namespace + "/" + v.Job.Name
	if v.Compliance = &found; found.Total.NotAsked > 0 {
		o.unanswered = true
		v.Notes = append(v.Notes, fmt.Sprintf("%s did not answer%s: %s", plural.Count(found.Total.NotAsked, "node"), o.waited(last), progressOf(last)))
	}
	return nil
}

// untilAnswered follows an audit until all nodes have answered, or no more will, or the time is over, and returns its last version.
func (o *planOptions) untilAnswered(ctx context.Context, job *v1alpha1.NodeJob) (*v1alpha1.NodeJob, error) {
	following, stop := context.WithCancel(ctx)
	defer stop()
	over := o.After(o.timeout)
	observations := cmdutil.Follow(following, o.client, o.After, job)
	for {
		select {
		case <-over:
			return job, nil
		case is, more := <-observations:
			switch {
			case !more:
				return nil, cmdutil.Exit(cmdutil.ExitDetached)
			case is.Gone:
				return nil, cmdutil.Failf(cmdutil.ExitGone, "NodeJob %s/%s was deleted before all nodes had answered", job.Namespace, job.Name)
			case is.Job != nil:
				job = is.Job
			}
		}
		if meta.IsStatusConditionTrue(job.Status.Conditions, v1alpha1.ConditionComplete) || cmdutil.Stalled(job) != nil {
			return job, nil
		}
	}
}

// waited says how long nodes could answer; "" if none of them will.
func (o *planOptions) waited(job *v1alpha1.NodeJob) string {
	if cmdutil.Stalled(job) != nil {
		return ""
	}
	return fmt.Sprintf(" within %s", o.timeout)
}

// progressOf is what the status says about the nodes that have not answered.
func progressOf(job *v1alpha1.NodeJob) string {
	if c := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionComplete); c != nil {
		return c.Message
	}
	return "no manager has observed the NodeJob; check that one is running: " + view.CheckManager
}
