// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
)

// rollout is the progress of the revision in this pass.
type rollout struct {
	*job
	gate  *gate
	nodes []nodePlan
	plan  *Plan
	steps []step
	// status is the progress as the status stores it.
	status v1alpha1.RolloutStatus
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
	// stopped is true if more nodes failed than the failure budget allows.
	stopped bool
}

// carryOver reads the progress of the revision from the status. If the status is lost, the progress is rebuilt step by
// step from the records of the nodes.
func (s *rollout) carryOver() {
	status := &s.in.Job.Status
	if status.Rollout != nil && status.Revision == s.in.Revision {
		s.status = *status.Rollout.DeepCopy()
	}
	s.stableAt = s.status.StableAt.Time
	s.current = max(s.indexOf(s.status.Step), 0)
	s.countUnrecordedFailures()
}

// joinedAfterStable reports whether a node has joined since the revision became stable, has not been done since, and
// cannot run workloads yet. Such a node takes no slot and does not use the failure budget. Every other node waits for a
// slot, also a node that joined while nothing could start, and a node that is selected because a label or the selector
// changed. For a rollback at deletion, every node waits for a slot.
func (s *rollout) joinedAfterStable(node *Node) bool {
	rec := node.On.Record
	doneBefore := node.On.Label != "" || (rec != nil && (rec.Outcome == record.Succeeded || rec.Rerun))
	return s.in.Job.DeletionTimestamp.IsZero() && !s.stableAt.IsZero() && node.Created.After(s.stableAt) && !doneBefore && s.gate.withoutWorkloads(node)
}

// withoutWorkloads reports whether no workload can run on a node that has joined: the gate has been closed since the
// node was created, or the node is new and not Ready.
func (s *gate) withoutWorkloads(node *Node) bool {
	return s.closedSinceCreation(node) || (node.Ready != corev1.ConditionTrue && s.isNewNode(node))
}

// advance advances the rollout as far as the observed state allows, one step after the other.
func (s *rollout) advance() {
	if s.in.Revision == "" {
		return
	}
	s.countFailed()
	s.assignSteps()
	if s.indexOf(s.status.Step) < 0 {
		s.beginStep(0)
	}
	for s.stableAt.IsZero() {
		if s.stopped {
			s.status.SoakingSince = metav1.Time{} // a Stalled rollout has no soak
		}
		if s.stopped || !s.checkStep() {
			return
		}
		switch {
		case s.current == len(s.steps)-1:
			s.status.StableAt = s.now()
			if len(s.status.UnrecordedFailures) > 0 || s.ceiling < s.current {
				// The unrecorded failures and the ceiling do not block anything any more. The next pass applies that, and no event
				// triggers it.
				s.plan.wake(s.in.Now.Add(time.Second))
			}
			return
		case s.current >= s.ceiling:
			s.passed = true
			return
		}
		s.beginStep(s.current + 1)
	}
}

// now is the time as the status stores it, in whole seconds.
func (s *job) now() metav1.Time { return metav1.NewTime(s.in.Now.Truncate(time.Second)) }

func (s *rollout) beginStep(k int) {
	s.current = k
	s.status.Step = s.steps[k].name
	s.status.StepStartedAt = s.now()
	s.status.SoakingSince, s.status.SoakedAt = metav1.Time{}, metav1.Time{}
}

// checkStep advances the current step, and returns true when it has passed. If a node is not Ready in the soak, it becomes an unrecorded
// failure, and the step is checked once more.
func (s *rollout) checkStep() bool {
	st := &s.steps[s.current]
	for s.stepPassed(st) {
		if st.soak == 0 || !s.status.SoakedAt.IsZero() {
			return true
		}
		sick, soaks := s.notReady(st), !s.status.SoakingSince.IsZero()
		switch {
		case len(sick) == 0:
			if !soaks {
				// The next whole second, because otherwise the soak would be shorter than requested.
				s.status.SoakingSince = metav1.NewTime(s.now().Add(time.Second))
			}
			s.status.WaitingForReadySince = metav1.Time{}
			return s.continueSoak(st)
		case soaks:
			s.failNotReady(sick, v1alpha1.ReasonNotReadyInSoak)
		case s.waitForReady():
			s.failNotReady(sick, v1alpha1.ReasonProgressDeadlineExceeded)
		default:
			s.notReadyNode = s.nodes[sick[0]].Name
			return false
		}
		if s.stopped {
			break
		}
	}
	s.status.SoakingSince, s.status.WaitingForReadySince = metav1.Time{}, metav1.Time{}
	return false
}

// waitForReady notes since when the soak waits for nodes to become Ready. It returns true if it has waited longer than rollout.progressDeadlineSeconds for nodes to become
// Ready.
func (s *rollout) waitForReady() bool {
	if s.status.WaitingForReadySince.IsZero() {
		s.status.WaitingForReadySince = s.now()
	}
	since := s.status.WaitingForReadySince.Time
	if s.overdue(since) {
		return true
	}
	s.plan.wake(s.overdueAt(since))
	return false
}

// failNotReady counts the nodes of the step that are not Ready as failed, and lets others take their places.
func (s *rollout) failNotReady(sick []int, reason string) {
	for _, i := range sick {
		s.failInSoak(&s.nodes[i], reason)
	}
	s.countFailed()
	since := s.status.SoakingSince
	s.status.SoakingSince = metav1.Time{} // any node may replace a node that is not Ready
	s.assignSteps()
	s.status.SoakingSince = since
}

// continueSoak ends the soak, or wakes the plan at its end. It returns true if the soak is over.
func (s *rollout) continueSoak(st *step) bool {
	until := s.status.SoakingSince.Add(st.soak)
	if s.in.Now.Before(until) {
		s.plan.wake(until)
		return false
	}
	s.status.SoakingSince, s.status.SoakedAt = metav1.Time{}, s.now()
	return true
}

// stepPassed reports whether no node of the step is pending and the revision has succeeded there. A step for a number
// of nodes needs that number of successes, as far as there are enough nodes.
func (s *rollout) stepPassed(st *step) bool {
	done := 0
	for _, i := range st.nodes {
		switch {
		case s.nodes[i].countsAsDone():
			done++
		case s.nodes[i].State == Failed, s.nodes[i].progressDeadlineExceeded:
		case st.quota != nil, s.stepWaitsFor(&s.nodes[i]):
			return false
		}
	}
	if len(st.nodes) == 0 && !st.selective {
		return s.anySucceeded() // there are no more s.nodes
	}
	return done > 0
}

// anySucceeded reports whether the revision has succeeded on any node.
func (s *rollout) anySucceeded() bool {
	for i := range s.nodes {
		if s.nodes[i].succeeded {
			return true
		}
	}
	return false
}

// stepWaitsFor reports whether a step waits for an unfinished node: a node that existed when the step started, and that
// can run the task or has run it.
func (s *rollout) stepWaitsFor(w *nodePlan) bool {
	if w.node.Created.After(s.status.StepStartedAt.Time) {
		return false
	}
	return w.ranRevision || !w.cannotRun()
}

// notReady are the nodes of the step that have succeeded and are not Ready, except those on which the task is running
// again, and those that have joined since the soak started: they may never have been Ready.
func (s *rollout) notReady(st *step) []int {
	var sick []int
	for _, i := range st.nodes {
		if s.nodes[i].countsAsDone() && !s.nodes[i].slot && s.nodes[i].node.Ready != corev1.ConditionTrue && !s.joinedInSoak(i) {
			sick = append(sick, i)
		}
	}
	return sick
}

// blockStarts sets the reason of the nodes that may not start yet.
func (s *rollout) blockStarts() {
	for i := range s.nodes {
		w := &s.nodes[i]
		if w.start == nil || w.State != Waiting {
			continue
		}
		if b := s.startBlock(w); b.blocks() {
			w.postpone(b)
			s.plan.wake(b.until)
		}
	}
}

// startBlock is why the rollout as a whole blocks the start of a task on a node, if it does.
func (s *rollout) startBlock(w *nodePlan) block {
	if s.stopped {
		return block{cause: causeStopped, reason: v1alpha1.ReasonMaxFailuresExceeded, message: "the rollout has stopped: " + s.failuresMessage()}
	}
	if !s.stableAt.IsZero() || w.step <= min(s.current, s.ceiling) {
		return block{}
	}
	current, own := &s.steps[s.current], s.steps[w.step].name
	b := block{cause: causeStep, reason: v1alpha1.ReasonWaitingForStep}
	switch {
	case w.step <= s.current || s.passed:
		b.cause, b.reason = causePromotion, v1alpha1.ReasonAwaitingPromotion
		b.message = fmt.Sprintf("it is in step %s, and rollout.promoteTo is %s", own, s.steps[s.ceiling].name)
	case current.selective && len(current.nodes) == 0:
		b.cause, b.reason = causeEmptyStep, v1alpha1.ReasonStepWithoutNodes
		b.message = fmt.Sprintf("it is in step %s, and no node is in step %s", own, current.name)
	case !s.status.SoakingSince.IsZero():
		b.cause, b.reason, b.until = causeSoak, v1alpha1.ReasonSoaking, s.status.SoakingSince.Add(current.soak)
		b.message = fmt.Sprintf("it is in step %s, and step %s soaks until %s", own, current.name, b.until.UTC().Format(time.RFC3339))
	case s.notReadyNode != "":
		b.message = fmt.Sprintf("it is in step %s, and the soak of step %s begins when node %s is Ready", own, current.name, s.notReadyNode)
	default:
		b.message = fmt.Sprintf("it is in step %s, and the rollout is in step %s", own, current.name)
	}
	return b
}
