// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/plural"
)

// Offer is a change that is possible now.
type Offer struct {
	Change
	// Label is what a button says, and Effect what happens.
	Label  string `json:"label"`
	Effect string `json:"effect"`
	// Command is the command that makes the change.
	Command string `json:"command"`
}

// offers collects what is possible for a NodeJob.
type offers struct {
	job *v1alpha1.NodeJob
	// context is the context of the kubeconfig for the commands, unless that is the current one ("").
	context string
	all     []Offer
}

func (o *offers) add(change Change, label, effect string) {
	change.Namespace, change.Name, change.UID = o.job.Namespace, o.job.Name, o.job.UID
	o.all = append(o.all, Offer{Change: change, Label: label, Effect: effect, Command: change.command(o.context)})
}

// addSpec adds a change of the NodeJob, which a tool such as Argo CD may revert.
func (o *offers) addSpec(change Change, label, effect string) {
	if owner := steer.ManagedBy(o.job); owner != "" {
		effect += " This NodeJob is managed by " + owner + ", which may revert the change."
	}
	o.add(change, label, effect)
}

// offersOfJob returns what is possible for a NodeJob.
func offersOfJob(job *v1alpha1.NodeJob, context string, now time.Time) []Offer {
	o := &offers{job: job, context: context, all: []Offer{}}
	canRetry := steer.RetryAll(job, now).Job != nil
	if !job.DeletionTimestamp.IsZero() {
		if canRetry {
			o.addSpec(Change{Verb: plan.VerbRetry}, "Retry failed rollbacks", "The rollback runs again on the nodes on which it failed.")
		}
		return o.all
	}
	o.addPromotions()
	if canRetry {
		o.addSpec(Change{Verb: plan.VerbRetry}, "Retry failed nodes", fmt.Sprintf("The task runs again on %s on which it failed, with attempts counted from 1.%s",
			plural.Count(steer.Failed(job), "node"), afterResume(job)))
	}
	if steer.Suspend(job).Job != nil {
		effect := "No attempt, rollback or drain starts. Attempts that are running finish, and their outcome is recorded."
		if n := job.Status.Nodes.Running; n > 0 {
			effect += fmt.Sprintf(" It is running on %s.", plural.Count(n, "node"))
		}
		o.addSpec(Change{Verb: plan.VerbSuspend}, "Suspend", effect)
	}
	if after := steer.Resume(job, now).Job; after != nil {
		effect := "Attempts start again."
		if more := after.Spec.StartingDeadlineSeconds; more != nil && *more != *job.Spec.StartingDeadlineSeconds {
			effect += fmt.Sprintf(" spec.startingDeadlineSeconds becomes %d, so that attempts can start for one more hour.", *more)
		}
		o.addSpec(Change{Verb: plan.VerbResume}, "Resume", effect)
	}
	return o.all
}

// addPromotions adds the promotions to the next step and to the last one. They name the step, so that the page does what
// it says if the rollout has continued in the meantime.
func (o *offers) addPromotions() {
	before := ""
	steps := steer.StepNames(o.job)
	for _, to := range []string{"", steps[len(steps)-1]} {
		d, err := steer.Promote(o.job, to)
		if err != nil || d.Job == nil || d.Job.Spec.Rollout.PromoteTo == before {
			continue
		}
		before = d.Job.Spec.Rollout.PromoteTo
		effect := "The rollout may run up to step " + before + ". A soak in progress is not shortened, and failed nodes still stop the rollout."
		if d.Then != "" {
			effect += " " + d.Then
		}
		o.addSpec(Change{Verb: plan.VerbPromote, To: before}, "Promote to "+before, effect+afterResume(o.job))
	}
}

// afterResume says that a suspended NodeJob starts nothing.
func afterResume(job *v1alpha1.NodeJob) string {
	if job.Spec.Suspend {
		return " The NodeJob is suspended: nothing starts before it is resumed."
	}
	return ""
}

// offersOfNode returns what is possible for a node. It is offered where it helps: on nodes that have failed or wait.
func offersOfNode(job *v1alpha1.NodeJob, context string, node *plan.Node, state plan.State) []Offer {
	o := &offers{job: job, context: context, all: []Offer{}}
	if state != plan.Failed && state != plan.Waiting || steer.MayChangeNodes(job) != nil {
		return o.all
	}
	on := steer.ReadNode(job, node.Labels, node.Annotations)
	if steer.Retry(job, on, true).Nothing == "" {
		effect := "The task runs again on node " + node.Name + ", with attempts counted from 1."
		if steer.OthersWait(job) {
			effect += " Other nodes of the rollout wait until it has ended there."
		}
		o.add(Change{Verb: plan.VerbRetry, Node: node.Name, NodeUID: node.UID}, "Retry on this node", effect+afterResume(job))
	}
	if steer.MaySkip(job) == nil && steer.Skip(job, on).Nothing == "" {
		o.add(Change{Verb: plan.VerbSkip, Node: node.Name, NodeUID: node.UID}, "Skip this node",
			"Node "+node.Name+" counts as done with revision "+job.Status.Revision+" without a run. Its gate opens, and it is uncordoned if this NodeJob quarantined it.")
	}
	return o.all
}
