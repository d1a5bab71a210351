// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// assessFailedNode gives a state to a node on which every attempt failed, and has the task rolled back
// there.
func (s *planner) assessFailedNode(terminating bool, w *nodePlan, st *NodeState) {
	w.failed, w.exhausted = true, true
	f := s.failureOf(w.node, false)
	st.set(Failed, v1alpha1.ReasonRetriesExhausted, w.node.On.Record.Message)
	if s.in.Job.Spec.Rollback == nil || w.node.On.Record.NeverStarted {
		w.rollbackFinished = true
	} else {
		s.assessRollback(terminating, w, st)
		f.Rollback = st.Reason
		if rb := w.node.On.Record.Rollback; rb != nil && rb.Outcome != record.Succeeded {
			f.RollbackMessage = lastLine(rb.Message)
		}
	}
	s.failures = append(s.failures, f)
}

// rollbackState is how far the rollback on a node is.
type rollbackState struct {
	done      bool
	failures  int32
	notBefore time.Time
}

func (s *planner) readRollback(rec *record.Record) rollbackState {
	rb := rec.Rollback
	if rb == nil || (s.retry != "" && rb.Retry != s.retry && rb.Outcome != record.Succeeded) {
		return rollbackState{}
	}
	switch rb.Outcome {
	case record.Succeeded:
		return rollbackState{done: true}
	case record.Disrupted:
		return rollbackState{failures: rb.Attempts, notBefore: s.after(rb.EndedAt(), rb.Disruptions)}
	case record.Failed, record.Rebooting:
	}
	return rollbackState{failures: rb.Attempts, notBefore: s.after(rb.EndedAt(), rb.Attempts)}
}

// assessRollback says how far the rollback is, and has it started when nothing keeps it from that.
func (s *planner) assessRollback(terminating bool, w *nodePlan, st *NodeState) {
	rec := w.node.On.Record
	is := s.readRollback(rec)
	switch {
	case is.done:
		w.rollbackFinished = true
		st.Reason = v1alpha1.ReasonRolledBack
		return
	case is.failures > s.retryLimit():
		w.rollbackFinished = true
		st.set(Failed, v1alpha1.ReasonRollbackFailed, rec.Rollback.Message)
		s.unrecovered = append(s.unrecovered, rollbackFailure(w.node.Name, rec.Rollback))
		return
	}
	var wait NodeState
	if s.mustWait(task.Rollback, w.node, terminating, is.notBefore, &wait) {
		// Nothing will come of it until the node is back: what else is to be done there must not wait.
		away, _ := cannotRunReason(w.node)
		w.rollbackFinished = away != ""
		st.set(Failed, v1alpha1.ReasonRollbackPending, wait.Message)
		st.Until = wait.Until
		return
	}
	st.set(Failed, v1alpha1.ReasonRollbackPending, "the rollback waits for a slot")
	w.start = s.attempt(w.node, task.Rollback, rec.Revision, is.failures+1)
	w.start.Undoes, w.start.Deleting = rec, !s.in.Job.DeletionTimestamp.IsZero()
}

// noteRollback notes what is said of a node on which the rollback runs.
func (s *planner) noteRollback(w *nodePlan, v podAssessment, st *NodeState) {
	st.Until = v.until
	rec := w.node.On.Record
	if s.readRecord(w.node).failures <= s.retryLimit() {
		// It was skipped meanwhile, or is to be tried again.
		st.set(Waiting, v1alpha1.ReasonRollingBack, "the rollback of what ran before has not ended yet")
		return
	}
	st.set(Failed, v1alpha1.ReasonRollingBack, v.message)
	w.ranRevision, w.since, w.failed, w.exhausted = true, rec.BeganAt(), true, true
	f := s.failureOf(w.node, false)
	f.Rollback = v1alpha1.ReasonRollingBack
	s.failures = append(s.failures, f)
}

// rollbackEnded is the record of a node after an attempt of the rollback has ended.
func (s *planner) rollbackEnded(pod *Pod, node *Node, e record.Record) record.Record {
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
	if e.Outcome == record.Disrupted {
		r.Rollback.Disruptions = 1
		if prev := node.On.Record.Rollback; prev != nil && prev.Outcome == record.Disrupted {
			r.Rollback.Disruptions = prev.Disruptions + 1
		}
	}
	return r
}

// undoable is true when there is a record that the end of the rollback belongs to. The user may have
// taken it away meanwhile, to have the task tried again.
func undoable(pod *Pod, node *Node) bool {
	return node.On.Record != nil && node.On.Record.Revision == pod.Revision
}
