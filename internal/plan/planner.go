// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// planner is one pass: it assesses each node, and collects what the pass finds.
type planner struct {
	*job
	plan      Plan
	gate      *gate
	records   *recordReader
	publisher *publisher
	cordons   *cordons
	attempts  *attemptReader
	recorder  *recorder
	steps     []step
	// work has an entry for each of Plan.Nodes.
	work []nodePlan
	// rollout is the progress of the revision in this pass.
	rollout v1alpha1.RolloutStatus
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
	// slots is the number of slots that rollout.maxConcurrent allows.
	slots int
	// draining counts the nodes that are being drained, and toDrain those that this pass cordons in order to drain them
	// next.
	draining, toDrain int
	// unavailableNodes counts the unavailable nodes, and maxUnavailableNodes is how many of them maintenance may cause.
	unavailableNodes, maxUnavailableNodes int
	// unavailableNames names the first of them, once it is requested.
	unavailableNames string
	// gated counts the unfinished nodes that have the taint of the gate.
	gated int32
	// unpublished are nodes that are done and on which something cannot be published.
	unpublished []string
	// busy counts the nodes with an attempt that runs or starts.
	busy int32

	failures   []v1alpha1.NodeFailure
	drains     []v1alpha1.NodeDrain
	notStarted []string
	// disrupted are nodes that were disrupted many times in a row.
	disrupted []string
	// unrecovered are nodes on which the rollback failed as well.
	unrecovered []string
	// prepared counts the nodes that this pass prepares.
	prepared int32
	// starts counts the attempts that this pass starts, and obstructed the nodes that only the obstacle prevents from
	// starting.
	starts, obstructed int32
	// runnerObstructed counts the nodes that only Input.RunnerRefused prevents from starting.
	runnerObstructed int32
	// taskStarts and runnerStarts count the starts of this pass, grouped by what the API server refuses together
	// (startsLike).
	taskStarts, runnerStarts int32
	// troubled are nodes with which the manager cannot continue, and troubleReason is why not.
	troubled      []string
	troubleReason string
}

// nodePlan is the state of a node, and what else a pass finds out about it.
type nodePlan struct {
	NodeState
	node *Node
	// ranRevision is true if this revision has run or runs on the node, and since is its earliest start.
	ranRevision bool
	since       time.Time
	// succeeded is true if this revision has succeeded there.
	succeeded bool
	// progressDeadlineExceeded is true for a node that has delayed others for too long.
	progressDeadlineExceeded bool
	// rerun is true for a node that was done with this revision, and reruns it or will rerun it.
	rerun bool
	// failed is true if the node counts against rollout.maxFailures.
	failed bool
	// exhausted is true if its record says that no attempt is left.
	exhausted bool
	// rollbackFinished is true if no further rollback will run.
	rollbackFinished bool
	// slot is true while the outcome of a pod of Everynode on the node is not on record.
	slot bool
	// terminating is true while a pod of Everynode on the node is terminating and needs no record.
	terminating bool
	// terminatingSince is when that pod should have ended; zero if that is not known.
	terminatingSince time.Time
	// retained are pods of Everynode whose outcome is on record, and that are retained for their logs.
	retained []*Pod
	// written is true if this pass writes a record on the node: a second write would not include the first.
	written bool
	// step is the step that the node belongs to; noStep if it belongs to none.
	step int
	// start is the attempt that may start now; nil if none may.
	start *task.Attempt
}

const noStep = -1

func newSurvey(in Input) *planner {
	j := readJob(in)
	s := &planner{job: j, work: make([]nodePlan, 0, len(in.Nodes))}
	s.gate, s.records, s.publisher, s.cordons = readGate(j), &recordReader{j}, &publisher{j}, &cordons{j}
	s.attempts = &attemptReader{j, s.publisher}
	s.recorder = &recorder{j, s.gate, s.publisher, s.cordons, s.attempts}
	if !in.Job.DeletionTimestamp.IsZero() {
		return s
	}
	s.readSteps()
	s.carryOver()
	return s
}

// do adds an action to the plan.
func (s *planner) do(a Action) { s.plan.Actions = append(s.plan.Actions, a) }

// states are the states of the nodes, in their order.
func (s *planner) states() []NodeState {
	if len(s.work) == 0 {
		return nil
	}
	states := make([]NodeState, 0, len(s.work))
	for i := range s.work {
		states = append(states, s.work[i].NodeState)
	}
	return states
}

// assessNode sets the state of the node and plans what its pods need.
func (s *planner) assessNode(node *Node) {
	w := nodePlan{NodeState: NodeState{Name: node.Name}, node: node, step: noStep}
	known := s.records.readRecord(node)
	w.ranRevision, w.since, w.succeeded = known.ranRevision, known.since, known.succeeded
	w.rerun = known.ranRevision && !known.done && s.isRerun(node, s.in.Revision)
	w.succeeded = w.succeeded || w.rerun
	s.assessPods(&w)
	terminating := w.terminating || s.in.BusyNodes[node.Name]
	switch {
	case w.progressDeadlineExceeded:
	case !w.slot && known.rebooting:
		s.assessReboot(terminating, &w)
	case !w.slot:
		s.assessIdleNode(terminating, known, &w)
	case known.failures > s.retryLimit() && s.selects(node):
		w.failed = true // regardless of what still runs there
	}
	s.checkProgress(&w, known)
	s.removeRetainedPods(&w)
	s.plan.wake(w.Until)
	s.work = append(s.work, w)
}

// exclude excludes a node. It does not count as one that reruns the task.
func (w *nodePlan) exclude(reason, message string) {
	w.rerun = false
	w.set(Excluded, reason, message)
}

// assessPods plans for each pod on the node. While the outcome of an attempt is not on record, the attempt occupies its
// node and its slot.
func (s *planner) assessPods(w *nodePlan) {
	for _, pod := range s.podsOn[w.node.Name] {
		v := s.attempts.assessPod(pod, w.node)
		s.plan.wake(v.until)
		switch v.disposition {
		case podTerminating:
			w.terminating, w.terminatingSince = true, pod.DeleteRequested.Add(pod.DeleteGrace)
			continue
		case podOrphaned, podRecorded:
			s.removePod(pod, v.disposition, w)
			continue
		case podEnded:
			if s.writeEnd(w, pod, &v); w.progressDeadlineExceeded && pod.ended() {
				continue // nothing runs there
			}
		case podOverdue:
			s.do(Stop{Pod: *pod, Reason: v1alpha1.ReasonDeadlineExceeded})
		case podRuns:
		}
		w.slot = true
		s.notePod(w, pod, v)
	}
}

// notePod notes what is known about a node on which a pod has a slot.
func (s *planner) notePod(w *nodePlan, pod *Pod, v podAssessment) {
	if pod.Runs == task.Rollback {
		s.noteRollback(w, v)
		return
	}
	s.noteRunning(w, pod, v)
	switch pod.Runs {
	case task.Reboot:
		w.Reason, w.Message = v1alpha1.ReasonRebooting, firstOf(v.message, "the task has succeeded, and the node reboots")
	case task.Verify:
		w.Reason = v1alpha1.ReasonVerifying
	case task.Task, task.Rollback:
	}
}

// writeEnd records the outcome of an attempt. If the API server refuses the write, it is retried from time to time and
// does not count as progress.
func (s *planner) writeEnd(w *nodePlan, pod *Pod, v *podAssessment) {
	if t, ok := s.in.NodeProblems[w.node.UID]; ok && t.Reason == v1alpha1.ReasonRecordRejected {
		v.message = t.Message
		s.unrecorded(w, pod, &t)
		if s.in.Now.Before(t.RetryAt) {
			s.plan.wake(t.RetryAt)
			return
		}
	}
	s.do(s.recorder.recordAction(w.node, pod, v.record))
	w.written = true
}

// unrecorded handles a pod whose outcome cannot be recorded because the API server refuses the write. The pod has its
// slot, but not forever.
func (s *planner) unrecorded(w *nodePlan, pod *Pod, t *NodeProblem) {
	s.noteTrouble(w.node, t)
	if s.overdue(s.attempts.deadline(pod)) {
		w.terminating = true
		w.set(Waiting, t.Reason, t.Message)
		s.failProgress(w, t.Message)
	}
}

// noteRunning notes what is known about a node on which an attempt of the task runs.
func (s *planner) noteRunning(w *nodePlan, pod *Pod, v podAssessment) {
	w.set(Running, v1alpha1.ReasonRunning, v.message)
	w.Until = v.until
	if pod.Revision == s.in.Revision && !w.ranRevision {
		w.ranRevision, w.since = true, pod.Created
	}
	if v.disposition == podRuns && v.message != "" && pod.Started.IsZero() {
		s.notStarted = append(s.notStarted, w.node.Name+": "+v.message)
	}
	if prev := w.node.On.Record; prev != nil && prev.Revision == pod.Revision && (prev.Outcome == record.Failed || prev.Outcome == record.Disrupted) {
		s.retrying(w.node)
	}
}

// retrying notes a node whose last attempt failed or was disrupted, and that continues.
func (s *planner) retrying(node *Node) {
	s.failures = append(s.failures, s.cordons.failureOf(node, true))
	if rec := node.On.Record; rec.Disruptions >= manyDisruptions {
		s.disrupted = append(s.disrupted, node.Name+": "+lastLine(rec.Message))
	}
}

// assessIdleNode sets the state of a node on which no attempt runs. The order of the checks is part of the behavior:
// what is on record for a node comes before what prevents it from running.
func (s *planner) assessIdleNode(terminating bool, known recordState, w *nodePlan) {
	node := w.node
	if !s.selects(node) {
		reason, message := s.unselected(node)
		w.exclude(reason, message)
		return
	}
	switch {
	case known.done:
		w.set(Done, v1alpha1.ReasonDone, "")
		w.Until = known.due
		return
	case known.failures > s.retryLimit():
		s.assessFailedNode(terminating, w)
		return
	case known.failures > 0 && node.unreachable():
		// The task may have made the node unreachable. The node counts as failed until it responds.
		w.failed = true
		w.set(Failed, v1alpha1.ReasonNodeUnreachable, "the node has been unreachable (Ready=Unknown) since an attempt failed on it; it continues when the node is reachable again")
		s.failures = append(s.failures, s.cordons.failureOf(node, false))
		return
	}
	if taint := s.untolerated(node, s.tolerations); taint != nil {
		w.exclude(v1alpha1.ReasonUntoleratedTaint, "it has the taint "+taint.ToString())
		return
	}
	if !known.notBefore.IsZero() {
		s.retrying(node)
	}
	if s.mustWait(task.Task, node, terminating, known.notBefore, &w.NodeState) {
		return
	}
	if before := s.unmetDependency(node); before != "" {
		w.set(Waiting, v1alpha1.ReasonWaitingForDependency, "NodeJob "+before+" (spec.dependsOn) must be done on it before")
		if s.isNewNode(node) {
			w.Until = node.Created.Add(joiningFor) // the node may not match after all
		}
		return
	}
	w.set(Waiting, v1alpha1.ReasonWaitingForSlot, known.rerunReason)
	w.start = s.attempt(node, task.Task, s.in.Revision, known.failures+1)
}

func (s *job) attempt(node *Node, phase task.Phase, revision string, number int32) *task.Attempt {
	return &task.Attempt{
		Phase:     phase,
		Revision:  revision,
		Number:    number,
		NodeName:  node.Name,
		NodeUID:   node.UID,
		MachineID: node.MachineID,
		BootID:    node.BootID,
		Retry:     s.retry,
	}
}

// mustWait says what prevents a node from starting an attempt now, if anything.
func (s *planner) mustWait(phase task.Phase, node *Node, terminating bool, notBefore time.Time, st *NodeState) bool {
	reason, message := cannotRunReason(node)
	o := s.obstacleFor(phase)
	switch {
	case reason != "":
		st.set(Waiting, reason, message)
	case terminating:
		st.set(Waiting, v1alpha1.ReasonPodTerminating, "the pod of an earlier attempt is still terminating")
	case s.suspendedReason() != "" && s.in.Job.DeletionTimestamp.IsZero():
		st.set(Waiting, v1alpha1.ReasonSuspended, s.suspendedReason())
	case o != nil && (o.RetryAt.IsZero() || s.in.Now.Before(o.RetryAt)):
		s.obstructs(o)
		st.set(Waiting, o.Reason, o.Message)
		st.Until = o.RetryAt
	case s.hindrance(node) != nil:
		t := s.hindrance(node)
		s.noteTrouble(node, t)
		st.set(Waiting, t.Reason, t.Message)
		st.Until = t.RetryAt
	case s.in.Now.Before(notBefore):
		st.set(Waiting, v1alpha1.ReasonBackingOff, "the next attempt waits after one that failed or was disrupted")
		st.Until = notBefore
	default:
		return false
	}
	return true
}

// cannotRunReason is why a node cannot run anything now; "" if it can.
func cannotRunReason(node *Node) (reason, message string) {
	switch {
	case node.Deleting:
		return v1alpha1.ReasonNodeTerminating, "the node is being deleted"
	case node.Ready == "":
		return v1alpha1.ReasonNotReported, "the node has not reported its state yet"
	case node.unreachable():
		return v1alpha1.ReasonNodeUnreachable, "the node is unreachable (Ready=Unknown)"
	}
	return "", ""
}

// removeOrphanedPods removes the finalizers of pods whose Node no longer exists, since there is no Node to record the
// outcome on.
func (s *planner) removeOrphanedPods() {
	known := make(map[string]bool, len(s.in.Nodes))
	for i := range s.in.Nodes {
		known[s.in.Nodes[i].Name] = true
	}
	for i := range s.in.Pods {
		pod := &s.in.Pods[i]
		if !known[pod.NodeName] && needsFinalizerRemoval(pod) {
			s.do(FinalizePod{Pod: *pod})
		}
	}
}

// cordonedForUs reports whether Everynode has cordoned the node for this NodeJob, and maybe for others.
func (s *job) cordonedForUs(node *Node) bool { return slices.Contains(node.CordonedBy, s.key) }

func (st *NodeState) set(state State, reason, message string) {
	st.State, st.Reason, st.Message = state, reason, message
}
