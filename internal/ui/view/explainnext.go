// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// Part is a piece of a text: prose, or a command of this program.
type Part struct {
	Text      string
	IsCommand bool
}

// Said is a text whose commands are apart. Names and messages in the text are prose.
type Said []Part

func prose(text string) Said { return Said{{Text: text}} }

// command adds a command.
func (s Said) command(text string) Said { return append(s, Part{text, true}) }

// prose adds prose.
func (s Said) prose(text string) Said {
	if last := len(s) - 1; last >= 0 && !s[last].IsCommand {
		text, s = s[last].Text+text, s[:last]
	}
	return append(s, Part{Text: text})
}

func (s Said) String() string {
	var all strings.Builder
	for _, p := range s {
		all.WriteString(p.Text)
	}
	return all.String()
}

// nextStep describes what would start the task on a node, or start it again.
type nextStep struct{ Explain }

// Next describes what would start the task on the node, or start it again.
func (e Explain) Next() Said { return nextStep{e}.sentence() }

func (e nextStep) sentence() Said {
	if e.deleting() {
		return prose("see how far the deletion is: ").command(e.status() + " --watch")
	}
	switch e.State.State {
	case plan.Done:
		return e.again()
	case plan.Failed:
		return e.afterFailure()
	case plan.Running:
		return e.ends()
	case plan.Excluded:
		return prose(e.include())
	case plan.Waiting:
	}
	if next := turns[e.State.Reason]; next != nil {
		return next(e)
	}
	return prose("it runs automatically when that is fixed")
}

// ends describes when an attempt ends, and what helps if it does not begin.
func (e nextStep) ends() Said {
	switch {
	case e.blockedSoFar() != "":
		return prose("the eviction is retried automatically " + until(e.Now, e.Drain.Deadline.Time) + ". If it stays blocked, " + e.unblock())
	case e.State.Reason == v1alpha1.ReasonDrainBlocked && e.Drain != nil:
		return prose(e.unblock())
	case e.cannotStart():
		return prose("it starts automatically when that is fixed. See what the kubelet says: ").command(
			"kubectl -n " + e.Job.Namespace + " describe pod " + e.running().Name)
	}
	return prose("no action needed: it ends automatically, at its timeout at the latest")
}

// onNode returns the command for a remedy on the node.
func (e Explain) onNode(verb plan.Verb) string {
	return command(e.Job, plan.Remedy{Verb: verb, Node: e.Node.Name})
}

// status returns the command that shows the NodeJob.
func (e Explain) status() string { return command(e.Job, plan.Remedy{Verb: "status"}) }

// describe returns the command that shows the node.
func (e Explain) describe() string { return "kubectl describe node " + e.Node.Name }

// retry adds how to retry the node.
func (e nextStep) retry(s Said) Said { return s.prose("retry it: ").command(e.onNode(plan.VerbRetry)) }

// skip adds how to leave the node out.
func (e nextStep) skip(s Said) Said {
	return s.prose("leave the node out: ").command(e.onNode(plan.VerbSkip))
}

// afterFailure describes what helps a failed node.
func (e nextStep) afterFailure() Said {
	switch e.State.Reason {
	case v1alpha1.ReasonProgressDeadlineExceeded:
		return prose("it runs automatically when that is fixed. To leave the node out: ").command(e.onNode(plan.VerbSkip))
	case v1alpha1.ReasonNodeUnreachable:
		return prose("see why the node does not report: ").command(e.describe()).prose(". The task is retried when the node is back")
	case v1alpha1.ReasonRollingBack, v1alpha1.ReasonRollbackPending:
		return prose("no action needed for the rollback. To run the task again: ").command(e.onNode(plan.VerbRetry))
	case v1alpha1.ReasonRollbackFailed:
		return e.helps(prose("check the state of the node, then "))
	}
	return e.helps(nil)
}

// helps adds what helps after a failure.
func (e nextStep) helps(s Said) Said {
	switch rec := e.record(); {
	case rec == nil:
	case rec.Reverted:
		return e.retry(e.skip(s.prose(lowered(plan.FixRevert) + " ")).prose("; or "))
	case rec.Reason == v1alpha1.ReasonDrainTimedOut:
		s = s.prose(lowered(plan.MakeRoom) + " ")
	}
	return e.skip(e.retry(s).prose("; or "))
}

// unblock describes how a drain that is blocked can continue.
func (e nextStep) unblock() string {
	var budgets, pods []string
	for _, b := range e.Drain.Blocked {
		pods = append(pods, b.Pod)
		namespace, _, _ := strings.Cut(b.Pod, "/")
		if m := budgetName.FindStringSubmatch(b.Message); m != nil && !slices.Contains(budgets, namespace+"/"+m[1]) {
			budgets = append(budgets, namespace+"/"+m[1])
		}
	}
	relax := ""
	if len(budgets) > 0 {
		relax = "relax " + the("budget", budgets) + ", or "
	}
	return fmt.Sprintf("%sdelete %s; else it fails at %s", relax, the("pod", pods), clock(e.Now, e.Drain.Deadline.Time))
}

// the returns a noun with names.
func the(noun string, names []string) string {
	if len(names) != 1 {
		noun += "s"
	}
	return "the " + noun + " " + strings.Join(names, ", ")
}

// budgetName finds the name of a PodDisruptionBudget in what the API server says about an eviction.
var budgetName = regexp.MustCompile(`disruption budget ([a-z0-9][-a-z0-9.]*) `)

// turns are what a node waits for, by its reason, and how to see why it still waits. For other reasons, it runs when that is fixed.
var turns = map[string]func(nextStep) Said{
	v1alpha1.ReasonWaitingForSlot:  byItself,
	v1alpha1.ReasonCheckingBefore:  byItself,
	v1alpha1.ReasonPullingImages:   byItself,
	v1alpha1.ReasonSoaking:         byItself,
	v1alpha1.ReasonPodTerminating:  byItself,
	v1alpha1.ReasonManagerNodeLast: byItself,
	v1alpha1.ReasonRollingBack:     byItself,
	v1alpha1.ReasonRerunDelayed:    byItself,

	v1alpha1.ReasonAwaitingPromotion: func(e nextStep) Said {
		// Without the step of the node, promote advances by one step, which may be an earlier one.
		return prose("it can run after: ").command(command(e.Job, plan.Remedy{Verb: plan.VerbPromote, Step: e.Step}))
	},
	v1alpha1.ReasonSuspended: func(e nextStep) Said {
		return prose("it can run after: ").command(command(e.Job, plan.Remedy{Verb: plan.VerbResume}))
	},
	v1alpha1.ReasonMaxFailuresExceeded: func(e nextStep) Said {
		return prose("fix the task, or retry all failed nodes: ").command(command(e.Job, plan.Remedy{Verb: plan.VerbRetry}) + " --failed").
			prose("; or raise spec.rollout.maxFailures")
	},
	v1alpha1.ReasonBackingOff: nextStep.afterBackoff,
	v1alpha1.ReasonStepWithoutNodes: func(nextStep) Said {
		return prose("correct the selector of the step without nodes, or remove that step from spec.rollout.steps")
	},
	v1alpha1.ReasonNodeUnreachable: nextStep.whenReported,
	v1alpha1.ReasonNotReported:     nextStep.whenReported,
	v1alpha1.ReasonNodeTerminating: func(nextStep) Said { return prose("no action needed: a new node of this name runs it") },

	v1alpha1.ReasonNodeFieldNotFound:     nextStep.whenNodeHasValue,
	v1alpha1.ReasonNodeFieldInvalid:      nextStep.whenNodeHasValue,
	v1alpha1.ReasonMaxUnavailableReached: func(e nextStep) Said { return e.makeRoom() },
	v1alpha1.ReasonWaitingForControlPlane: func(nextStep) Said {
		return prose("it starts automatically when that node is available. To see why it is not: ").
			command("kubectl get nodes -l node-role.kubernetes.io/control-plane")
	},
	v1alpha1.ReasonWaitingForDependency: func(e nextStep) Said {
		why := "kubectl everynode explain " + e.Node.Name
		if deps := e.Job.Spec.DependsOn; len(deps) == 1 {
			why = explainCommand(e.Job.Namespace, deps[0], e.Node.Name)
		}
		return prose("it runs automatically when the other NodeJob is done on the node. To see why it is not: ").command(why)
	},
	v1alpha1.ReasonWaitingForRetry: func(e nextStep) Said {
		return prose("it starts automatically when that retry has ended. To see what it waits for: ").command(e.status())
	},
	v1alpha1.ReasonWaitingForStep: func(e nextStep) Said {
		return prose("it runs automatically when the earlier step has passed. To see what that step waits for: ").command(e.status())
	},
	v1alpha1.ReasonBudgetClosed: func(nextStep) Said {
		return prose("it starts automatically when all budgets of the node allow it. To see when: ").command("kubectl everynode budgets")
	},
	v1alpha1.ReasonWindowTooShort: func(nextStep) Said { return prose("it does not start before one of these is changed") },
}

// byItself is said of a reason that ends without a user.
func byItself(nextStep) Said { return prose("no action needed: it starts automatically") }

func (e nextStep) whenReported() Said {
	return prose("it runs automatically when the node reports again. To see why it does not: ").command(e.describe())
}

func (e nextStep) whenNodeHasValue() Said {
	return prose("it runs automatically when the Node has the value. To see what it has: ").command(e.describe())
}

// afterBackoff describes what helps a node that waits after an attempt, or after a check that failed itself.
func (e nextStep) afterBackoff() Said {
	switch rec := e.record(); {
	case rec == nil:
	case rec.Reason == v1alpha1.ReasonImagesNotPulled:
		return prose("the images are pulled again automatically. Check the names of the images, their registry, and the pull secrets: kubectl describe pod shows what the kubelet says")
	case rec.CheckBefore == record.AnswerError:
		return prose("the check is repeated automatically. Correct task.check: exit code 0 is yes, 75 means that it cannot say, and any other below 128 is no")
	case rec.Expiry != nil && rec.Expiry.Answer == record.AnswerError:
		return prose("the check is repeated automatically. Correct spec.expires.check: it must exit with 0 if the task is no longer needed, or 1 if it is")
	}
	return prose("no action needed: it is retried automatically. To retry it now: ").command(e.onNode(plan.VerbRetry))
}

// cannotStart reports whether the pod of the attempt does not start, for a reason that its kubelet has reported.
func (e nextStep) cannotStart() bool {
	return len(e.Pods) > 0 && e.State.Message != "" && e.running().Waiting != "" && e.running().Started.IsZero()
}

// explainCommand returns the command that explains a node for a NodeJob.
func explainCommand(namespace, job, node string) string {
	return fmt.Sprintf("kubectl everynode explain %s %s -n %s", job, node, namespace)
}

// again describes how to rerun the task on a node that is done.
func (e nextStep) again() Said {
	var ways []string
	r := e.Job.Spec.Rerun
	if r.OnRevisionChange == nil || *r.OnRevisionChange {
		ways = append(ways, "a change of the task")
	}
	if r.OnReboot {
		ways = append(ways, "a reboot")
	}
	if r.OnNodeFieldChange {
		ways = append(ways, "a change of the values that task.env takes from the Node")
	}
	if !e.State.Until.IsZero() {
		ways = append(ways, "its schedule at "+clock(e.Now, e.State.Until))
	}
	ways = append(ways, "")
	return prose("it runs again after " + strings.Join(ways, ", or ")).command(e.onNode(plan.VerbRerun))
}

// include describes how to make the NodeJob select the node.
func (e nextStep) include() string {
	if e.State.Reason == v1alpha1.ReasonUntoleratedTaint {
		return "it would run with a toleration for it in spec.nodes.tolerations, or without the taint"
	}
	if e.State.Reason == v1alpha1.ReasonNodeNotAllowed {
		return fmt.Sprintf("an administrator can change what the namespace is limited to: kubectl annotate namespace %s %s=SELECTOR --overwrite", e.Job.Namespace, v1alpha1.NodesAnnotation)
	}
	if e.State.Reason == v1alpha1.ReasonUnsupportedOS {
		return "scripts and commands run on Linux nodes only: for other nodes use spec.task.template with spec.os"
	}
	spec := &e.Job.Spec
	if len(spec.Nodes.Names) > 0 && !slices.Contains(spec.Nodes.Names, e.Node.Name) {
		return "it would run if spec.nodes.names named it"
	}
	if _, err := metav1.LabelSelectorAsSelector(spec.Nodes.Selector); err != nil {
		return "correct spec.nodes.selector, which cannot be used: " + err.Error()
	}
	return "it would run if the node's labels matched spec.nodes.selector: " + metav1.FormatLabelSelector(spec.Nodes.Selector)
}

// words converts a reason in CamelCase to words.
func words(reason string) string {
	var b strings.Builder
	for i, r := range reason {
		if i > 0 && 'A' <= r && r <= 'Z' {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
