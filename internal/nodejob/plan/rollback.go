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

// assessFailedNode sets the state of a node on which every attempt failed, and starts the rollback of the task there.
func (as *assessor) assessFailedNode(terminating bool, w *nodePlan) {
	w.failed, w.exhausted = true, true
	f := as.cordons.failureOf(w.node, false)
	w.fail(v1alpha1.ReasonRetriesExhausted, w.node.On.Record.Message, time.Time{})
	if rec := w.node.On.Record; as.in.Job.Spec.Rollback == nil || rec.NeverStarted || rec.NotStarted {
		w.rollbackFinished = true
	} else {
		as.assessRollback(terminating, w)
		f.Rollback = w.Reason
		if rb := w.node.On.Record.Rollback; rb != nil && rb.Outcome != record.Succeeded {
			f.RollbackMessage = lastLine(rb.Message)
			as.noteRevertFailed(w)
		}
	}
	w.addFailure(f)
}

// rollbackState is the progress of the rollback on a node.
type rollbackState struct {
	done      bool
	failures  int32
	notBefore time.Time
}

func (r *recordReader) readRollback(rec *record.Record) rollbackState {
	rb := rec.Rollback
	if rb == nil || (r.retry != "" && rb.Retry != r.retry && rb.Outcome != record.Succeeded) {
		return rollbackState{}
	}
	switch rb.Outcome {
	case record.Succeeded:
		return rollbackState{done: true}
	case record.Disrupted:
		return rollbackState{failures: rb.Attempts, notBefore: r.after(rb.EndedAt(), rb.Disruptions)}
	case record.Failed, record.Rebooting, record.Needed, record.Expired:
	}
	return rollbackState{failures: rb.Attempts, notBefore: r.after(rb.EndedAt(), rb.Attempts)}
}

// assessRollback determines the progress of the rollback on a node whose task has failed, or is rolled back because the
// NodeJob is deleted, and starts it if nothing prevents that.
func (as *assessor) assessRollback(terminating bool, w *nodePlan) {
	rec := w.node.On.Record
	is := as.records.readRollback(rec)
	switch {
	case is.done:
		w.rollbackFinished = true
		w.explain(v1alpha1.ReasonRolledBack, w.Message)
		return
	case is.failures > as.retryLimit():
		w.rollbackFinished = true
		w.fail(v1alpha1.ReasonRollbackFailed, rec.Rollback.Message, time.Time{})
		w.findings().unrecovered = rollbackFailure(w.node.Name, rec.Rollback)
		return
	}
	if b := as.startBlock(startRequest{phase: task.Rollback, node: w.node, terminating: terminating, notBefore: is.notBefore}); b.blocks() {
		// The rollback cannot run until the node is available. Other work on the node must not wait for it. If only a value of the
		// node is missing, the node is not drained before its rollback, but the status of a deletion says what is missing.
		reason, _ := cannotRunReason(w.node)
		w.rollbackFinished = reason != "" || b.cause == causeNode && as.isDeleted()
		w.rollbackPending = b.cause == causeTerminatingPod || b.cause == causeBackoff
		as.rollbackPending(w, b.Message, b.Until)
		w.note(b)
		return
	}
	w.rollbackPending = true
	as.rollbackPending(w, "the rollback waits for a slot", time.Time{})
	w.start = start{task.Rollback, is.failures + 1}
}

// rollbackPending gives a node the state of a node whose rollback does not run yet. A failed node remains failed. At
// deletion, and where the task is no longer needed, the node waits.
func (as *assessor) rollbackPending(w *nodePlan, message string, until time.Time) {
	if as.in.Job.DeletionTimestamp.IsZero() && !w.expiring {
		w.fail(v1alpha1.ReasonRollbackPending, message, until)
		return
	}
	w.waitFor(block{cause: causeRollback, Why: hold.Why{Reason: v1alpha1.ReasonRollbackPending, Message: message, Until: until}})
}

// rollBack gives a node the state of a node whose rollback runs.
func (w *nodePlan) rollBack(message string, until time.Time) {
	if w.expiring {
		w.run(v1alpha1.ReasonRollingBack, firstOf(message, "the task is no longer needed on it, and is rolled back"), until)
		return
	}
	w.fail(v1alpha1.ReasonRollingBack, message, until)
}

// noteRollback notes what is known about a node on which the rollback runs.
func (as *assessor) noteRollback(w *nodePlan, v podAssessment) {
	rec := w.node.On.Record
	if as.isOver(w.node) {
		as.noteExpiring(w)
		w.rollBack(v.message, v.until)
		return
	}
	if as.records.readRecord(w.node).failures <= as.retryLimit() {
		// The node was skipped since, or its task will be retried.
		w.waitFor(block{cause: causeRollback, Why: hold.Why{Reason: v1alpha1.ReasonRollingBack, Message: "the rollback of what ran before has not ended yet", Until: v.until}})
		return
	}
	w.rollbackPending = true
	w.fail(v1alpha1.ReasonRollingBack, v.message, v.until)
	w.ranRevision, w.since, w.failed, w.exhausted = true, rec.BeganAt(), true, true
	f := as.cordons.failureOf(w.node, false)
	f.Rollback = v1alpha1.ReasonRollingBack
	w.addFailure(f)
}

// rollbackEnded is the record of a node after an attempt of the rollback has ended.
func (a *attemptReader) rollbackEnded(pod *Pod, node *Node, e record.Record) record.Record {
	r := *node.On.Record
	r.Rollback = &record.Rollback{
		Outcome:    e.Outcome,
		Attempts:   e.Attempts,
		StartedAt:  e.StartedAt,
		FinishedAt: e.FinishedAt,
		ExitCode:   e.ExitCode,
		Reason:     e.Reason,
		Message:    e.Message,
		Retry:      pod.Retry,
		PodUID:     pod.UID,
	}
	r.Archives = r.Archives.With(e.Archives...)
	if e.Outcome == record.Disrupted {
		r.Rollback.Disruptions = 1
		if prev := node.On.Record.Rollback; prev != nil && prev.Outcome == record.Disrupted {
			r.Rollback.Disruptions = prev.Disruptions + 1
		}
	}
	return r
}

// undoable reports whether there is a record that the end of the rollback belongs to. A user may have removed the
// record since, to request a retry of the task.
func undoable(pod *Pod, node *Node) bool {
	return node.On.Record != nil && node.On.Record.Revision == pod.Revision
}
