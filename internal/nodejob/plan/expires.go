// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/runner/contract"
)

// spec.expires. Its check runs in a pod of its own, before the task, after each reboot, and each period:
//
//	not done ──► check ──► no ──► task ──► done ──► another boot, or a period later ──► check ──► no ──► done
//	              │  ▲                                                                  │  ▲
//	              │  └─ error: repeated                                                 │  └─ error: repeated
//	              └────► yes ──► Expired                                                └────► yes ──► rollback ──► Expired
//
// The answer is in the record of the run (record.Expiry), so it survives whatever ends the manager. A yes stays until the revision
// changes, or the machine. After spec.expires.at, each node is treated as if its check had said yes.

// hasEnded reports whether spec.expires.at has passed.
func (p *policy) hasEnded() bool {
	e := p.in.Job.Spec.Expires
	return e != nil && e.At != nil && !p.in.Now.Before(e.At.Time)
}

// keepsRun reports whether the record of the node is about the revision on this machine, or makes the node done, so that an answer is
// added to it.
func (j *job) keepsRun(node *Node) bool {
	rec := node.On.Record
	return rec != nil && !j.replaced(node) && (rec.Revision == j.in.Revision || node.On.DoneWith(j.in.Revision, j.anyRevision()))
}

// expiryOf is the answer on record that the end of an attempt of a revision takes over; nil if there is none.
func (j *job) expiryOf(node *Node, revision string) *record.Expiry {
	rec := node.On.Record
	if rec == nil || j.replaced(node) || rec.Revision != revision {
		return nil
	}
	return rec.Expiry
}

// isOver reports whether the task is no longer needed on a node that is not Expired yet.
func (j *job) isOver(node *Node) bool {
	switch {
	case j.in.Job.Spec.Expires == nil, !j.in.Job.DeletionTimestamp.IsZero():
		return false
	case j.hasEnded():
		return true
	}
	rec := node.On.Record
	return task.ChecksExpiry(j.in.Job) && j.keepsRun(node) && rec.HasExpired() && !rec.IsExpired()
}

// expiresWith reports whether a node is Expired when a rollback has succeeded there: the task was no longer needed, or had succeeded. The
// latter is rolled back for no other reason, and spec.expires may have changed since.
func (j *job) expiresWith(node *Node) bool {
	return j.in.Job.DeletionTimestamp.IsZero() && (j.isOver(node) || node.On.Record.Outcome == record.Succeeded)
}

// expiryAssessor assesses what spec.expires means for a single node.
type expiryAssessor struct {
	*assessor
}

func (as *assessor) expiry() *expiryAssessor { return &expiryAssessor{as} }

// nothingToUndo reports whether nothing of the task is on the node, as far as its record says.
func (ea *expiryAssessor) nothingToUndo(node *Node) bool {
	rec := node.On.Record
	return rec == nil || ea.replaced(node) || rec.NeverStarted || ea.records.readRollback(rec).done
}

// assess sets the state of a node on which the task is no longer needed, and reports whether it does. A node that a user has
// skipped has no record, and stays as it is.
func (ea *expiryAssessor) assess(terminating bool, known recordState, w *nodePlan) bool {
	if e := ea.in.Job.Spec.Expires; e != nil && e.At != nil && !ea.hasEnded() {
		ea.plan.wake(e.At.Time)
	}
	if known.expired {
		w.expire()
		return true
	}
	if !ea.isOver(w.node) || known.done && w.node.On.Record == nil {
		return false
	}
	ea.noteExpiring(w)
	if ea.nothingToUndo(w.node) {
		ea.markExpired(terminating, w)
		return true
	}
	ea.assessRollback(terminating, w)
	if w.State == Failed {
		w.rerun = false
		ea.addRollbackFailure(w)
	}
	return true
}

// noteExpiring notes that the task is no longer needed on the node. If it was done, it counts as done until its rollback fails.
func (as *assessor) noteExpiring(w *nodePlan) {
	w.expiring = true
	w.rerun = w.rerun || as.records.readRecord(w.node).done
}

// markExpired writes that the node is Expired without a rollback.
func (ea *expiryAssessor) markExpired(terminating bool, w *nodePlan) {
	b := block{Why: hold.Why{Reason: v1alpha1.ReasonExpired, Message: "the task is no longer needed on it (spec.expires), and nothing of it is there"}}
	if t := podIsTerminating(ea.job, startRequest{terminating: terminating}); t.blocks() {
		b = t
	}
	if !ea.mayMarkDone(w, b) {
		return
	}
	mark := ea.cordons.markOf(w.node, v1alpha1.ReasonExpired, b.Message)
	now := ea.recorder.recordedAt()
	r := record.Record{Revision: ea.in.Revision, Digest: ea.in.Digest, NeverStarted: true, FinishedAt: now, RecordedAt: now, ChangedBy: ea.in.author()}
	if prev := w.node.On.Record; ea.keepsRun(w.node) {
		r = *prev
	} else if prev != nil && !ea.replaced(w.node) {
		r.NeverStarted, r.Rollback, r.RemovedLabels = prev.NeverStarted, prev.Rollback, prev.RemovedLabels
	}
	r.BootID, r.MachineID, r.Retry = w.node.BootID, w.node.MachineID, ea.retry
	mark.Record = &r
	ea.recorder.expire(w.node, &mark.Change)
	ea.mark(w, mark)
}

// expire turns the record of a change into that of a node on which the task is no longer needed, and nothing of it is left: its results
// are no longer published, and the node gets workloads again.
func (rec *recorder) expire(node *Node, c *record.Change) {
	r := c.Record
	r.Assumed = !r.HasRun(r.Revision)
	r.Outcome, r.Reason, r.Message, r.CheckBefore = record.Expired, v1alpha1.ReasonExpired, "the task is no longer needed on the node (spec.expires)", ""
	r.Results, r.Truncated, r.Attempts, r.Disruptions, r.Drain = nil, false, 0, 0, nil
	r.Rerun, r.RetryRequested, r.RunsAlone, r.LabelRemoved = false, false, false, false
	c.KeepLabel = node.On.HasLabelOf(rec.in.Revision, rec.anyRevision()) && node.On.Label != r.Revision // a user has set it
	r.Label = r.Revision
	if c.KeepLabel {
		r.Label = labelLeft(node)
	}
	c.Publish = rec.publisher.unpublish(node)
	rec.opens(node, c)
}

// expiryDue is when spec.expires.check must run on a node; zero for now. needed is true if its last answer, that the task is still
// needed, holds until then.
func (j *job) expiryDue(node *Node) (due time.Time, needed bool) {
	if !j.keepsRun(node) || node.On.Record.Expiry == nil || node.On.Record.HasExpired() {
		return time.Time{}, false
	}
	e := node.On.Record.Expiry
	switch {
	case e.Answer != record.AnswerNo:
		return j.after(e.At, e.Unanswered), false
	case differ(e.BootID, node.BootID):
		return time.Time{}, false
	}
	due = dueAfter(j.past(e.At), j.in.Job.Spec.Expires.Check.PeriodSeconds, j.key, node.UID)
	return due, due.IsZero() || j.in.Now.Before(due)
}

// expiryStart is the next check of spec.expires on a node.
func (j *job) expiryStart(node *Node) start {
	number := int32(1)
	if e := node.On.Record; j.keepsRun(node) && e.Expiry != nil {
		number = e.Expiry.Checks + 1
	}
	return start{task.CheckExpires, number}
}

// check starts the check of spec.expires when it is due on a node that is done or has failed.
func (ea *expiryAssessor) check(terminating bool, w *nodePlan) {
	if !task.ChecksExpiry(ea.in.Job) || ea.in.Revision == "" || w.checking || w.start.ready() || w.rollbackPending || w.node.On.Record == nil {
		return
	}
	ea.noteError(w)
	due, needed := ea.expiryDue(w.node)
	if needed {
		ea.plan.wake(due)
		return
	}
	if b := ea.startBlock(startRequest{phase: task.CheckExpires, node: w.node, terminating: terminating, notBefore: due}); b.blocks() {
		ea.plan.wake(b.Until)
		return
	}
	w.start = ea.expiryStart(w.node)
}

// checkFirst makes a node that may start the task wait for the check of spec.expires, and reports whether it does.
func (ea *expiryAssessor) checkFirst(terminating bool, known recordState, w *nodePlan) bool {
	if !task.ChecksExpiry(ea.in.Job) {
		return false
	}
	ea.noteError(w)
	due, needed := ea.expiryDue(w.node)
	if needed {
		return false
	}
	if b := ea.startBlock(startRequest{phase: task.CheckExpires, node: w.node, terminating: terminating, notBefore: due}); b.blocks() {
		w.waitFor(b)
		return true
	}
	w.waitFor(ea.checkBlock(task.CheckExpires, known.rerunReason, time.Time{}))
	w.start = ea.expiryStart(w.node)
	return true
}

// expiryAnswered is the record of a node after a check of spec.expires has ended. It does not change how the last run ended.
func (a *attemptReader) expiryAnswered(pod *Pod, node *Node, e end) record.Record {
	is := record.Asked{Answer: e.answer, At: a.recordedAt(), Message: lastLine(e.message), PodUID: pod.UID}
	if pod.Exit != nil && !pod.Exit.Lost {
		is.ExitCode = &pod.Exit.Code
	}
	if differ(task.BootID(pod.Machine), node.BootID) {
		is.Answer, is.Message = record.AnswerNone, "the node has rebooted since the check started"
	}
	prev := node.On.Record
	var was record.Asked
	if a.keepsRun(node) && prev.Expiry != nil {
		was = prev.Expiry.Asked
	}
	answer := record.Expiry{Asked: was.Next(is), Checks: pod.Attempt, BootID: firstOf(task.BootID(pod.Machine), node.BootID)}
	if a.keepsRun(node) {
		r := *prev
		r.Expiry = &answer
		if r.IsExpired() && answer.Answer != record.AnswerYes { // a user has requested another run
			r.Outcome, r.Reason, r.Message, r.Assumed = record.Needed, "", "", false
		}
		return r
	}
	r := a.answered(pod, node, a.recordOf(pod, node, end{outcome: record.Needed, message: e.message}), record.AnswerNo)
	r.CheckBefore, r.ExitCode, r.Results, r.Truncated, r.Archives, r.Expiry = "", nil, nil, false, nil, &answer
	return r
}

// finishExpiryCheck completes the record of a check of spec.expires. If there is nothing to roll back, a yes makes the node done
// at once.
func (rec *recorder) finishExpiryCheck(a *Record, node *Node) {
	r := a.Record
	a.ResourceVersion = node.ResourceVersion
	a.KeepLabel = true
	if !rec.keepsRun(node) {
		r.Earlier, r.Previous = record.EarlierThan(node.On.Record, r, false), record.PreviousTo(node.On.Record, r)
		r.RecordedAt = rec.recordedAt()
		a.KeepLabel = false
		rec.setLabel(node, a)
	}
	rolledBack := r.Rollback != nil && r.Rollback.Outcome == record.Succeeded
	if r.HasExpired() && (r.NeverStarted || rolledBack) && r.Outcome != record.Rebooting {
		rec.expire(node, &a.Change)
	}
}

// noteError notes a node whose check of spec.expires itself fails.
func (ea *expiryAssessor) noteError(w *nodePlan) {
	rec := w.node.On.Record
	if !ea.keepsRun(w.node) || rec.Expiry == nil || rec.Expiry.ErrorSince.IsZero() {
		return
	}
	found := w.findings()
	found.expiryError = checkErrorText(rec.Expiry.ExitCode, rec.Expiry.Message)
	found.expiryErrorStalls = ea.losesPatience(rec.Expiry.ErrorSince)
}

// addExpiry counts a node that is done because the task is no longer needed there.
func (w *nodePlan) addExpiry(c *v1alpha1.NodeCounts) {
	if w.isExpired() {
		c.Expired++
	}
}

// isExpired reports whether the node is done because the task is no longer needed there.
func (w *nodePlan) isExpired() bool {
	return w.State == Done && w.node.On.Record != nil && w.node.On.Record.IsExpired()
}

// lacksEffect reports whether the task is needed on a node, and not done there, or without effect.
func (sb *statusBuilder) lacksEffect(w *nodePlan) bool {
	if w.State == Excluded || w.isExpired() || w.expiring || w.found != nil && w.found.expiryError != "" {
		return false
	}
	rec := w.node.On.Record
	return !w.countsAsDone() || w.nonCompliant || rec != nil && rec.Results[contract.ResultInEffect] == "no"
}

// countEffect counts a node on which the task is not in effect, or that has not been asked whether it needs the task.
func (sb *statusBuilder) countEffect(w *nodePlan) {
	switch {
	case sb.isUnasked(w):
		sb.unasked++
	case sb.lacksEffect(w):
		sb.withoutEffect++
	}
}

// isUnasked reports whether it is not known yet if the task is needed on a node: spec.expires.check has not answered there.
func (sb *statusBuilder) isUnasked(w *nodePlan) bool {
	if !task.ChecksExpiry(sb.in.Job) || w.State == Excluded || w.expiring || w.countsAsDone() || w.found != nil && w.found.expiryError != "" {
		return false
	}
	rec := w.node.On.Record
	return !sb.keepsRun(w.node) || rec.Expiry == nil || rec.Expiry.Answer != record.AnswerNo && !rec.HasExpired()
}

// expiryMessage says on how many nodes the task is needed and in effect, and where the check of spec.expires fails; "" if there is no
// spec.expires.
func (sb *statusBuilder) expiryMessage() string {
	n := sb.counts
	switch {
	case sb.in.Job.Spec.Expires == nil || n.Total == 0:
		return ""
	case n.Expired == n.Total:
		return "; needed on no node: the NodeJob can be deleted"
	}
	text := fmt.Sprintf("; needed on %d of %s", int(n.Total-n.Expired-sb.unasked)-len(sb.expiryErrors), plural.Count(n.Total, "node"))
	if sb.withoutEffect > 0 {
		text += fmt.Sprintf(", and not in effect on %d of them", sb.withoutEffect)
	}
	if sb.unasked > 0 {
		text += fmt.Sprintf("; not known yet on %d", sb.unasked)
	}
	if len(sb.expiryErrors) > 0 {
		text += fmt.Sprintf("; on %s, spec.expires.check itself fails (%s). It is repeated, and ends nothing; correct it so that it exits with %d if the task is no longer needed, or %d if it is",
			plural.Count(len(sb.expiryErrors), "node"), named(sb.expiryErrors), contract.CheckYes, contract.CheckNo)
	}
	return text
}
