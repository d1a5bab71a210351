// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
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

// retain reports whether a pod is retained although its outcome is on record. Its finalizer is removed anyway, so that
// a deletion of the pod does not block.
func (s *planner) retain(pod *Pod, w *nodePlan) bool {
	until := s.attempts.retainedUntil(pod, w.node.On.Record)
	if !onRecord(pod, w.node) || !s.in.Now.Before(until) {
		return false
	}
	w.retained = append(w.retained, pod)
	if pod.Finalized {
		s.do(RetainPod{Pod: *pod})
	}
	s.plan.wake(until)
	return true
}

// removePod releases a pod that needs no record, or has one, unless the pod is retained.
func (s *planner) removePod(pod *Pod, why podDisposition, w *nodePlan) {
	if why == podRecorded && s.retain(pod, w) {
		return
	}
	s.do(FinalizePod{Pod: *pod, Unrecorded: why == podRecorded && !onRecord(pod, w.node)})
	w.terminating = true
}

// removeRetainedPods releases the retained pods on a node that runs again. Pod names are derived, and the next attempt
// may need the name of one of them.
func (s *planner) removeRetainedPods(w *nodePlan) {
	if w.start == nil || len(w.retained) == 0 {
		return
	}
	for _, pod := range w.retained {
		s.do(FinalizePod{Pod: *pod})
	}
	w.start = nil
	w.Message = "the pod of an earlier attempt is still terminating"
	if w.State == Waiting {
		w.Reason = v1alpha1.ReasonPodTerminating
	}
}
