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

// carryOver reads the progress of the revision from the status. If the status is lost, the progress is rebuilt step by
// step from the records of the nodes.
func (s *planner) carryOver() {
	status := &s.in.Job.Status
	if status.Rollout != nil && status.Revision == s.in.Revision {
		s.rollout = *status.Rollout.DeepCopy()
	}
	s.stableAt = s.rollout.StableAt.Time
	s.current = max(s.indexOf(s.rollout.Step), 0)
	s.countUnrecordedFailures()
}

// joinedAfterStable reports whether a node has joined since the revision became stable, has not been done since, and
// cannot run workloads yet. Such a node takes no slot and does not use the failure budget. Every other node waits for a
// slot, also a node that joined while nothing could start, and a node that is selected because a label or the selector
// changed. For a rollback at deletion, every node waits for a slot.
func (s *planner) joinedAfterStable(node *Node) bool {
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
func (s *planner) advance() {
	if s.in.Revision == "" {
		return
	}
	s.countFailed()
	s.assignSteps()
	if s.indexOf(s.rollout.Step) < 0 {
		s.beginStep(0)
	}
	for s.stableAt.IsZero() {
		if s.stopped {
			s.rollout.SoakingSince = metav1.Time{} // a Stalled rollout has no soak
		}
		if s.stopped || !s.passes() {
			return
		}
		switch {
		case s.current == len(s.steps)-1:
			s.rollout.StableAt = s.now()
			if len(s.rollout.UnrecordedFailures) > 0 || s.ceiling < s.current {
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

func (s *planner) beginStep(k int) {
	s.current = k
	s.rollout.Step = s.steps[k].name
	s.rollout.StepStartedAt = s.now()
	s.rollout.SoakingSince, s.rollout.SoakedAt = metav1.Time{}, metav1.Time{}
}

// passes reports whether the current step has passed. If a node is not Ready in the soak, it becomes an unrecorded
// failure, and the step is checked once more.
func (s *planner) passes() bool {
	st := &s.steps[s.current]
	for s.stepPassed(st) {
		if st.soak == 0 || !s.rollout.SoakedAt.IsZero() {
			return true
		}
		sick, soaks := s.notReady(st), !s.rollout.SoakingSince.IsZero()
		switch {
		case len(sick) == 0:
			if !soaks {
				// The next whole second, because otherwise the soak would be shorter than requested.
				s.rollout.SoakingSince = metav1.NewTime(s.now().Add(time.Second))
			}
			s.rollout.WaitingForReadySince = metav1.Time{}
			return s.soaked(st)
		case soaks:
			s.failNotReady(sick, v1alpha1.ReasonNotReadyInSoak)
		case s.waitedForReady():
			s.failNotReady(sick, v1alpha1.ReasonProgressDeadlineExceeded)
		default:
			s.notReadyNode = s.work[sick[0]].Name
			return false
		}
		if s.stopped {
			break
		}
	}
	s.rollout.SoakingSince, s.rollout.WaitingForReadySince = metav1.Time{}, metav1.Time{}
	return false
}

// waitedForReady reports whether the soak has waited longer than rollout.progressDeadlineSeconds for nodes to become
// Ready.
func (s *planner) waitedForReady() bool {
	if s.rollout.WaitingForReadySince.IsZero() {
		s.rollout.WaitingForReadySince = s.now()
	}
	return s.overdue(s.rollout.WaitingForReadySince.Time)
}

// failNotReady counts the nodes of the step that are not Ready as failed, and lets others take their places.
func (s *planner) failNotReady(sick []int, reason string) {
	for _, i := range sick {
		s.failInSoak(&s.work[i], reason)
	}
	s.countFailed()
	since := s.rollout.SoakingSince
	s.rollout.SoakingSince = metav1.Time{} // any node may replace a node that is not Ready
	s.assignSteps()
	s.rollout.SoakingSince = since
}

// soaked reports whether the soak is over, and wakes the plan at the end of the soak.
func (s *planner) soaked(st *step) bool {
	until := s.rollout.SoakingSince.Add(st.soak)
	if s.in.Now.Before(until) {
		s.plan.wake(until)
		return false
	}
	s.rollout.SoakingSince, s.rollout.SoakedAt = metav1.Time{}, s.now()
	return true
}

// stepPassed reports whether no node of the step is pending and the revision has succeeded there. A step for a number
// of nodes needs that number of successes, as far as there are enough nodes.
func (s *planner) stepPassed(st *step) bool {
	done := 0
	for _, i := range st.nodes {
		switch {
		case s.countsAsDone(i):
			done++
		case s.work[i].State == Failed, s.work[i].progressDeadlineExceeded:
		case st.quota != nil, s.stepWaitsFor(&s.work[i]):
			return false
		}
	}
	if len(st.nodes) == 0 && !st.selective {
		return s.anySucceeded() // there are no more s.work
	}
	return done > 0
}

// countsAsDone reports whether a node is done, or was done and reruns the task. The revision has succeeded there, and
// that stands until the rerun fails.
func (s *planner) countsAsDone(i int) bool {
	return s.work[i].State == Done || s.work[i].rerun
}

// anySucceeded reports whether the revision has succeeded on any node.
func (s *planner) anySucceeded() bool {
	for i := range s.work {
		if s.work[i].succeeded {
			return true
		}
	}
	return false
}

// stepWaitsFor reports whether a step waits for an unfinished node: a node that existed when the step started, and that
// can run the task or has run it.
func (s *planner) stepWaitsFor(w *nodePlan) bool {
	if w.node.Created.After(s.rollout.StepStartedAt.Time) {
		return false
	}
	return w.ranRevision || !cannotRun(w.Reason)
}

// notReady are the nodes of the step that have succeeded and are not Ready, except those on which the task is running
// again, and those that have joined since the soak started: they may never have been Ready.
func (s *planner) notReady(st *step) []int {
	var sick []int
	for _, i := range st.nodes {
		if s.countsAsDone(i) && !s.work[i].slot && s.work[i].node.Ready != corev1.ConditionTrue && !s.joinedInSoak(i) {
			sick = append(sick, i)
		}
	}
	return sick
}

// blockStarts sets the reason of the nodes that may not start yet.
func (s *planner) blockStarts() {
	for i := range s.work {
		w := &s.work[i]
		if w.start == nil || w.State != Waiting {
			continue
		}
		if reason, message, until := s.rolloutBlock(w); reason != "" {
			w.start = nil
			w.set(Waiting, reason, message)
			w.Until = until
			s.plan.wake(until)
		}
	}
}

// rolloutBlock is why the rollout as a whole blocks the start of a task on a node; "" if it does not.
func (s *planner) rolloutBlock(w *nodePlan) (reason, message string, until time.Time) {
	if s.stopped {
		return v1alpha1.ReasonMaxFailuresExceeded, "the rollout has stopped: " + s.failuresMessage(), until
	}
	if !s.stableAt.IsZero() || w.step <= min(s.current, s.ceiling) {
		return "", "", until
	}
	current, own := &s.steps[s.current], s.steps[w.step].name
	switch {
	case w.step <= s.current || s.passed:
		return v1alpha1.ReasonAwaitingPromotion,
			fmt.Sprintf("it is in step %s, and rollout.promoteTo is %s", own, s.steps[s.ceiling].name), until
	case current.selective && len(current.nodes) == 0:
		return v1alpha1.ReasonStepWithoutNodes, fmt.Sprintf("it is in step %s, and no node is in step %s", own, current.name), until
	case !s.rollout.SoakingSince.IsZero():
		until = s.rollout.SoakingSince.Add(current.soak)
		return v1alpha1.ReasonSoaking,
			fmt.Sprintf("it is in step %s, and step %s soaks until %s", own, current.name, until.UTC().Format(time.RFC3339)), until
	case s.notReadyNode != "":
		return v1alpha1.ReasonWaitingForStep,
			fmt.Sprintf("it is in step %s, and the soak of step %s begins when node %s is Ready", own, current.name, s.notReadyNode), until
	}
	return v1alpha1.ReasonWaitingForStep, fmt.Sprintf("it is in step %s, and the rollout is in step %s", own, current.name), until
}
