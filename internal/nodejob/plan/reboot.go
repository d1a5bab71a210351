// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// A run with a reboot continues after the task has succeeded. No pod survives a reboot, so the run takes up to three
// pods. Its progress is stored on the Node and is recognized by the boot ID:
//
//	task succeeds ──► Rebooting ──► pod reboots the node ──► another boot ──► Ready for a while ──► check ──► Succeeded
//	                      └─────────────── maintenance.reboot.timeoutSeconds ──────────────┘
//
// The node has its slot during all of this.

const defaultMinReadySeconds = 10

// rebootWanted reports whether the spec asks for a reboot. A pod, or a record, only says what it asked for when the run began.
func (p *policy) rebootWanted() bool { return task.RebootPolicy(p.in.Job) != v1alpha1.RebootNever }

// reboots reports whether the node is rebooted after the task has succeeded in that pod.
func (a *attemptReader) reboots(pod *Pod) bool {
	if !a.rebootWanted() {
		return false
	}
	switch pod.Reboot {
	case v1alpha1.RebootAlways:
		return true
	case v1alpha1.RebootIfRequested:
		return pod.Exit != nil && outcome.RebootRequested(pod.Exit.Results)
	case v1alpha1.RebootNever:
	}
	return false
}

// rebooting turns the record of a success into the record of a run that continues.
func (a *attemptReader) rebooting(pod *Pod, node *Node, r record.Record) record.Record {
	if _, reason, message := a.publisher.publish(node, &r); reason != "" {
		// Publishing would fail after the reboot.
		r.Outcome, r.Reason, r.Message = record.Failed, reason, message
		return r
	}
	// The boot in which the node was last seen: the task may have run in it although the pod was created for an earlier
	// boot. If the task ran in the earlier boot, the node is rebooted once more than necessary.
	from := firstOf(node.BootID, task.BootID(pod.Machine))
	if from == "" {
		r.Outcome, r.Reason = record.Failed, v1alpha1.ReasonRebootFailed
		r.Message = "the node does not report a boot ID, so a reboot cannot be confirmed"
		return r
	}
	r.Outcome, r.Rerun = record.Rebooting, a.isRerun(node, pod.Revision)
	r.Reboot = &record.Reboot{StartedAt: a.now().Time, FromBootID: from}
	return r
}

// belongsToRun reports whether a pod belongs to the run that is on record as a run with a reboot.
func belongsToRun(pod *Pod, node *Node) bool {
	rec := node.On.Record
	return rec != nil && rec.Outcome == record.Rebooting && rec.Revision == pod.Revision
}

// rebooted reports whether the node is in another boot than the one that the run has left.
func rebooted(node *Node) bool { return differ(node.On.Record.Reboot.FromBootID, node.BootID) }

func (a *attemptReader) rebootDeadline(rec *record.Record) time.Time {
	return a.past(rec.Reboot.StartedAt).Add(task.Timeout(a.in.Job, task.Reboot))
}

// assessRebootPod determines what the pod that reboots the node means for it. How the pod itself ended says little: the
// boot ID decides.
func (a *attemptReader) assessRebootPod(pod *Pod, node *Node) podAssessment {
	if !belongsToRun(pod, node) || rebooted(node) {
		return podAssessment{disposition: podOrphaned}
	}
	deadline := a.rebootDeadline(node.On.Record)
	switch {
	case pod.ended():
		return podAssessment{disposition: podEnded, record: new(a.rebootEnded(pod, node))}
	case !a.in.Now.Before(deadline):
		r := a.givenUp(node.On.Record)
		r.PodUID = pod.UID
		return podAssessment{disposition: podEnded, record: &r}
	}
	message, checkAt := a.notStarting(pod)
	return podAssessment{disposition: podRuns, until: deadline, checkAt: checkAt, message: message}
}

// rebootEnded is the record of a node whose reboot pod has ended while the node is still in the old boot. Either the
// pod reports that it cannot reboot the node, or the pod itself was ended, usually by the reboot, which the kubelet
// reports before it reports the new boot. A repeated reboot pod does nothing on a node that is in another boot.
func (a *attemptReader) rebootEnded(pod *Pod, node *Node) record.Record {
	r := *node.On.Record
	e := a.readEnd(pod, node)
	r.PodUID, r.FinishedAt = pod.UID, a.in.Now
	if e.outcome == record.Failed && pod.Exit != nil && pod.Exit.Reported {
		r.Outcome, r.Reason, r.Message, r.Reboot = record.Failed, v1alpha1.ReasonRebootFailed, e.message, nil
		return r
	}
	r.Disruptions++
	return r
}

// givenUp is the record of a run whose reboot has taken too long.
func (a *attemptReader) givenUp(rec *record.Record) record.Record {
	r := *rec
	r.Outcome, r.Reason, r.FinishedAt = record.Failed, v1alpha1.ReasonRebootTimedOut, a.in.Now
	what := "the node did not come back in another boot"
	if !rec.Reboot.BackAt.IsZero() {
		what = "the node came back in another boot and did not stay Ready, or was not checked,"
	}
	r.Message = fmt.Sprintf("%s within %d s of the end of the task (maintenance.reboot.timeoutSeconds)", what, task.Timeout(a.in.Job, task.Reboot)/time.Second)
	r.Reboot = nil
	return r
}

// checked is the record of a run after its check has ended.
func (a *attemptReader) checked(pod *Pod, node *Node, e record.Record) record.Record {
	r := *node.On.Record
	r.PodUID, r.FinishedAt = pod.UID, e.FinishedAt
	r.Archives = r.Archives.With(e.Archives...)
	if len(e.Results) > 0 {
		// The check may add to the results of the task.
		results := maps.Clone(e.Results)
		for key, value := range r.Results {
			if _, anew := results[key]; !anew {
				results[key] = value
			}
		}
		var left bool
		r.Results, left = outcome.Bound(results)
		r.Truncated = r.Truncated || left
	}
	r.Truncated = r.Truncated || e.Truncated
	switch e.Outcome {
	case record.Succeeded:
		return a.completed(r, firstOf(task.BootID(pod.Machine), node.BootID), e.Message)
	case record.Disrupted, record.Rebooting, record.Needed, record.Expired:
		r.Disruptions++
	case record.Failed:
		r.Outcome, r.Reason, r.Message, r.ExitCode, r.Reboot = record.Failed, e.Reason, e.Message, e.ExitCode, nil
		if e.Reason == outcome.ReasonTaskFailed {
			r.Reason = outcome.ReasonCheckFailed
		}
	}
	return r
}

// completed is the record of a run with a reboot that has succeeded in this boot.
func (a *attemptReader) completed(r record.Record, boot, message string) record.Record {
	r.Outcome, r.BootID, r.Reboot, r.Disruptions, r.Rerun = record.Succeeded, boot, nil, 0, false
	r.Message = firstOf(message, r.Message)
	return r
}

// assessReboot continues a run whose task has succeeded, on a node on which no pod of the run runs.
func (as *assessor) assessReboot(terminating bool, w *nodePlan) {
	node, rec := w.node, w.node.On.Record
	w.slot = true
	if as.leavesRun(rec) {
		as.abandonRun(w)
		return
	}
	deadline := as.attempts.rebootDeadline(rec)
	w.run(v1alpha1.ReasonRebooting, "the task has succeeded, and the node reboots", time.Time{})
	if as.replaced(node) {
		r := *rec
		r.Outcome, r.Reason, r.FinishedAt, r.Reboot, r.PodUID = record.Failed, v1alpha1.ReasonRebootFailed, as.in.Now, nil, ""
		r.Message = "the node came back from its reboot with another machine ID, as another machine: see rerun.onMachineChange"
		r.BootID, r.MachineID = node.BootID, node.MachineID
		as.writeRunEnd(w, r)
		return
	}
	if !as.in.Now.Before(deadline) {
		// The pod that is on record stays there, because its finalizer may not be removed yet.
		as.writeRunEnd(w, as.attempts.givenUp(rec))
		return
	}
	w.run(w.Reason, w.Message, deadline)
	as.plan.wake(deadline)
	if !rebooted(node) && as.rebootWanted() {
		as.continueRun(w, startRequest{phase: task.Reboot, node: node, terminating: terminating})
		return
	}
	as.assessRebootedNode(terminating, w)
}

// leavesRun reports whether the run on record has not ended, and is of another revision, so no pod of it will start.
func (p *policy) leavesRun(rec *record.Record) bool {
	return rec != nil && rec.Outcome == record.Rebooting && rec.Revision != p.in.Revision
}

// abandonRun ends such a run. The node has its slot until that is on record. If its revision becomes the current one again, other nodes may
// have taken its place meanwhile, so the run begins again and waits for one.
func (as *assessor) abandonRun(w *nodePlan) {
	r := *w.node.On.Record
	r.Outcome, r.Reason, r.Message = record.Disrupted, v1alpha1.ReasonDisrupted, "the revision was changed before the node was back from its reboot"
	r.Attempts, r.Disruptions, r.FinishedAt, r.Reboot = max(0, r.Attempts-1), 1, as.in.Now, nil
	w.run(v1alpha1.ReasonRunning, "the run of the earlier revision ends", time.Time{})
	as.writeRunEnd(w, r)
}

// assessRebootedNode continues a run on a node that is in another boot, or need not reboot any more.
func (as *assessor) assessRebootedNode(terminating bool, w *nodePlan) {
	node, rec := w.node, w.node.On.Record
	what := settling(node)
	w.run(v1alpha1.ReasonSettling, what+", and must be Ready", w.Until)
	backAt := as.past(rec.Reboot.BackAt)
	switch isReady := node.Ready == corev1.ConditionTrue; {
	case isReady && (backAt.IsZero() || isBackAgain(node)):
		as.markBack(w, as.recordedAt(), "it is back")
		return
	case !isReady && !backAt.IsZero():
		as.markBack(w, time.Time{}, "it is back and not Ready")
		return
	case !isReady:
		return
	}
	seconds := valueOr(as.in.Job.Spec.Maintenance.Reboot.MinReadySeconds, defaultMinReadySeconds)
	until := backAt.Add(time.Duration(seconds) * time.Second)
	switch {
	case as.in.Now.Before(until):
		w.run(w.Reason, fmt.Sprintf("%s, and must be Ready for %d s", what, seconds), until)
		as.plan.wake(until)
	case as.in.Job.Spec.Task.Check == nil:
		r := *rec
		r.FinishedAt = as.in.Now
		as.writeRunEnd(w, as.attempts.completed(r, node.BootID, ""))
	default:
		if as.continueRun(w, startRequest{phase: task.Check, node: node, terminating: terminating}) {
			w.run(v1alpha1.ReasonChecking, w.Message, w.Until)
		}
	}
}

// settling says why a node must be Ready for a while before its run ends.
func settling(node *Node) string {
	if !rebooted(node) {
		return "the node need not reboot any more (maintenance.reboot)"
	}
	return "the node has rebooted"
}

// isBackAgain reports whether a node has turned Ready again, or rebooted again, since its return was noted.
func isBackAgain(node *Node) bool {
	noted := node.On.Record.Reboot
	return !sameSecond(node.ReadySince, noted.ReadySince) || differ(noted.BootID, node.BootID)
}

func sameSecond(a, b time.Time) bool { return a.Truncate(time.Second).Equal(b.Truncate(time.Second)) }

// markBack notes since when the node is Ready in another boot.
func (as *assessor) markBack(w *nodePlan, at time.Time, message string) {
	r := *w.node.On.Record
	back := *r.Reboot
	back.BackAt, back.ReadySince, back.BootID = at, w.node.ReadySince, w.node.BootID
	r.Reboot = &back
	mark := as.cordons.markOf(w.node, v1alpha1.ReasonSettling, message)
	mark.Record = &r
	as.mark(w, mark)
}

// runBlock is what prevents the next pod of a run from being created now, if anything. probe is true if one start may
// check whether an obstacle still exists. A run that has begun is not suspended.
func (j *job) runBlock(r startRequest, probe bool) block {
	for _, check := range []func(*job, startRequest) block{nodeCannotRun, nodeNotAllowed, nodeValueMissing} {
		if b := check(j, r); b.blocks() {
			return block{cause: causeNode, Why: hold.Why{Message: b.Message}}
		}
	}
	o, t := j.obstacleFor(r.phase), j.hindrance(r.node)
	switch {
	case r.terminating:
		return block{cause: causeTerminatingPod}
	case t != nil:
		return block{cause: causeNodeProblem, Why: hold.Why{Message: t.Message, Until: t.Until}, problem: t}
	case o != nil && probe && !o.Until.IsZero() && !j.in.Now.Before(o.Until):
		return block{}
	case o != nil:
		b := block{cause: causeObstacle, Why: hold.Why{Message: o.Message}, obstacle: o}
		if j.in.Now.Before(o.Until) {
			b.Until = o.Until
		}
		return b
	}
	return j.disruptionBackoff(r.node.On.Record)
}

// disruptionBackoff makes a run wait after its pod was disrupted.
func (p *policy) disruptionBackoff(rec *record.Record) block {
	notBefore := p.after(rec.EndedAt(), rec.Disruptions)
	if rec.Disruptions == 0 || !p.in.Now.Before(notBefore) {
		return block{}
	}
	return block{cause: causeBackoff, Why: hold.Why{Message: "the pod of the run was disrupted, and is made again", Until: notBefore}}
}

// continueRun starts the next pod of the run, unless something prevents that. It reports whether it does.
func (as *assessor) continueRun(w *nodePlan, r startRequest) bool {
	rec := w.node.On.Record
	if b := as.runBlock(r, as.capacity.startsLike(r.phase) == 0); b.blocks() {
		w.note(b)
		as.plan.wake(b.Until)
		w.run(w.Reason, firstOf(b.Message, w.Message), w.Until)
		return false
	}
	a := as.attempt(w.node, start{r.phase, rec.Attempts}, rec.Revision)
	a.Gates = as.gate.gateKeys(w.node)
	if r.phase == task.Reboot {
		a.BootID = rec.Reboot.FromBootID
	} else {
		a.Checks = rec
	}
	as.capacity.countStart(r.phase)
	as.do(Start{Attempt: a})
	return true
}

// end plans the record of the end of an attempt.
func (p *pass) end(w *nodePlan, pod *Pod, r record.Record) {
	w.written = true
	if pod.Runs.AsksDone() {
		p.do(p.recorder.answerAction(w.node, pod, r))
		return
	}
	a := p.recorder.recordAction(w.node, pod, r)
	p.do(a)
	w.endsRun = a.Final || a.Record.Outcome == record.Succeeded
}

// writeRunEnd is recordEnd for a node that has its slot until that is on record. If the API server refuses the record, it has it until
// rollout.progressDeadlineSeconds have passed, and the write is retried from time to time.
func (as *assessor) writeRunEnd(w *nodePlan, r record.Record) {
	if t := as.rejection(w); t != nil {
		if as.losesSlot(t.Since) {
			w.slot = false
			as.failUnrecorded(w, t)
		}
		if as.waitsToRetry(t) {
			return
		}
	}
	as.recordEnd(w, r)
}

// recordEnd ends a run without a pod that ends it.
func (p *pass) recordEnd(w *nodePlan, r record.Record) {
	p.end(w, &Pod{}, r)
}
