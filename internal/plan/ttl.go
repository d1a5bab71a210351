// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// expire deletes the NodeJob after it has been finished for spec.ttlSecondsAfterFinished.
func (s *planner) expire() {
	if closes := s.startingDeadline(); !closes.IsZero() && s.in.Now.Before(closes) {
		s.plan.wake(closes)
	}
	ttl := s.in.Job.Spec.TTLSecondsAfterFinished
	reconciling := meta.FindStatusCondition(s.plan.Status.Conditions, v1alpha1.ConditionReconciling)
	if ttl == nil || reconciling == nil || reconciling.Status != metav1.ConditionFalse || !s.isFinished() {
		return
	}
	since := later(reconciling.LastTransitionTime.Time, s.lastEnd())
	if at := since.Add(time.Duration(*ttl) * time.Second); s.in.Now.Before(at) {
		s.plan.wake(at)
		return
	}
	s.do(DeleteJob{})
}

// isFinished reports whether nothing runs, and no failed node still needs a rollback or a drain. A Stalled rollout is
// not Reconciling, although any of these may continue.
func (s *planner) isFinished() bool {
	for i := range s.nodes {
		if w := &s.nodes[i]; w.slot || (w.exhausted && !w.rollbackFinished) {
			return false
		}
	}
	return s.capacity.draining == 0
}

// lastEnd is when the last attempt, also of a rollback, ended; zero if none has ended.
func (s *planner) lastEnd() time.Time {
	var last time.Time
	for i := range s.nodes {
		rec := s.nodes[i].node.On.Record
		if rec == nil {
			continue
		}
		last = later(last, s.past(rec.EndedAt()))
		if rec.Rollback != nil {
			last = later(last, s.past(rec.Rollback.EndedAt()))
		}
	}
	return last
}
