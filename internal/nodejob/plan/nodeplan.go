// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// nodePlan is the state of a node, and what else a pass finds out about it. Only its methods change the state.
type nodePlan struct {
	*NodeState
	node *Node
	// cause is what a Waiting node waits for. Decisions read it, because reasons are for display.
	cause cause
	// ranRevision is true if this revision has run or runs on the node, and since is its earliest start.
	ranRevision bool
	since       time.Time
	// succeeded is true if this revision has succeeded there.
	succeeded bool
	// progressDeadlineExceeded is true for a node that has delayed others for too long.
	progressDeadlineExceeded bool
	// rerun is true for a node that was done with this revision, and reruns it or will rerun it.
	rerun bool
	// failed is true if the node counts against rollout.maxFailures. Such a node may still have another state, for example
	// while an attempt of an earlier revision ends there.
	failed bool
	// exhausted is true if its record says that no attempt is left.
	exhausted bool
	// retried is true if the last attempt failed or was disrupted, and the run continues.
	retried bool
	// rollbackPending is true if a rollback runs, or starts without help.
	rollbackPending bool
	// rollbackFinished is true if no further rollback will run.
	rollbackFinished bool
	// slot is true while the outcome of a pod of Everynode on the node is not on record.
	slot bool
	// checking is true while a pod only asks a question, such as the check before the task. It needs no slot. checkPhase is
	// its phase, and checkMessage why it does not start.
	checking     bool
	checkPhase   task.Phase
	checkMessage string
	// expiring is true if the task is no longer needed on the node, and is being rolled back.
	expiring bool
	// preparing is true while the node has its slot, and something must be done before the task starts, such as a drain.
	preparing bool
	// terminating is true while a pod of Everynode on the node is terminating and needs no record, or is that of an
	// earlier NodeJob with the same name.
	terminating bool
	// taskTerminating is true if such a pod has run something else than a question.
	taskTerminating bool
	// disrupted is true while a pod runs or is terminating whose run disrupts the node, even if the spec no longer does.
	disrupted bool
	// terminatingSince is when the first such pod should have ended; zero if that is not known.
	terminatingSince time.Time
	// releases are pods of Everynode that are released.
	releases []FinalizePod
	// retained are pods of Everynode whose outcome is on record, and that are retained for their logs.
	retained []*Pod
	// written is true if this pass writes a record on the node: a second write would not include the first.
	written bool
	// endsRun is true if this pass records the end of the run: a success, or a failure after which nothing is retried.
	endsRun bool
	// step is the step that the node belongs to; noStep if it belongs to none.
	step int
	// claims is true if this pass claims the node from its NodeDisruptionBudgets.
	claims bool
	// awaitsBudget is true if the node would be claimed if its NodeDisruptionBudgets allowed it.
	awaitsBudget bool
	// budgetClosed is true if a NodeDisruptionBudget is closed as well, while the node waits for something else.
	budgetClosed bool
	// start is the attempt that may start now, if any.
	start start
	// nonCompliant is true if task.check has answered no there since the node was done, or in an audit, and not yes since.
	nonCompliant bool
	// asks is what the node is asked in this pass if possible, since it is due; nil if there is nothing. unasked is true if something
	// prevents that.
	asks    *dueQuestion
	unasked bool
	// gated is true if the node is not done and has the taint of the gate.
	gated bool
	// obstructedBy is the obstacle that alone prevents the node from starting; nil if none does.
	obstructedBy *hold.Why
	// found is nil for most nodes: see findings.
	found *findings
}

// findings are what else a pass finds out about a node for the status.
type findings struct {
	failures []v1alpha1.NodeFailure
	// problem is what prevents the manager from continuing with the node; nil if nothing does.
	problem *NodeProblem
	// drain is a drain that continues; nil if there is none.
	drain *v1alpha1.NodeDrain
	// disrupted is true if its attempts were disrupted many times in a row.
	disrupted bool
	// notStarted says why its pod does not start, unrecovered how the rollback failed, and unpublished what cannot be
	// published; "" if that is not so.
	notStarted, unrecovered, unpublished string
	// rollbackRetried says how the last attempt of the rollback failed, which is retried while the NodeJob is deleted; "" if that
	// is not so.
	rollbackRetried string
	// checkError says how the check before the task itself failed; "" if it did not. checkErrorStalls is true if it has failed for
	// checkErrorPatience.
	checkError       string
	checkErrorStalls bool
	// askError and askErrorStalls are the same for the check of a node that is done.
	askError       string
	askErrorStalls bool
	// expiryError and expiryErrorStalls are the same for spec.expires.check.
	expiryError       string
	expiryErrorStalls bool
	// unheard says that the node is not heard while it may wait for a confirmation, and by when it reverts; "" otherwise.
	unheard string
	// silent is true if its pod does not start because its kubelet is silent.
	silent bool
}

const noStep = -1

// start is an attempt that may start on a node. Most of them wait, so the rest of the attempt is only determined when it
// starts: see planner.attemptOn.
type start struct {
	// phase is "" if none may start.
	phase task.Phase
	// number of the attempt, from 1.
	number int32
}

// ready reports whether an attempt may start.
func (s start) ready() bool { return s.phase != "" }

// cause is what a node waits for.
type cause int

const (
	causeNone cause = iota
	// causeNode : the node cannot run a task, and may never run one again.
	causeNode
	causeTerminatingPod
	causeSuspended
	causeObstacle
	causeNodeProblem
	causeBackoff
	causeDependency
	causeSlot
	// causeCheckBefore : the check before the task runs, or will.
	causeCheckBefore
	causeStep
	causeSoak
	causeEmptyStep
	causePromotion
	causeStopped
	causeManagerNodeLast
	causeMaxUnavailable
	causeControlPlane
	// causeBudget : a NodeDisruptionBudget allows no more unavailable nodes, or the node is being claimed.
	causeBudget
	// causeBudgetClosed : a NodeDisruptionBudget is frozen, or no window is open that is long enough.
	causeBudgetClosed
	// causeWindowTooShort : a run can take longer than each window of a NodeDisruptionBudget.
	causeWindowTooShort
	// causeInUse : another tool or a user has drained the node and not uncordoned it yet.
	causeInUse
	// causeRunsAlone : a user has requested that another node is retried first.
	causeRunsAlone
	// causeRollback : a rollback must end on the node first.
	causeRollback
)

// block is why a node waits.
type block struct {
	cause cause
	hold.Why
	// obstacle and problem are what causeObstacle and causeNodeProblem mean.
	obstacle *hold.Why
	problem  *NodeProblem
	// claim is how the node is claimed from its NodeDisruptionBudgets; nil if it is not. awaits is true if it would be if they
	// allowed it.
	claim  *Claim
	awaits bool
}

// blocks reports whether there is something to wait for.
func (b *block) blocks() bool { return b.cause != causeNone }

// waitFor makes the node wait.
func (w *nodePlan) waitFor(b block) {
	w.set(Waiting, b.Reason, b.Message, b.Until)
	w.cause, w.awaitsBudget = b.cause, b.awaits
	w.note(b)
}

// note notes for the status what blocks the node.
func (w *nodePlan) note(b block) {
	if b.obstacle != nil {
		w.obstructedBy = b.obstacle
	}
	if b.problem != nil {
		w.findings().problem = b.problem
	}
}

// run gives the node the state of a node with an attempt.
func (w *nodePlan) run(reason, message string, until time.Time) {
	w.set(Running, reason, message, until)
}

// done gives the node the state of a node that is done. due is when it reruns the task; zero if it does not.
func (w *nodePlan) done(due time.Time) { w.set(Done, v1alpha1.ReasonDone, "", due) }

// expire gives the node the state of a node that is done because the task is no longer needed there.
func (w *nodePlan) expire() {
	w.set(Done, v1alpha1.ReasonExpired, "the task is no longer needed on it (spec.expires)", time.Time{})
}

// fail gives the node the state of a node on which the task has failed. The task is not retried there automatically, unless
// the reason says so; a rollback may run. until is when the state may change.
func (w *nodePlan) fail(reason, message string, until time.Time) {
	w.set(Failed, reason, message, until)
}

// noteTerminating notes a pod that is terminating on the node, and should have ended at that time; zero if that is not known.
func (w *nodePlan) noteTerminating(runs task.Phase, since time.Time) {
	w.terminating = true
	w.taskTerminating = w.taskTerminating || !runs.Asks()
	if since.IsZero() {
		return
	}
	if w.terminatingSince.IsZero() || since.Before(w.terminatingSince) {
		w.terminatingSince = since
	}
}

// noteDisruption notes whether the run of a pod that runs or is terminating disrupts the node.
func (w *nodePlan) noteDisruption(pod *Pod) { w.disrupted = w.disrupted || pod.Disrupts }

// exclude excludes a node. It does not count as one that reruns the task.
func (w *nodePlan) exclude(reason, message string) {
	w.rerun = false
	w.set(Excluded, reason, message, time.Time{})
}

// isExcludedThoughSelected reports whether a node is excluded although spec.nodes.selector and spec.nodes.names select it.
func (w *nodePlan) isExcludedThoughSelected() bool {
	return w.State == Excluded && (w.Reason == v1alpha1.ReasonUntoleratedTaint || w.Reason == v1alpha1.ReasonUnsupportedOS ||
		w.Reason == v1alpha1.ReasonNodeNotAllowed)
}

// postpone makes a node that is ready to start wait for other nodes. A rollback retains the state of its node, and so does the check
// of spec.expires on a node that is done or has failed.
func (w *nodePlan) postpone(b block) {
	switch {
	case w.start.phase == task.Rollback:
		w.explain(b.Reason, b.Message)
	case w.start.phase != task.CheckExpires || w.State == Waiting:
		w.waitFor(b)
	}
	w.start = start{}
}

// explain replaces the reason and the message, for example of a rollback that is pending.
func (w *nodePlan) explain(reason, message string) { w.Reason, w.Message = reason, message }

func (w *nodePlan) set(state State, reason, message string, until time.Time) {
	w.State, w.Reason, w.Message, w.Until, w.cause = state, reason, message, until, causeNone
}

// addFailure notes a failure for the status.
func (w *nodePlan) addFailure(f v1alpha1.NodeFailure) {
	w.findings().failures = append(w.findings().failures, f)
}

// explained is the name of the node with its message.
func (w *nodePlan) explained() string { return w.Name + ": " + w.Message }

// findings returns the findings of the node, to add one.
func (w *nodePlan) findings() *findings {
	if w.found == nil {
		w.found = &findings{}
	}
	return w.found
}

// runsSoon reports whether the task runs on the node, or may start there now, or after its check.
func (w *nodePlan) runsSoon() bool {
	return w.slot || w.claims || w.start.ready() || w.cause == causeCheckBefore
}

// cannotRun reports whether the node cannot run a task, and may never run one again.
func (w *nodePlan) cannotRun() bool { return w.cause == causeNode }

// startable reports whether an unfinished node can run a task sooner or later.
func (w *nodePlan) startable() bool {
	return w.State == Waiting && !w.cannotRun() || w.State == Running
}

// countsAsDone reports whether a node is done, or was done and reruns the task. The revision has succeeded there, and
// that stands until the rerun fails.
func (w *nodePlan) countsAsDone() bool { return w.State == Done || w.rerun }

// continues reports whether a waiting node continues automatically. Nodes that are unreachable, do not report or are being
// deleted may never continue; nodes of later steps, and that of the manager, continue only after others; and for a node that waits until fewer are
// unavailable, a failed node that is cordoned may be the reason.
func (w *nodePlan) continues() bool {
	if w.State != Waiting {
		return false
	}
	switch w.cause {
	case causeNode, causeStep, causeEmptyStep, causePromotion, causeStopped, causeMaxUnavailable, causeControlPlane, causeRunsAlone,
		causeWindowTooShort, causeInUse, causeManagerNodeLast:
		return false
	case causeNone, causeTerminatingPod, causeSuspended, causeObstacle, causeNodeProblem, causeBackoff, causeDependency, causeSlot, causeCheckBefore, causeSoak,
		causeRollback, causeBudget, causeBudgetClosed:
	}
	return true
}

// awaitsPods reports whether an attempt may start on the node when its pods have ended.
func (w *nodePlan) awaitsPods() bool {
	return w.State == Waiting || w.State == Running || w.rollbackPending
}

// waitsForRollout reports whether the node waits for other nodes.
func (w *nodePlan) waitsForRollout() bool {
	switch w.cause {
	case causeStep, causeSoak, causeEmptyStep, causePromotion, causeRunsAlone:
		return true
	default:
		return false
	}
}

// waitsForBudget reports whether the node waits for NodeDisruptionBudgets.
func (w *nodePlan) waitsForBudget() bool {
	switch w.cause {
	case causeBudget, causeBudgetClosed, causeWindowTooShort:
		return true
	default:
		return false
	}
}
