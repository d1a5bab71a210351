package plan

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// settleFailed gives a state to a node on which every attempt failed, and has the task rolled back
// there.
func (s *survey) settleFailed(leaving bool, w *work, st *NodeState) {
	w.failed, w.exhausted = true, true
	f := s.failureOf(w.node, false)
	st.set(Failed, v1alpha1.ReasonRetriesExhausted, w.node.On.Record.Message)
	if s.in.Job.Spec.Rollback == nil || w.node.On.Record.NeverStarted {
		w.settled = true
	} else {
		s.settleRollback(leaving, w, st)
		f.Rollback = st.Reason
		if rb := w.node.On.Record.Rollback; rb != nil && rb.Outcome != record.Succeeded {
			f.RollbackMessage = lastLine(rb.Message)
		}
	}
	s.failures = append(s.failures, f)
}

// undoing is how far the rollback on a node is.
type undoing struct {
	done      bool
	failures  int32
	notBefore time.Time
}

func (s *survey) undoing(rec *record.Record) undoing {
	rb := rec.Rollback
	if rb == nil || (s.retry != "" && rb.Retry != s.retry && rb.Outcome != record.Succeeded) {
		return undoing{}
	}
	switch rb.Outcome {
	case record.Succeeded:
		return undoing{done: true}
	case record.Disrupted:
		return undoing{failures: rb.Attempts, notBefore: s.after(rb.EndedAt(), rb.Disruptions)}
	case record.Failed, record.Rebooting:
	}
	return undoing{failures: rb.Attempts, notBefore: s.after(rb.EndedAt(), rb.Attempts)}
}

// settleRollback says how far the rollback is, and has it started when nothing keeps it from that.
func (s *survey) settleRollback(leaving bool, w *work, st *NodeState) {
	rec := w.node.On.Record
	is := s.undoing(rec)
	switch {
	case is.done:
		w.settled = true
		st.Reason = v1alpha1.ReasonRolledBack
		return
	case is.failures > s.retryLimit():
		w.settled = true
		st.set(Failed, v1alpha1.ReasonRollbackFailed, rec.Rollback.Message)
		s.unrecovered = append(s.unrecovered, rollbackFailure(w.node.Name, rec.Rollback))
		return
	}
	var wait NodeState
	if s.mustWait(task.Rollback, w.node, leaving, is.notBefore, &wait) {
		// Nothing will come of it until the node is back: what else is to be done there must not wait.
		away, _ := absence(w.node)
		w.settled = away != ""
		st.set(Failed, v1alpha1.ReasonRollbackPending, wait.Message)
		st.Until = wait.Until
		return
	}
	st.set(Failed, v1alpha1.ReasonRollbackPending, "the rollback waits for a slot")
	w.start = s.attempt(w.node, task.Rollback, rec.Revision, is.failures+1)
	w.start.Undoes, w.start.Deleting = rec, !s.in.Job.DeletionTimestamp.IsZero()
}

// noteRollback notes what is said of a node on which the rollback runs.
func (s *survey) noteRollback(w *work, v verdict, st *NodeState) {
	st.Until = v.until
	rec := w.node.On.Record
	if s.standing(w.node).failures <= s.retryLimit() {
		// It was skipped meanwhile, or is to be tried again.
		st.set(Waiting, v1alpha1.ReasonRollingBack, "the rollback of what ran before has not ended yet")
		return
	}
	st.set(Failed, v1alpha1.ReasonRollingBack, v.message)
	w.touched, w.since, w.failed, w.exhausted = true, rec.BeganAt(), true, true
	f := s.failureOf(w.node, false)
	f.Rollback = v1alpha1.ReasonRollingBack
	s.failures = append(s.failures, f)
}

// rollbackEnded is the record of a node after an attempt of the rollback has ended.
func (s *survey) rollbackEnded(pod *Pod, node *Node, e record.Record) record.Record {
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
