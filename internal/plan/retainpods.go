// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/everynode/everynode/internal/record"
)

// retainedUntil is until when a pod whose outcome is in that record is retained for its logs; zero if it is not
// retained.
func (s *attemptReader) retainedUntil(pod *Pod, rec *record.Record) time.Time {
	keep := s.in.Job.Spec.RetainPodsSeconds
	if keep == 0 || rec == nil || !pod.ended() || !pod.DeleteRequested.IsZero() || !s.in.Job.DeletionTimestamp.IsZero() {
		return time.Time{}
	}
	if rec.Outcome == record.Rebooting {
		return time.Time{} // the run continues with other pods
	}
	ended := rec.EndedAt()
	if rec.Rollback != nil && rec.Rollback.PodUID == pod.UID {
		ended = rec.Rollback.EndedAt()
	}
	return s.past(ended).Add(time.Duration(keep) * time.Second)
}

// removePod releases a pod that needs no record, or has one, unless the pod is retained for its logs.
func (s *assessor) removePod(pod *Pod, why podDisposition, w *nodePlan) {
	until := s.attempts.retainedUntil(pod, w.node.On.Record)
	if why == podRecorded && onRecord(pod, w.node) && s.in.Now.Before(until) {
		s.retain(pod, w, until)
		return
	}
	s.do(FinalizePod{Pod: *pod, Unrecorded: why == podRecorded && !onRecord(pod, w.node)})
	w.terminating = true
}

// retain retains a pod. Its finalizer is removed anyway, so that a deletion of the pod does not block.
func (s *assessor) retain(pod *Pod, w *nodePlan, until time.Time) {
	w.retained = append(w.retained, pod)
	if pod.Finalized {
		s.do(RetainPod{Pod: *pod})
	}
	s.plan.wake(until)
}

// removeRetainedPods releases the retained pods on a node that runs again. Pod names are derived, and the next attempt
// may need the name of one of them.
func (s *assessor) removeRetainedPods(w *nodePlan) {
	if w.start == nil || len(w.retained) == 0 {
		return
	}
	for _, pod := range w.retained {
		s.do(FinalizePod{Pod: *pod})
	}
	b := podIsTerminating(s.job, startRequest{terminating: true})
	w.start = nil
	if w.State == Waiting {
		w.waitFor(b)
	} else {
		w.explain(w.Reason, b.message)
	}
}
