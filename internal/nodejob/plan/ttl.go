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
func (p *planner) expire() {
	if closes := p.startingDeadline(); p.in.Now.Before(closes) {
		p.plan.wake(closes)
	}
	ttl := p.in.Job.Spec.TTLSecondsAfterFinished
	reconciling := meta.FindStatusCondition(p.plan.Status.Conditions, v1alpha1.ConditionReconciling)
	if ttl == nil || reconciling.Status != metav1.ConditionFalse || !p.isFinished() {
		return
	}
	since := later(reconciling.LastTransitionTime.Time, p.lastEnd())
	if at := since.Add(time.Duration(*ttl) * time.Second); p.in.Now.Before(at) {
		p.plan.wake(at)
		return
	}
	p.do(DeleteJob{})
}

// isFinished reports whether nothing runs, and no failed node still needs a rollback or a drain. A Stalled rollout is
// not Reconciling, although any of these may continue.
func (p *planner) isFinished() bool {
	for i := range p.nodes {
		if w := &p.nodes[i]; w.slot || (w.exhausted && !w.rollbackFinished) {
			return false
		}
	}
	return p.capacity.draining == 0
}

// lastEnd is when the last attempt, also of a rollback, ended; zero if none has ended.
func (p *planner) lastEnd() time.Time {
	var last time.Time
	for i := range p.nodes {
		rec := p.nodes[i].node.On.Record
		if rec == nil {
			continue
		}
		last = later(last, p.past(rec.EndedAt()))
		if rec.Rollback != nil {
			last = later(last, p.past(rec.Rollback.EndedAt()))
		}
	}
	return last
}
