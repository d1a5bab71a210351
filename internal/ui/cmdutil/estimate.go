// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodebudget/window"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/eta"
)

// foreseeable are the reasons of rollouts whose end follows from how long runs take, soaks and windows. Others, such as a check that
// fails or a pod that does not start, may need a user.
var foreseeable = []string{v1alpha1.ReasonInProgress, v1alpha1.ReasonSoaking, v1alpha1.ReasonBudgetClosed, v1alpha1.ReasonWaitingForBudget}

// CanEstimate reports whether the end of a rollout can be estimated: it continues without help, and 3 nodes are done.
func CanEstimate(job *v1alpha1.NodeJob) bool {
	c := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionReconciling)
	return !job.Spec.Suspend && job.DeletionTimestamp.IsZero() && job.Status.ObservedGeneration == job.Generation &&
		job.Status.Rollout != nil && job.Status.Nodes.Done >= 3 && c != nil && c.Status == metav1.ConditionTrue && slices.Contains(foreseeable, c.Reason)
}

// Estimate returns when a rollout ends, from the records of all nodes; nil if that cannot be estimated.
func Estimate(job *v1alpha1.NodeJob, budgets []*v1alpha1.NodeDisruptionBudget, nodes []metav1.PartialObjectMetadata, now time.Time) *eta.Estimate {
	selector, err := selectorOf(job)
	if err != nil || !CanEstimate(job) {
		return nil
	}
	r := &eta.Rollout{Steps: stepsLeft(job, now), AtOnce: plan.AtOnce(job, int(job.Status.Nodes.Total)), Now: now}
	var all, ours []map[string]string
	for i := range nodes {
		all = append(all, nodes[i].Labels)
		if !selector.Matches(labels.Set(nodes[i].Labels)) {
			continue
		}
		ours = append(ours, nodes[i].Labels)
		if took, ok := durationOn(&nodes[i], job); ok {
			r.Durations = append(r.Durations, took)
		}
	}
	for _, b := range budgets {
		if _, selected := budget.Room(b, ours, now); selected && concerns(b, job) && !addBudget(r, job, b, all) {
			return nil
		}
	}
	if found, ok := eta.Of(r); ok {
		return &found
	}
	return nil
}

// selectorOf selects the nodes of a NodeJob by their labels. Those that it excludes for other reasons are selected, too.
func selectorOf(job *v1alpha1.NodeJob) (labels.Selector, error) {
	if job.Spec.Nodes.Selector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(job.Spec.Nodes.Selector)
}

// durationOn returns how long the run on a node took that succeeded with the current revision, with its retries.
func durationOn(node *metav1.PartialObjectMetadata, job *v1alpha1.NodeJob) (time.Duration, bool) {
	rec := record.Read(node.Labels, node.Annotations, v1alpha1.RecordKey(job.Namespace, job.Name)).Record
	if rec == nil || rec.Revision != job.Status.Revision || rec.Outcome != record.Succeeded || rec.IsAssumed() {
		return 0, false
	}
	took := rec.EndedAt().Sub(rec.BeganAt())
	return took, took >= 0 && !rec.BeganAt().IsZero()
}

// concerns reports whether a budget can delay a NodeJob on the nodes that it selects.
func concerns(b *v1alpha1.NodeDisruptionBudget, job *v1alpha1.NodeJob) bool {
	return plan.Disrupts(job) || b.Spec.AppliesTo == v1alpha1.AppliesToAllTasks
}

// stepsLeft are the steps up to rollout.promoteTo, with the nodes that are left.
func stepsLeft(job *v1alpha1.NodeJob, now time.Time) []eta.Step {
	soaks := map[string]time.Duration{}
	for i := range job.Spec.Rollout.Steps {
		soaks[job.Spec.Rollout.Steps[i].Name] = time.Duration(job.Spec.Rollout.Steps[i].SoakSeconds) * time.Second
	}
	var left []eta.Step
	status := job.Status.Rollout
	reached := false
	for _, s := range status.Steps {
		current := s.Name == status.Step
		reached = reached || current
		step := eta.Step{Nodes: max(0, int(s.Nodes-s.Done-s.Failed))}
		if reached {
			step.Soak = soaks[s.Name]
		}
		if current && !status.SoakingSince.IsZero() {
			step.Soak = max(0, step.Soak-now.Sub(status.SoakingSince.Time))
		}
		if current && !status.SoakedAt.IsZero() {
			step.Soak = 0
		}
		left = append(left, step)
		if s.Name == job.Spec.Rollout.PromoteTo {
			break
		}
	}
	return left
}

// addBudget adds what a budget means for a rollout, as if it selected all nodes that are left. It returns false if that is not known.
func addBudget(r *eta.Rollout, job *v1alpha1.NodeJob, b *v1alpha1.NodeDisruptionBudget, nodes []map[string]string) bool {
	var ends time.Time
	if b.Spec.ExpiresAt != nil {
		ends = b.Spec.ExpiresAt.Time
	}
	room, _ := budget.Room(b, nodes, r.Now)
	if room == 0 {
		r.Budgets = append(r.Budgets, eta.Budget{Until: ends})
		return true
	}
	if plan.Disrupts(job) {
		r.Longest, r.Between = plan.LongestRun(job), max(r.Between, budget.SettleFor)
		if s := b.Spec.PaceSeconds; s != nil {
			r.Between = max(r.Between, time.Duration(*s)*time.Second)
		}
		if room > 0 {
			r.AtOnce = min(r.AtOnce, room)
		}
	}
	schedule, err := window.Parse(&b.Spec)
	if err == nil {
		r.Budgets = append(r.Budgets, eta.Budget{Schedule: schedule, Until: ends})
	}
	return err == nil
}
