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

// pass is what one pass works on: the NodeJob, what is decided about it as a whole, the nodes, and the plan.
type pass struct {
	*job
	gate      *gate
	records   *recordReader
	publisher *publisher
	cordons   *cordons
	attempts  *attemptReader
	recorder  *recorder
	rollout   *rollout
	capacity  *capacity
	// nodes has an entry for each of Input.Nodes.
	nodes []nodePlan
	plan  *Plan
}

// planner is one pass: it assesses each node on its own, then decides what starts, and collects the plan.
type planner struct {
	*pass
	assessor    *assessor
	quarantiner *quarantiner
}

// assessor assesses a single node: what its pods and its record mean, and whether it could start.
type assessor struct{ *pass }

func newPlanner(in Input) *planner {
	j := readJob(in)
	s := &pass{job: j, nodes: make([]nodePlan, len(in.Nodes)), plan: &Plan{}}
	for i := range in.Nodes {
		s.nodes[i] = nodePlan{NodeState: NodeState{Name: in.Nodes[i].Name}, node: &in.Nodes[i], step: noStep}
	}
	s.gate, s.records, s.publisher, s.cordons = readGate(j), &recordReader{j}, &publisher{j}, &cordons{j}
	s.attempts = &attemptReader{j, s.publisher}
	s.recorder = &recorder{j, s.gate, s.publisher, s.cordons, s.attempts}
	s.rollout = &rollout{job: j, gate: s.gate, nodes: s.nodes, plan: s.plan}
	s.capacity = &capacity{job: j, rollout: s.rollout, nodes: s.nodes}
	if in.Job.DeletionTimestamp.IsZero() {
		s.rollout.readSteps()
		s.rollout.carryOver()
	}
	return &planner{s, &assessor{s}, &quarantiner{s}}
}

// do adds an action to the plan.
func (s *pass) do(a Action) { s.plan.Actions = append(s.plan.Actions, a) }

// states are the states of the nodes, in their order.
func (s *planner) states() []NodeState {
	states := make([]NodeState, 0, len(s.nodes))
	for i := range s.nodes {
		states = append(states, s.nodes[i].NodeState)
	}
	return states
}

// assessNode sets the state of the node and plans what its pods need.
func (s *assessor) assessNode(w *nodePlan) {
	node := w.node
	known := s.records.readRecord(node)
	w.ranRevision, w.since, w.succeeded = known.ranRevision, known.since, known.succeeded
	w.rerun = known.ranRevision && !known.done && s.isRerun(node, s.in.Revision)
	w.succeeded = w.succeeded || w.rerun
	s.assessPods(w)
	terminating := w.terminating || s.in.BusyNodes[node.Name]
	switch {
	case w.progressDeadlineExceeded:
	case !w.slot && known.rebooting:
		s.assessReboot(terminating, w)
	case !w.slot:
		s.assessIdleNode(terminating, known, w)
	case known.failures > s.retryLimit() && s.selects(node):
		w.failed = true // regardless of what still runs there
	}
	s.checkProgress(w, known)
	s.removeRetainedPods(w)
	s.plan.wake(w.Until)
}

// assessPods plans for each pod on the node. While the outcome of an attempt is not on record, the attempt occupies its
// node and its slot.
func (s *assessor) assessPods(w *nodePlan) {
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
func (s *assessor) notePod(w *nodePlan, pod *Pod, v podAssessment) {
	switch pod.Runs {
	case task.Rollback:
		s.noteRollback(w, v)
	case task.Reboot:
		s.noteRunning(w, pod, v, v1alpha1.ReasonRebooting, firstOf(v.message, "the task has succeeded, and the node reboots"))
	case task.Verify:
		s.noteRunning(w, pod, v, v1alpha1.ReasonVerifying, v.message)
	case task.Task:
		s.noteRunning(w, pod, v, v1alpha1.ReasonRunning, v.message)
	}
}

// writeEnd records the outcome of an attempt. If the API server refuses the write, it is retried from time to time and
// does not count as progress.
func (s *assessor) writeEnd(w *nodePlan, pod *Pod, v *podAssessment) {
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
func (s *assessor) unrecorded(w *nodePlan, pod *Pod, t *NodeProblem) {
	w.problem = t
	since := s.attempts.deadline(pod)
	if !s.overdue(since) {
		s.plan.wake(s.overdueAt(since))
		return
	}
	w.terminating = true
	w.waitFor(block{cause: causeNodeProblem, reason: t.Reason, message: t.Message, problem: t})
	s.failProgress(w, t.Message)
}

// noteRunning notes what is known about a node on which an attempt of the task runs.
func (s *assessor) noteRunning(w *nodePlan, pod *Pod, v podAssessment, reason, message string) {
	w.run(reason, message, v.until)
	if pod.Revision == s.in.Revision && !w.ranRevision {
		w.ranRevision, w.since = true, pod.Created
	}
	if v.disposition == podRuns && v.message != "" && pod.Started.IsZero() {
		w.notStarted = v.message
	}
	if prev := w.node.On.Record; prev != nil && prev.Revision == pod.Revision && (prev.Outcome == record.Failed || prev.Outcome == record.Disrupted) {
		s.noteRetry(w)
	}
}

// noteRetry notes a node whose last attempt failed or was disrupted, and that continues.
func (s *assessor) noteRetry(w *nodePlan) {
	w.addFailure(s.cordons.failureOf(w.node, true))
	if rec := w.node.On.Record; rec.Disruptions >= manyDisruptions {
		w.disrupted = true
	}
}

// assessIdleNode sets the state of a node on which no attempt runs. The order of the checks is part of the behavior:
// what is on record for a node comes before what prevents it from running.
func (s *assessor) assessIdleNode(terminating bool, known recordState, w *nodePlan) {
	node := w.node
	if !s.selects(node) {
		reason, message := s.unselected(node)
		w.exclude(reason, message)
		return
	}
	switch {
	case known.done:
		w.done(known.due)
		return
	case known.failures > s.retryLimit():
		s.assessFailedNode(terminating, w)
		return
	case known.failures > 0 && node.unreachable():
		// The task may have made the node unreachable. The node counts as failed until it responds.
		w.failed = true
		w.fail(v1alpha1.ReasonNodeUnreachable, "the node has been unreachable (Ready=Unknown) since an attempt failed on it; it continues when the node is reachable again", time.Time{})
		w.addFailure(s.cordons.failureOf(node, false))
		return
	}
	if taint := s.untolerated(node, s.tolerations); taint != nil {
		w.exclude(v1alpha1.ReasonUntoleratedTaint, "it has the taint "+taint.ToString())
		return
	}
	if !known.notBefore.IsZero() {
		s.noteRetry(w)
	}
	if b := s.startBlock(startRequest{task.Task, node, terminating, known.notBefore}); b.blocks() {
		w.waitFor(b)
		return
	}
	w.waitFor(block{cause: causeSlot, reason: v1alpha1.ReasonWaitingForSlot, message: known.rerunReason})
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

// removeOrphanedPods removes the finalizers of pods whose Node no longer exists, since there is no Node to record the
// outcome on.
func (s *assessor) removeOrphanedPods() {
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
