// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/dashboard"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/record"
)

// changes are the commands that the dashboard offers. What is possible is what the decisions of the commands return for a
// copy of the NodeJob.
type changes struct{}

// Make makes a change as its command does.
func (changes) Make(ctx context.Context, f *cmdutil.Factory, c client.WithWatch, change dashboard.Change) error {
	m := &mutation{Factory: f, client: c, key: change.Job(), uid: change.UID, nodeUID: change.NodeUID}
	switch {
	case change.Verb == dashboard.Promote:
		return m.change(ctx, func(job *v1alpha1.NodeJob) (decision, error) { return promote(job, change.To, false) })
	case change.Verb == dashboard.Suspend:
		return m.change(ctx, suspend)
	case change.Verb == dashboard.Resume:
		return m.change(ctx, func(job *v1alpha1.NodeJob) (decision, error) { return resume(job, f.Now()) })
	case change.Verb == dashboard.Retry && change.Node == "":
		return m.change(ctx, func(job *v1alpha1.NodeJob) (decision, error) { return retryAll(job, f.Now()) })
	case change.Verb == dashboard.Retry:
		return m.retryNodes(ctx, []string{change.Node}, true)
	case change.Verb == dashboard.Skip:
		return m.skip(ctx, []string{change.Node})
	}
	return cmdutil.Failf(cmdutil.ExitUsage, "there is no change %q", change.Verb)
}

// offers collects what is possible for a NodeJob.
type offers struct {
	job *v1alpha1.NodeJob
	all []dashboard.Offer
}

func (o *offers) add(change dashboard.Change, label, effect string) {
	change.Namespace, change.Name, change.UID = o.job.Namespace, o.job.Name, o.job.UID
	o.all = append(o.all, dashboard.Offer{Change: change, Label: label, Effect: effect})
}

// addSpec adds a change of the NodeJob, which a tool such as Argo CD may revert.
func (o *offers) addSpec(change dashboard.Change, label, effect string) {
	if owner := managedBy(o.job); owner != "" {
		effect += " This NodeJob is managed by " + owner + ", which may revert the change."
	}
	o.add(change, label, effect)
}

// try returns the decision of a command, with the NodeJob after the change; nil if it would change nothing.
func (o *offers) try(decide func(*v1alpha1.NodeJob) (decision, error)) (*v1alpha1.NodeJob, decision) {
	changed := o.job.DeepCopy()
	d, err := decide(changed)
	if err != nil || d.nothing != "" {
		return nil, d
	}
	return changed, d
}

// OfJob returns what is possible for a NodeJob.
func (changes) OfJob(job *v1alpha1.NodeJob, now time.Time) []dashboard.Offer {
	o := &offers{job: job}
	retry := func(job *v1alpha1.NodeJob) (decision, error) { return retryAll(job, now) }
	if !job.DeletionTimestamp.IsZero() {
		if after, _ := o.try(retry); after != nil {
			o.addSpec(dashboard.Change{Verb: dashboard.Retry}, "Retry failed rollbacks", "The rollback runs again on the nodes on which it failed.")
		}
		return o.all
	}
	o.addPromotions()
	if after, _ := o.try(retry); after != nil {
		n := max(int(job.Status.Nodes.Failed), len(job.Status.Failures))
		o.addSpec(dashboard.Change{Verb: dashboard.Retry}, "Retry failed nodes",
			fmt.Sprintf("The task runs again on %s on which it failed, with attempts counted from 1.%s", plural.Count(n, "node"), afterResume(job)))
	}
	if after, _ := o.try(suspend); after != nil {
		effect := "No attempt, rollback or drain starts. Attempts that are running finish, and their outcome is recorded."
		if n := job.Status.Nodes.Running; n > 0 {
			effect += fmt.Sprintf(" It is running on %s.", plural.Count(n, "node"))
		}
		o.addSpec(dashboard.Change{Verb: dashboard.Suspend}, "Suspend", effect)
	}
	if after, _ := o.try(func(job *v1alpha1.NodeJob) (decision, error) { return resume(job, now) }); after != nil {
		effect := "Attempts start again."
		if after.Spec.StartingDeadlineSeconds != nil && *after.Spec.StartingDeadlineSeconds != *job.Spec.StartingDeadlineSeconds {
			effect += fmt.Sprintf(" spec.startingDeadlineSeconds becomes %d, so that attempts can start for one more hour.", *after.Spec.StartingDeadlineSeconds)
		}
		o.addSpec(dashboard.Change{Verb: dashboard.Resume}, "Resume", effect)
	}
	return o.all
}

// addPromotions adds the promotions to the next step and to the last one. They name the step, so that the page does what
// it says if the rollout has continued in the meantime.
func (o *offers) addPromotions() {
	before := ""
	for _, full := range []bool{false, true} {
		after, d := o.try(func(job *v1alpha1.NodeJob) (decision, error) { return promote(job, "", full) })
		if after == nil || after.Spec.Rollout.PromoteTo == before {
			continue
		}
		before = after.Spec.Rollout.PromoteTo
		effect := "The rollout may run up to step " + before + ". A soak in progress is not shortened, and failed nodes still stop the rollout."
		if d.then != "" {
			effect += " " + d.then
		}
		o.addSpec(dashboard.Change{Verb: dashboard.Promote, To: before}, "Promote to "+before, effect+afterResume(o.job))
	}
}

// afterResume says that a suspended NodeJob starts nothing.
func afterResume(job *v1alpha1.NodeJob) string {
	if job.Spec.Suspend {
		return " The NodeJob is suspended: nothing starts before it is resumed."
	}
	return ""
}

// OfNode returns what is possible for a node.
func (changes) OfNode(job *v1alpha1.NodeJob, node *plan.Node) []dashboard.Offer {
	if rejectTerminating(job) != nil {
		return nil
	}
	o, actions := &offers{job: job}, newNodeActions(job)
	on := nodeMetadata{record.Read(node.Labels, node.Annotations, actions.key), node.Labels}
	if actions.retry(on, true).nothing == "" {
		effect := "The task runs again on node " + node.Name + ", with attempts counted from 1."
		if actions.othersWait() {
			effect += " Other nodes of the rollout wait until it has ended there."
		}
		o.add(dashboard.Change{Verb: dashboard.Retry, Node: node.Name, NodeUID: node.UID}, "Retry on this node", effect+afterResume(job))
	}
	if revision, err := revisionOf(job); err == nil && on.Label != revision {
		o.add(dashboard.Change{Verb: dashboard.Skip, Node: node.Name, NodeUID: node.UID}, "Skip this node",
			"Node "+node.Name+" counts as done with revision "+revision+" without a run. Its gate opens, and it is uncordoned if this NodeJob quarantined it.")
	}
	return o.all
}
