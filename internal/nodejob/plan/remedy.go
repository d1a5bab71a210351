// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Verb is what a user does: a command of kubectl everynode, except VerbForget.
type Verb string

// Verbs of remedies, and of the other changes that a user can make.
const (
	VerbPromote Verb = "promote"
	VerbSuspend Verb = "suspend"
	VerbResume  Verb = "resume"
	VerbRetry   Verb = "retry"
	VerbRerun   Verb = "rerun"
	VerbSkip    Verb = "skip"
	// VerbForget deletes a NodeJob without its rollback.
	VerbForget Verb = "forget"
)

// AnyNode is the node of a remedy for a node that the user chooses.
const AnyNode = "*"

// Remedy is something that a user can do about the state of a NodeJob or a node. There are two printers: Kubectl for conditions,
// which are also for users without kubectl everynode, and Arguments for the command line.
type Remedy struct {
	Verb Verb
	// Node is the node of VerbRetry, VerbRerun and VerbSkip, or AnyNode; "" for all failed nodes, or all that are done.
	Node string
	// Step is the step of VerbPromote; "" for the next one.
	Step string
}

// Kubectl returns a remedy of a condition as a command of kubectl: to promote, retry, skip or forget. revision is the one with
// which a skipped node is done.
func (r Remedy) Kubectl(job *v1alpha1.NodeJob, revision string) string {
	node := r.Node
	if node == AnyNode {
		node = "NAME"
	}
	key := v1alpha1.RecordKey(job.Namespace, job.Name)
	const patch = "kubectl -n %s patch nodejob %s --type=merge -p '{\"spec\":{%s}}'"
	switch {
	case r.Verb == VerbPromote:
		return fmt.Sprintf(patch, job.Namespace, job.Name, fmt.Sprintf("\"rollout\":{\"promoteTo\":%q}", r.Step))
	case r.Verb == VerbForget:
		return fmt.Sprintf(patch, job.Namespace, job.Name, `"deletionPolicy":"Forget"`)
	case r.Verb == VerbSkip:
		return "kubectl label node " + node + " " + key + "=" + revision + " --overwrite"
	case node != "":
		return "kubectl annotate node " + node + " " + key + "-"
	}
	return fmt.Sprintf("kubectl -n %s annotate nodejob %s %s=\"$(date +%%s)\" --overwrite", job.Namespace, job.Name, v1alpha1.RetryAnnotation)
}

// Arguments returns the remedy as the arguments of kubectl everynode.
func (r Remedy) Arguments(job string) []string {
	args := []string{string(r.Verb), job}
	switch r.Node {
	case "":
	case AnyNode:
		args = append(args, "NODE")
	default:
		args = append(args, r.Node)
	}
	if r.Step != "" {
		args = append(args, "--to", r.Step)
	}
	return args
}

// What to do before a remedy: about a task that has failed, drains that have timed out, and a deletion that is blocked.
const (
	FixTask  = "Fix the task, or"
	MakeRoom = "Make room for the pods that block the drain, or relax their disruption budgets, then"
	FixCause = "Fix the cause and"
	// FixRevert is said of nodes that were not confirmed, and have reverted by themselves (spec.confirm).
	FixRevert = "Fix the task: it then runs again. A retry without that would cut nodes off again. Otherwise,"
)

// Remedies are the remedies in a condition, in their order.
type Remedies struct {
	// Before is what to do before, as the beginning of a sentence; "" for nothing.
	Before string
	All    []Remedy
}

// FailureRemedies are the remedies for failed nodes: for all of them, and also for single ones.
func FailureRemedies(before string, alsoSingle bool) Remedies {
	r := Remedies{before, []Remedy{{Verb: VerbRetry}}}
	if alsoSingle {
		r.All = append(r.All, Remedy{Verb: VerbRetry, Node: AnyNode}, Remedy{Verb: VerbSkip, Node: AnyNode})
	}
	return r
}

// RevertedRemedies are the remedies for failed nodes of which some have reverted by themselves: a retry is the last one.
func RevertedRemedies() Remedies {
	return Remedies{FixRevert, []Remedy{{Verb: VerbSkip, Node: AnyNode}, {Verb: VerbRetry}}}
}

// DeletionRemedies are the remedies for a deletion that is blocked.
func DeletionRemedies() Remedies {
	return Remedies{FixCause, []Remedy{{Verb: VerbRetry}, {Verb: VerbForget}}}
}

// PromotionRemedies are the remedies for a rollout that is paused before a step.
func PromotionRemedies(step string) Remedies {
	return Remedies{All: []Remedy{{Verb: VerbPromote, Step: step}}}
}

// Kubectl returns the sentence with which a condition ends.
func (r Remedies) Kubectl(job *v1alpha1.NodeJob, revision string) string {
	parts := make([]string, 0, len(r.All))
	for _, remedy := range r.All {
		parts = append(parts, r.purpose(remedy)+": "+remedy.Kubectl(job, revision))
	}
	return strings.TrimPrefix(r.Before+" "+strings.Join(parts, "; "), " ")
}

// purpose says what a remedy is for.
func (r Remedies) purpose(remedy Remedy) string {
	switch {
	case remedy.Verb == VerbPromote:
		return "To continue with step " + remedy.Step
	case remedy.Verb == VerbForget:
		return "or delete the NodeJob without a rollback"
	case r.Before == FixRevert && remedy.Verb == VerbSkip:
		return "skip a node"
	case r.Before == FixRevert:
		return "or retry all failed nodes"
	case remedy.Verb == VerbSkip:
		return "or skip a node"
	case remedy.Node != "":
		return "one node (other nodes start too)"
	case r.Before == FixCause:
		return "retry"
	}
	return "retry all failed nodes"
}

// CutRemedies divides the message of a condition into the cause and the remedies. It is the inverse of Kubectl: a message that
// another version has written may have no remedies that are known.
func CutRemedies(job *v1alpha1.NodeJob, message string) (cause string, r Remedies) {
	for _, r := range []Remedies{
		FailureRemedies(FixTask, true), FailureRemedies(FixTask, false), FailureRemedies(MakeRoom, true), FailureRemedies(MakeRoom, false),
		RevertedRemedies(),
		DeletionRemedies(), PromotionRemedies(stepAfterPromotion(job)),
	} {
		if cause, cut := strings.CutSuffix(message, " "+r.Kubectl(job, job.Status.Revision)); cut {
			return cause, r
		}
	}
	return message, Remedies{}
}

// stepAfterPromotion returns the step after promoteTo; "" if there is none.
func stepAfterPromotion(job *v1alpha1.NodeJob) string {
	if job.Status.Rollout == nil {
		return ""
	}
	steps := job.Status.Rollout.Steps
	for i := range len(steps) - 1 {
		if steps[i].Name == job.Spec.Rollout.PromoteTo {
			return steps[i+1].Name
		}
	}
	return ""
}
