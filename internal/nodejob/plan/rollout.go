// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// rollout is the progress of the revision in this pass.
type rollout struct {
	*job
	gate  *gate
	nodes []nodePlan
	plan  *Plan
	steps []step
	// status is the progress as the status stores it.
	status rolloutState
	// stableAt is when the revision became stable, according to the status; zero if it is not stable.
	stableAt time.Time
	// current and ceiling are indexes into steps.
	current, ceiling int
	// notReadyNode is a node that must become Ready before the soak of the current step starts.
	notReadyNode string
	// passed is true if the current step has passed, and the rollout is paused only because of the ceiling.
	passed bool
	// failed counts the nodes that count against maxFailures, and mayFail is the failure budget.
	failed, mayFail int
	// alone is a node that a user retries before others start; nil if there is none.
	alone *nodePlan
	// stopped is true if more nodes failed than the failure budget allows.
	stopped bool
}

// rolloutState is what users read of the progress, and what only the manager reads.
type rolloutState struct {
	v1alpha1.RolloutStatus
	v1alpha1.RolloutMemory
}

func readRollout(from *v1alpha1.NodeJobStatus) rolloutState {
	return rolloutState{*from.Rollout.DeepCopy(), *from.ControllerState.Rollout.DeepCopy()}
}

func (s rolloutState) write(into *v1alpha1.NodeJobStatus) {
	into.Rollout, into.ControllerState.Rollout = &s.RolloutStatus, s.RolloutMemory
}

// carryOver reads the progress of the revision from the status. If the status is lost, the progress is rebuilt step by
// step from the records of the nodes.
func (ro *rollout) carryOver() {
	status := &ro.in.Job.Status
	if status.Rollout != nil && status.Revision == ro.in.Revision {
		ro.status = readRollout(status)
	}
	ro.stableAt = ro.status.StableAt.Time
	ro.current = max(ro.indexOf(ro.status.Step), 0)
	ro.countUnrecordedFailures()
}

// joinedAfterStable reports whether a node has joined since the revision became stable, has not been done since, and
// cannot run workloads yet. Such a node takes no slot and does not use the failure budget. Every other node waits for a
// slot, also a node that joined while nothing could start, and a node that is selected because a label or the selector
// changed. At deletion, stableAt is not read, so each rollback waits for a slot.
func (ro *rollout) joinedAfterStable(node *Node) bool {
	rec := node.On.Record
	doneBefore := node.On.WasDone() || rec != nil && rec.Rerun
	return !ro.stableAt.IsZero() && node.Created.After(ro.stableAt) && !doneBefore && ro.gate.withoutWorkloads(node)
}

// advance advances the rollout as far as the observed state allows, one step after the other.
func (ro *rollout) advance() {
	if ro.in.Revision == "" {
		return
	}
	ro.countFailed()
	ro.assignSteps()
	if ro.indexOf(ro.status.Step) < 0 {
		ro.beginStep(0)
	}
	ro.reviewSoak()
	if !ro.stableAt.IsZero() {
		ro.keepFailedDependents()
	}
	for ro.stableAt.IsZero() {
		ro.checkDependencies()
		if ro.stopped {
			ro.status.SoakingSince = metav1.Time{} // a Stalled rollout has no soak
		}
		if ro.stopped || !ro.checkStep() {
			return
		}
		switch {
		case ro.current == len(ro.steps)-1:
			ro.becomeStable()
			return
		case ro.current >= ro.ceiling:
			ro.passed = true
			return
		}
		ro.beginStep(ro.current + 1)
	}
}

// becomeStable notes that the revision has passed all steps. Failed nodes, with or without a record, and the ceiling do not block
// anything any more. The next pass applies that, and no event triggers it.
func (ro *rollout) becomeStable() {
	ro.status.StableAt = ro.now()
	if ro.failed > 0 || ro.ceiling < ro.current {
		ro.plan.wake(ro.in.Now.Add(time.Second))
	}
}

// now is the time as the status stores it, in whole seconds.
func (p *policy) now() metav1.Time { return metav1.NewTime(p.in.Now.Truncate(time.Second)) }

func (ro *rollout) beginStep(k int) {
	ro.current = k
	ro.status.Step = ro.steps[k].name
	ro.status.StepStartedAt = ro.now()
	ro.status.SoakingSince, ro.status.SoakedAt, ro.status.SoakedNodes = metav1.Time{}, metav1.Time{}, nil
	ro.status.WaitingForDependencySince = metav1.Time{}
}

// checkStep advances the current step, and returns true when it has passed. If a node turns NotReady in the soak, it
// becomes an unrecorded failure, and the step is checked once more: if it still passes, the soak continues; otherwise
// the soak restarts later, for example after another node has taken the place.
func (ro *rollout) checkStep() bool {
	st := &ro.steps[ro.current]
	for ro.stepPassed(st) {
		if st.soak == 0 || !ro.status.SoakedAt.IsZero() {
			return true
		}
		sick := ro.checkReady(st)
		soaks := !ro.status.SoakingSince.IsZero()
		switch {
		case len(sick) == 0:
			if !soaks {
				// The next whole second, because otherwise the soak would be shorter than requested.
				ro.status.SoakingSince = metav1.NewTime(ro.now().Add(time.Second))
				ro.noteSoaking(st)
			}
			ro.status.WaitingForReadySince = metav1.Time{}
			return ro.continueSoak(st)
		case soaks:
			ro.failNotReady(sick, v1alpha1.ReasonNotReadyInSoak)
		case ro.waitForReady():
			ro.failNotReady(sick, v1alpha1.ReasonProgressDeadlineExceeded)
		default:
			ro.notReadyNode = ro.nodes[sick[0]].Name
			return false
		}
		if ro.stopped {
			break
		}
	}
	ro.status.SoakingSince, ro.status.WaitingForReadySince = metav1.Time{}, metav1.Time{}
	return false
}

// waitForReady notes since when the soak waits for nodes to become Ready. It returns true if it has waited longer than
// rollout.progressDeadlineSeconds.
func (ro *rollout) waitForReady() bool {
	if ro.status.WaitingForReadySince.IsZero() {
		ro.status.WaitingForReadySince = ro.now()
	}
	since := ro.status.WaitingForReadySince.Time
	if ro.overdue(since) {
		return true
	}
	ro.plan.wake(ro.overdueAt(since))
	return false
}

// failNotReady counts the nodes of the step that are not Ready as failed, and lets others take their places.
func (ro *rollout) failNotReady(sick []int, reason string) {
	for _, i := range sick {
		ro.failInSoak(&ro.nodes[i], reason)
	}
	ro.countFailed()
	since := ro.status.SoakingSince
	ro.status.SoakingSince = metav1.Time{} // any node may replace a node that is not Ready
	ro.assignSteps()
	ro.status.SoakingSince = since
}

// continueSoak ends the soak, or wakes the plan at its end. It returns true if the soak is over.
func (ro *rollout) continueSoak(st *step) bool {
	until := ro.status.SoakingSince.Add(st.soak)
	if ro.in.Now.Before(until) {
		ro.plan.wake(until)
		return false
	}
	ro.status.SoakingSince, ro.status.SoakedAt = metav1.Time{}, ro.now()
	ro.noteSoaking(st)
	return true
}

// noteSoaking notes the nodes of a step that soak, or have soaked.
func (ro *rollout) noteSoaking(st *step) {
	ro.status.SoakedNodes = nil
	for _, i := range st.nodes {
		if w := &ro.nodes[i]; w.countsAsDone() && w.node.Ready == corev1.ConditionTrue && len(ro.status.SoakedNodes) < maxSoakedNodes {
			ro.status.SoakedNodes = append(ro.status.SoakedNodes, w.node.UID)
		}
	}
}

// maxSoakedNodes bounds status.controllerState.rollout.soakedNodes.
const maxSoakedNodes = 32

// reviewSoak lets the current step soak again if none of the nodes that soak or have soaked is done any more: they were deleted,
// replaced by another machine, or run the task again because a user has requested it.
func (ro *rollout) reviewSoak() {
	if len(ro.status.SoakedNodes) == 0 {
		return
	}
	done := map[types.UID]bool{}
	for _, i := range ro.steps[ro.current].nodes {
		done[ro.nodes[i].node.UID] = ro.nodes[i].countsAsDone()
	}
	ro.status.SoakedNodes = slices.DeleteFunc(ro.status.SoakedNodes, func(uid types.UID) bool { return !done[uid] })
	if len(ro.status.SoakedNodes) == 0 {
		ro.status.SoakedNodes, ro.status.SoakedAt, ro.status.SoakingSince = nil, metav1.Time{}, metav1.Time{}
	}
}

// stepPassed reports whether no node of the step is pending and the revision has succeeded there. A step for a number
// of nodes needs that number of successes, as far as there are enough nodes.
func (ro *rollout) stepPassed(st *step) bool {
	done := 0
	for _, i := range st.nodes {
		switch {
		case ro.nodes[i].countsAsDone():
			done++
		case ro.isPendingIn(st, i):
			return false
		}
	}
	if len(st.nodes) == 0 && !st.selective {
		return ro.anySucceeded() // there are no more nodes
	}
	return done > 0
}

// isPendingIn reports whether the step waits for a node to be done or to fail.
func (ro *rollout) isPendingIn(st *step, i int) bool {
	w := &ro.nodes[i]
	if w.countsAsDone() || w.State == Failed || w.progressDeadlineExceeded {
		return false
	}
	return st.quota != nil || ro.stepWaitsFor(w)
}

// anySucceeded reports whether the revision has succeeded on any node.
func (ro *rollout) anySucceeded() bool {
	for i := range ro.nodes {
		if ro.nodes[i].succeeded {
			return true
		}
	}
	return false
}

// stepWaitsFor reports whether a step waits for an unfinished node: a node that existed when the step started, and that
// can run the task or has run it.
func (ro *rollout) stepWaitsFor(w *nodePlan) bool {
	if w.node.Created.After(ro.status.StepStartedAt.Time) {
		return false
	}
	return w.ranRevision || !w.cannotRun()
}

// notReady are the nodes of the step that have succeeded and are not Ready, except those on which the task is running
// again. In a soak, these are the nodes that turned NotReady because of the task, except those that have joined since. Before
// it, the soak also waits for nodes that were not Ready when the task started, but not for those that are being removed, nor
// for those that the step does not wait for.
func (ro *rollout) notReady(st *step) []int {
	soaks := !ro.status.SoakingSince.IsZero()
	var sick []int
	for _, i := range st.nodes {
		w := &ro.nodes[i]
		switch {
		case !w.countsAsDone(), w.slot, w.node.Ready == corev1.ConditionTrue:
		case ro.wasHarmed(w) && !chooser{ro}.joinedInSoak(i):
			sick = append(sick, i)
		case !soaks && w.ranRevision && !ro.isRemoved(w) && (st.quota != nil || ro.stepWaitsFor(w)):
			sick = append(sick, i)
		}
	}
	return sick
}

// checkReady returns the nodes of the step that are not Ready and that its soak waits for, or that count in it. If no node
// that is done is Ready any more, without a failure, the soak ends: it begins with the first that comes back.
func (ro *rollout) checkReady(st *step) []int {
	if sick := ro.notReady(st); len(sick) > 0 || ro.isAlive(st) {
		return sick
	}
	ro.status.SoakingSince = metav1.Time{}
	return slices.DeleteFunc(slices.Clone(st.nodes), func(i int) bool { return !ro.nodes[i].countsAsDone() })
}

// isAlive reports whether a node of the step that is done is Ready, or none is done.
func (ro *rollout) isAlive(st *step) bool {
	alive := true
	for _, i := range st.nodes {
		switch w := &ro.nodes[i]; {
		case !w.countsAsDone():
		case w.slot, w.node.Ready == corev1.ConditionTrue:
			return true
		default:
			alive = false
		}
	}
	return alive
}

// blockStarts sets the reason of the nodes that may not start yet.
func (ro *rollout) blockStarts() {
	ro.alone = ro.firstAlone()
	for i := range ro.nodes {
		w := &ro.nodes[i]
		if !w.start.ready() || w.State != Waiting {
			continue
		}
		if b := ro.startBlock(w); b.blocks() {
			w.postpone(b)
			ro.plan.wake(b.Until)
		}
	}
}

// startBlock is why the rollout as a whole blocks the start of a task on a node, if it does.
func (ro *rollout) startBlock(w *nodePlan) block {
	if b := ro.stepBlock(w); b.blocks() {
		return b
	}
	return ro.aloneBlock(w)
}

// mayStartInStep reports whether the steps allow a start on a node. The check of spec.expires changes nothing, and a node that does not need
// the task is no canary, so it waits for no step.
func (ro *rollout) mayStartInStep(w *nodePlan) bool {
	return !ro.stableAt.IsZero() || w.step <= min(ro.current, ro.ceiling) || w.start.phase == task.CheckExpires
}

// stepBlock is why the failure budget or the steps block the start of a task on a node, if they do.
func (ro *rollout) stepBlock(w *nodePlan) block {
	if ro.stopped {
		return block{cause: causeStopped, Why: hold.Why{Reason: v1alpha1.ReasonMaxFailuresExceeded, Message: "the rollout has stopped: " + ro.failuresMessage()}}
	}
	if ro.mayStartInStep(w) {
		return block{}
	}
	current, own := &ro.steps[ro.current], ro.steps[w.step].name
	b := block{cause: causeStep, Why: hold.Why{Reason: v1alpha1.ReasonWaitingForStep}}
	switch {
	case w.step <= ro.current || ro.passed:
		b.cause, b.Reason = causePromotion, v1alpha1.ReasonAwaitingPromotion
		b.Message = fmt.Sprintf("it is in step %s, and rollout.promoteTo is %s", own, ro.steps[ro.ceiling].name)
	case current.selective && len(current.nodes) == 0:
		b.cause, b.Reason = causeEmptyStep, v1alpha1.ReasonStepWithoutNodes
		b.Message = fmt.Sprintf("it is in step %s, and no node is in step %s", own, current.name)
	case !ro.status.SoakingSince.IsZero():
		b.cause, b.Reason, b.Until = causeSoak, v1alpha1.ReasonSoaking, ro.status.SoakingSince.Add(current.soak)
		b.Message = fmt.Sprintf("it is in step %s, and step %s soaks until %s", own, current.name, b.Until.UTC().Format(time.RFC3339))
	case ro.notReadyNode != "":
		b.Message = fmt.Sprintf("it is in step %s, and the soak of step %s begins when node %s is Ready", own, current.name, ro.notReadyNode)
	default:
		b.Message = fmt.Sprintf("it is in step %s, and the rollout is in step %s", own, current.name)
	}
	return b
}
