// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// maxCause limits the cause of a need, in characters.
const maxCause = 500

// Need is why a NodeJob needs a user.
type Need struct {
	Tone text.Tone
	// Reason is a word, and Cause describes it in at most 500 characters, as one line without control characters.
	Reason, Cause string
	// Node is the first node concerned, and More are how many others there are; "" and 0 if it does not concern nodes.
	Node string
	More int32
	// Since is since when; zero if that is not known.
	Since time.Time
	// Remedies are what helps: at least one.
	Remedies []Remedy
}

// Remedy is a command that helps.
type Remedy struct {
	// Purpose says what the command does, without a full stop.
	Purpose string
	// Command is a command of kubectl, for the current context.
	Command string
}

// NeedOf returns why a NodeJob needs a user: it is Stalled or paused, no manager observes it, nodes have failed for good, or are not
// compliant and do not run the task again, or a pod does not start. It returns nil if no action is needed.
func NeedOf(job *v1alpha1.NodeJob, now time.Time) *Need {
	if waited := unobserved(job, now); waited > 0 {
		return &Need{
			Tone: text.Warn, Reason: reasonNotObserved, Cause: noManager("the last change", waited), Since: changedAt(job),
			Remedies: []Remedy{{"check that a manager is running", CheckManager}},
		}
	}
	tone, reason, message, remedies := situation(job)
	n := &Need{Tone: tone, Reason: reason, Cause: message, Since: situationSince(job)}
	switch counts := &job.Status.Nodes; {
	case tone == text.Bad || reason == v1alpha1.ReasonAwaitingPromotion:
	case counts.Failed > 0:
		n.Tone, n.Reason = text.Bad, v1alpha1.ReasonNodesFailed
		n.Cause = plural.Count(counts.Failed, "node") + " failed, and the rollout continues"
		remedies = failureRemedies(job)
	case counts.NonCompliant > 0 && !repairs(job):
		n.Tone, n.Reason = text.Warn, v1alpha1.ReasonDrifted
		if task.IsAudit(job) {
			n.Tone, n.Reason = text.Bad, v1alpha1.ReasonNonCompliant
		}
	case reason == v1alpha1.ReasonPodNotStarting:
		n.Tone = text.Warn
	default:
		return nil
	}
	n.addNode(job)
	n.Cause = cutText(n.Cause, maxCause)
	if n.Remedies = commands(job, remedies, n.Node); len(n.Remedies) == 0 {
		n.Remedies = []Remedy{details(job, n.Reason)}
	}
	return n
}

// failureRemedies are what helps nodes that have failed while the rollout continues.
func failureRemedies(job *v1alpha1.NodeJob) plan.Remedies {
	if slices.ContainsFunc(job.Status.Failures, plan.HasReverted) {
		return plan.RevertedRemedies()
	}
	return plan.FailureRemedies(plan.FixTask, true)
}

// repairs reports whether a node that has drifted runs the task again.
func repairs(job *v1alpha1.NodeJob) bool {
	return job.Spec.Task.Check != nil && job.Spec.Task.Check.OnDrift == v1alpha1.DriftRun
}

// details is the command that shows more about a need without a remedy.
func details(job *v1alpha1.NodeJob, reason string) Remedy {
	if reason == v1alpha1.ReasonNonCompliant || reason == v1alpha1.ReasonDrifted {
		return Remedy{"see which nodes, and why", reportCommand(job)}
	}
	return Remedy{"see the details", command(job, plan.Remedy{Verb: "status"})}
}

// addNode adds the node that failed first among those that are not retried, or with which the manager cannot continue.
func (n *Need) addNode(job *v1alpha1.NodeJob) {
	for i := range job.Status.Failures {
		if f := &job.Status.Failures[i]; !f.Retrying {
			n.Node, n.More = f.Node, max(job.Status.Nodes.Failed-1, 0)
			if n.Reason == v1alpha1.ReasonMaxFailuresExceeded || n.Reason == v1alpha1.ReasonNodesFailed {
				n.Cause, n.Since = failure(f.Reason, f.ExitCode, f.Message), f.FinishedAt.Time
			}
			return
		}
	}
	if problems := job.Status.NodeProblems; len(problems) > 0 {
		n.Node, n.More = problems[0].Node, int32(len(problems)-1)
	}
}

// situationSince returns since when a NodeJob has been in its state; zero if that is not known.
func situationSince(job *v1alpha1.NodeJob) time.Time {
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionComplete} {
		if c := meta.FindStatusCondition(job.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	if c := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionReconciling); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// commands returns remedies as commands. Those for a node that the user chooses are for this node, unless it is "".
func commands(job *v1alpha1.NodeJob, r plan.Remedies, node string) []Remedy {
	list := make([]Remedy, 0, len(r.All))
	for i, remedy := range r.All {
		said := purpose(r, remedy)
		if i == 0 && r.Before != "" && r.Before != plan.FixCause {
			said = lowered(r.Before) + " " + said
		}
		if remedy.Node == plan.AnyNode && node != "" {
			remedy.Node = node
		}
		list = append(list, Remedy{said, command(job, remedy)})
	}
	return list
}
