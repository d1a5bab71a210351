// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
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
	// nodes has an entry for each of Input.Nodes, and states is where they have their states.
	nodes  []nodePlan
	states []NodeState
	plan   *Plan
}

// planner plans a pass: see Next.
type planner struct {
	*pass
	assessor    *assessor
	quarantiner *quarantiner
}

// assessor assesses a single node: what its pods and its record mean, and whether it could start.
type assessor struct {
	*pass
	// podsOnNodes counts the pods on the nodes that are assessed.
	podsOnNodes int
}

func newPlanner(in Input) *planner {
	j := readJob(in)
	p := &pass{job: j, nodes: make([]nodePlan, len(in.Nodes)), states: make([]NodeState, len(in.Nodes)), plan: &Plan{}}
	for i := range in.Nodes {
		w := &p.nodes[i]
		w.NodeState, w.node, w.step = &p.states[i], &in.Nodes[i], noStep
		w.Name = w.node.Name
	}
	p.gate, p.records, p.publisher, p.cordons = readGate(j), &recordReader{j}, &publisher{j}, &cordons{j}
	p.attempts = &attemptReader{j, p.publisher}
	p.recorder = &recorder{j, p.gate, p.publisher, p.cordons, p.attempts}
	p.rollout = &rollout{job: j, gate: p.gate, nodes: p.nodes, plan: p.plan}
	p.capacity = &capacity{job: j, rollout: p.rollout, nodes: p.nodes}
	if in.Job.DeletionTimestamp.IsZero() {
		p.rollout.readSteps()
		p.rollout.carryOver()
	}
	return &planner{p, &assessor{pass: p}, &quarantiner{p}}
}

// do adds an action to the plan.
func (p *pass) do(a Action) { p.plan.Actions = append(p.plan.Actions, a) }

// assessNode sets the state of the node and plans what its pods need.
func (as *assessor) assessNode(w *nodePlan) {
	node := w.node
	known := as.records.readRecord(node)
	w.ranRevision, w.since, w.succeeded = known.ranRevision, known.since, known.succeeded
	w.rerun = known.ranRevision && !known.done && as.rerunsSuccess(node)
	w.succeeded = w.succeeded || w.rerun
	as.assessPods(w)
	terminating := w.terminating || w.checking // the pod of a check ends soon, maybe of an earlier revision
	switch {
	case w.progressDeadlineExceeded:
	case !w.slot && known.rebooting:
		as.assessReboot(terminating, w)
	case !w.slot:
		as.assessIdleNode(terminating, known, w)
	case known.failures > as.retryLimit() && as.selects(node):
		w.failed = true // regardless of what still runs there
	}
	as.checkProgress(w, known)
	as.removeRetainedPods(w)
	as.assessDrift(w)
	as.assessQuestions(w)
	as.release(w)
	as.plan.wake(w.Until)
}

// assessPods plans for each pod on the node. While the outcome of an attempt is not on record, the attempt occupies its
// node and its slot.
func (as *assessor) assessPods(w *nodePlan) {
	pods := as.podsOn[w.Name]
	as.podsOnNodes += len(pods)
	for _, pod := range pods {
		v := as.attempts.assessPod(pod, w.node)
		as.plan.wake(v.until)
		as.plan.wake(v.checkAt)
		switch v.disposition {
		case podTerminating:
			w.noteTerminating(pod.Runs, pod.DeleteRequested.Add(pod.DeleteGrace))
			w.noteDisruption(pod)
			continue
		case podOrphaned, podRecorded:
			as.removePod(pod, v.disposition, w)
			continue
		case podEnded:
			if as.writeEnd(w, pod, &v); w.progressDeadlineExceeded && pod.ended() {
				continue // nothing runs there
			}
		case podOverdue:
			as.do(Stop{Pod: *pod, Reason: v1alpha1.ReasonDeadlineExceeded})
		case podRuns:
		}
		w.noteDisruption(pod)
		w.slot = w.slot || !pod.Runs.Asks()
		as.notePod(w, pod, v)
	}
	if since, busy := as.in.BusyNodes[w.Name]; busy {
		w.noteTerminating(task.Task, later(as.past(since), as.in.Job.CreationTimestamp.Time)) // this NodeJob has not waited before
	}
}

// notePod notes what is known about a node on which a pod has a slot.
func (as *assessor) notePod(w *nodePlan, pod *Pod, v podAssessment) {
	switch pod.Runs {
	case task.Rollback:
		as.noteRollback(w, v)
	case task.Reboot:
		as.noteRunning(w, pod, v, v1alpha1.ReasonRebooting, firstOf(v.message, "the task has succeeded, and the node reboots"))
	case task.CheckBefore, task.CheckDrift, task.CheckExpires:
		w.noteCheckBefore(pod, v)
	case task.Check:
		as.noteRunning(w, pod, v, v1alpha1.ReasonChecking, v.message)
	case task.Task:
		reason, message := v1alpha1.ReasonRunning, v.message
		if v.disposition == podRuns {
			reason, message = as.confirm(w, pod, v)
		}
		as.noteRunning(w, pod, v, reason, message)
	}
}

// writeEnd records the outcome of an attempt. If the API server refuses the write, it is retried from time to time and
// does not count as progress.
func (as *assessor) writeEnd(w *nodePlan, pod *Pod, v *podAssessment) {
	if t := as.rejection(w); t != nil {
		v.message = t.Message
		if since := as.attempts.deadline(pod); !pod.Runs.AsksDone() && as.losesSlot(since) { // otherwise the node is done all the same
			w.noteTerminating(pod.Runs, time.Time{})
			as.failUnrecorded(w, t)
		}
		if as.waitsToRetry(t) {
			return
		}
	}
	as.end(w, pod, *v.record)
}

// rejection notes that the API server refuses the record of a node; nil if it does not. The node has its slot, but not forever.
func (as *assessor) rejection(w *nodePlan) *NodeProblem {
	t := as.in.NodeProblems[w.node.UID]
	if t.Reason != v1alpha1.ReasonRecordRejected {
		return nil
	}
	w.findings().problem = &t
	return &t
}

// losesSlot reports whether a node whose end cannot be recorded loses its slot, which it has had since a time.
func (as *assessor) losesSlot(since time.Time) bool {
	if as.overdue(since) {
		return true
	}
	as.plan.wake(as.overdueAt(since))
	return false
}

// failUnrecorded counts a node as failed whose end cannot be recorded.
func (as *assessor) failUnrecorded(w *nodePlan, t *NodeProblem) {
	w.waitFor(block{cause: causeNodeProblem, Why: hold.Why{Reason: t.Reason, Message: t.Message}, problem: t})
	as.failProgress(w, t.Message)
}

// waitsToRetry reports whether a write that was refused is not tried again yet.
func (as *assessor) waitsToRetry(t *NodeProblem) bool {
	if !as.in.Now.Before(t.Until) {
		return false
	}
	as.plan.wake(t.Until)
	return true
}

// noteRunning notes what is known about a node on which an attempt of the task runs.
func (as *assessor) noteRunning(w *nodePlan, pod *Pod, v podAssessment, reason, message string) {
	w.run(reason, message, v.until)
	if pod.Revision == as.in.Revision && !w.ranRevision {
		w.ranRevision, w.since = true, pod.Created
	}
	if v.disposition == podRuns && v.message != "" && pod.Started.IsZero() {
		w.findings().notStarted, w.findings().silent = v.message, pod.Silent
	}
	if prev := w.node.On.Record; prev != nil && prev.Revision == pod.Revision && (prev.Outcome == record.Failed || prev.Outcome == record.Disrupted) {
		as.noteRetry(w)
	}
}

// noteRetry notes a node whose last attempt failed or was disrupted, and that continues.
func (as *assessor) noteRetry(w *nodePlan) {
	w.retried = true
	w.addFailure(as.cordons.failureOf(w.node, true))
	switch rec := w.node.On.Record; {
	case rec.CheckBefore == record.AnswerError:
		as.noteCheckError(w, rec)
	case rec.Disruptions >= manyDisruptions:
		w.findings().disrupted = true
	}
}

// assessIdleNode sets the state of a node on which no attempt runs. The order of the checks is part of the behavior:
// what is on record for a node comes before what prevents it from running.
func (as *assessor) assessIdleNode(terminating bool, known recordState, w *nodePlan) {
	node := w.node
	if !as.selects(node) {
		reason, message := as.unselected(node)
		w.exclude(reason, message)
		return
	}
	if as.expiry().assess(terminating, known, w) {
		return
	}
	switch {
	case known.done:
		w.done(known.due)
		as.expiry().check(terminating, w)
		return
	case known.failures > as.retryLimit():
		as.assessFailedNode(terminating, w)
		as.expiry().check(terminating, w)
		return
	case known.failures > 0 && node.unreachable():
		// The task may have made the node unreachable. The node counts as failed until it responds.
		w.failed = true
		w.fail(v1alpha1.ReasonNodeUnreachable, "the node has been unreachable (Ready=Unknown) since an attempt failed on it; it continues when the node is reachable again", time.Time{})
		w.addFailure(as.cordons.failureOf(node, false))
		return
	}
	if taint := as.untolerated(node, as.tolerations); taint != nil {
		w.exclude(v1alpha1.ReasonUntoleratedTaint, "it has the taint "+taint.ToString())
		return
	}
	as.assessUndone(terminating, known, w)
}

// assessUndone sets the state of a node on which the task is to run.
func (as *assessor) assessUndone(terminating bool, known recordState, w *nodePlan) {
	if !known.notBefore.IsZero() && known.rerunReason == "" {
		as.noteRetry(w)
	}
	if w.checking {
		w.waitFor(as.checkBlock(w.checkPhase, w.checkMessage, w.Until))
		return
	}
	if as.isAssumedDone(w.node) {
		as.assumeDone(w)
		return
	}
	as.assessStart(terminating, known, w)
}

// assessStart makes a node start the task, or the check before it, unless something blocks that.
func (as *assessor) assessStart(terminating bool, known recordState, w *nodePlan) {
	node, phase := w.node, task.Task
	if as.mustCheckFirst(node, known) {
		phase = task.CheckBefore
	}
	if b := as.startBlock(startRequest{phase, node, terminating, known.notBefore, known.rerunReason}); b.blocks() {
		w.waitFor(b)
		return
	}
	if as.expiry().checkFirst(terminating, known, w) {
		return
	}
	if phase == task.CheckBefore {
		w.waitFor(as.checkBlock(phase, known.rerunReason, time.Time{}))
		w.start = start{phase, known.failures + 1}
		return
	}
	w.waitFor(block{cause: causeSlot, Why: hold.Why{Reason: v1alpha1.ReasonWaitingForSlot, Message: known.rerunReason}})
	w.start = start{task.Task, known.failures + 1}
}

func (j *job) attempt(node *Node, s start, revision string) task.Attempt {
	var values task.NodeValues
	if s.phase != task.Reboot {
		values = j.nodeValues(node)
	}
	return task.Attempt{
		Phase:     s.phase,
		Revision:  revision,
		Number:    s.number,
		NodeName:  node.Name,
		NodeUID:   node.UID,
		MachineID: node.MachineID,
		BootID:    node.BootID,
		Retry:     j.retry,
		ChangedBy: j.in.author(),

		OutsideWindow: j.in.Budgets[node.UID].outsideFor(s.phase),
		NodeValues:    values,
	}
}

// removeOrphanedPods removes the finalizers of pods whose Node no longer exists, since there is no Node to record the
// outcome on. All nodes are assessed before.
func (p *planner) removeOrphanedPods() {
	if p.assessor.podsOnNodes == len(p.in.Pods) {
		return
	}
	known := make(map[string]bool, len(p.in.Nodes))
	for i := range p.in.Nodes {
		known[p.in.Nodes[i].Name] = true
	}
	for i := range p.in.Pods {
		pod := &p.in.Pods[i]
		if !known[pod.NodeName] && needsFinalizerRemoval(pod) {
			p.do(FinalizePod{Pod: *pod, Awaited: p.isDeleted()})
		}
	}
}
