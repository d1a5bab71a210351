// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// nextStep describes what would start the task on a node, or start it again.
type nextStep struct{ Explain }

// Next describes what would start the task on the node, or start it again.
func (e Explain) Next() string { return nextStep{e}.sentence() }

func (e nextStep) sentence() string {
	if e.deleting() {
		return "see how far the deletion is: " + e.status() + " --watch"
	}
	switch e.State.State {
	case plan.Done:
		return e.again()
	case plan.Failed:
		return e.afterFailure()
	case plan.Running:
		switch {
		case e.blockedSoFar() != "":
			return fmt.Sprintf("the eviction is retried automatically %s. If it stays blocked, %s", until(e.Now, e.Drain.Deadline.Time), e.unblock())
		case e.State.Reason == v1alpha1.ReasonDrainBlocked && e.Drain != nil:
			return e.unblock()
		case e.cannotStart():
			return "it starts automatically when that is fixed. See what the kubelet says: " + e.describePod()
		}
		return "no action needed: it ends automatically, at its timeout at the latest"
	case plan.Excluded:
		return e.include()
	case plan.Waiting:
	}
	return e.turn()
}

// onNode returns the command for a remedy on the node.
func (e Explain) onNode(verb plan.Verb) string {
	return e.command(plan.Remedy{Verb: verb, Node: e.Node.Name})
}

// command returns a remedy as a command of this program.
func (e Explain) command(r plan.Remedy) string {
	return "kubectl everynode -n " + e.Job.Namespace + " " + strings.Join(r.Arguments(e.Job.Name), " ")
}

// status returns the command that shows the NodeJob.
func (e Explain) status() string { return e.command(plan.Remedy{Verb: "status"}) }

// describe returns the command that shows the node.
func (e Explain) describe() string { return "kubectl describe node " + e.Node.Name }

// afterFailure describes what helps a failed node.
func (e nextStep) afterFailure() string {
	retry, skip := "retry it: "+e.onNode(plan.VerbRetry), "leave the node out: "+e.onNode(plan.VerbSkip)
	again := retry + "; or " + skip
	switch rec := e.record(); {
	case rec == nil:
	case rec.Reverted:
		again = lowered(plan.FixRevert) + " " + skip + "; or " + retry
	case rec.Reason == v1alpha1.ReasonDrainTimedOut:
		again = lowered(plan.MakeRoom) + " " + again
	}
	switch e.State.Reason {
	case v1alpha1.ReasonProgressDeadlineExceeded:
		return "it runs automatically when that is fixed. To leave the node out: " + e.onNode(plan.VerbSkip)
	case v1alpha1.ReasonNodeUnreachable:
		return "see why the node does not report: " + e.describe() + ". The task is retried when the node is back"
	case v1alpha1.ReasonRollingBack, v1alpha1.ReasonRollbackPending:
		return "no action needed for the rollback. To run the task again: " + e.onNode(plan.VerbRetry)
	case v1alpha1.ReasonRollbackFailed:
		return "check the state of the node, then " + again
	}
	return again
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

// turn describes what a node waits for before it runs.
func (e nextStep) turn() string {
	switch e.State.Reason {
	case v1alpha1.ReasonAwaitingPromotion:
		// Without the step of the node, promote advances by one step, which may be an earlier one.
		return "it can run after: " + e.command(plan.Remedy{Verb: plan.VerbPromote, Step: e.Step})
	case v1alpha1.ReasonSuspended:
		return "it can run after: " + e.command(plan.Remedy{Verb: plan.VerbResume})
	case v1alpha1.ReasonMaxFailuresExceeded:
		return "fix the task, or retry all failed nodes: " + e.command(plan.Remedy{Verb: plan.VerbRetry}) + " --failed; or raise spec.rollout.maxFailures"
	case v1alpha1.ReasonBackingOff:
		return e.afterBackoff()
	case v1alpha1.ReasonStepWithoutNodes:
		return "correct the selector of the step without nodes, or remove that step from spec.rollout.steps"
	}
	if slices.Contains(ownTurn, e.State.Reason) {
		return "no action needed: it starts automatically"
	}
	return e.waitsFor()
}

// afterBackoff describes what helps a node that waits after an attempt, or after a check that failed itself.
func (e nextStep) afterBackoff() string {
	switch rec := e.record(); {
	case rec == nil:
	case rec.Reason == v1alpha1.ReasonImagesNotPulled:
		return "the images are pulled again automatically. Check the names of the images, their registry, and the pull secrets: kubectl describe pod shows what the kubelet says"
	case rec.CheckBefore == record.AnswerError:
		return "the check is repeated automatically. Correct task.check: exit code 0 is yes, 75 means that it cannot say, and any other below 128 is no"
	case rec.Expiry != nil && rec.Expiry.Answer == record.AnswerError:
		return "the check is repeated automatically. Correct spec.expires.check: it must exit with 0 if the task is no longer needed, or 1 if it is"
	}
	return "no action needed: it is retried automatically. To retry it now: " + e.onNode(plan.VerbRetry)
}

// waitsFor describes what must happen first, and how to check why it has not.
func (e nextStep) waitsFor() string {
	switch e.State.Reason {
	case v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonNotReported:
		return "it runs automatically when the node reports again. To see why it does not: " + e.describe()
	case v1alpha1.ReasonNodeTerminating:
		return "no action needed: a new node of this name runs it"
	case v1alpha1.ReasonNodeFieldNotFound, v1alpha1.ReasonNodeFieldInvalid:
		return "it runs automatically when the Node has the value. To see what it has: " + e.describe()
	case v1alpha1.ReasonMaxUnavailableReached:
		return e.makeRoom()
	case v1alpha1.ReasonWaitingForControlPlane:
		return "it starts automatically when that node is available. To see why it is not: kubectl get nodes -l node-role.kubernetes.io/control-plane"
	case v1alpha1.ReasonWaitingForDependency:
		why := "kubectl everynode explain " + e.Node.Name
		if deps := e.Job.Spec.DependsOn; len(deps) == 1 {
			why = explainCommand(e.Job.Namespace, deps[0], e.Node.Name)
		}
		return "it runs automatically when the other NodeJob is done on the node. To see why it is not: " + why
	case v1alpha1.ReasonWaitingForRetry:
		return "it starts automatically when that retry has ended. To see what it waits for: " + e.status()
	case v1alpha1.ReasonWaitingForStep:
		return "it runs automatically when the earlier step has passed. To see what that step waits for: " + e.status()
	}
	return cmp.Or(afterBudgets[e.State.Reason], "it runs automatically when that is fixed")
}

// afterBudgets is what a node waits for whose NodeDisruptionBudgets are closed.
var afterBudgets = map[string]string{
	v1alpha1.ReasonBudgetClosed:   "it starts automatically when all budgets of the node allow it. To see when: kubectl everynode budgets",
	v1alpha1.ReasonWindowTooShort: "it does not start before one of these is changed",
}

// describePod returns the command that shows the pod of the attempt.
func (e nextStep) describePod() string {
	return "kubectl -n " + e.Job.Namespace + " describe pod " + e.running().Name
}

// cannotStart reports whether the pod of the attempt does not start, for a reason that its kubelet has reported.
func (e nextStep) cannotStart() bool {
	return len(e.Pods) > 0 && e.State.Message != "" && e.running().Waiting != "" && e.running().Started.IsZero()
}

// ownTurn are the reasons that end by themselves.
var ownTurn = []string{
	v1alpha1.ReasonWaitingForSlot, v1alpha1.ReasonCheckingBefore, v1alpha1.ReasonPullingImages, v1alpha1.ReasonSoaking, v1alpha1.ReasonPodTerminating, v1alpha1.ReasonManagerNodeLast, v1alpha1.ReasonRollingBack,
	v1alpha1.ReasonRerunDelayed,
}

// explainCommand returns the command that explains a node for a NodeJob.
func explainCommand(namespace, job, node string) string {
	return fmt.Sprintf("kubectl everynode -n %s explain %s %s", namespace, job, node)
}

// again describes how to rerun the task on a node that is done.
func (e nextStep) again() string {
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
	ways = append(ways, e.onNode(plan.VerbRerun))
	return "it runs again after " + strings.Join(ways, ", or ")
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
