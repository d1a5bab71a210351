package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
)

// What a NodeJob needs that is to run once and then be gone, such as one of "kubectl everynode run".

// closesAt is when spec.startingDeadlineSeconds is over; zero when it never is.
func (s *survey) closesAt() time.Time {
	within := s.in.Job.Spec.StartingDeadlineSeconds
	if within == nil {
		return time.Time{}
	}
	return s.in.Job.CreationTimestamp.Add(time.Duration(*within) * time.Second)
}

// halted is why nothing may start any more; "" when it may.
func (s *survey) halted() string {
	at := s.closesAt()
	switch {
	case s.in.Job.Spec.Suspend:
		return "spec.suspend is true"
	case at.IsZero() || s.in.Now.Before(at):
		return ""
	}
	return "spec.startingDeadlineSeconds is over"
}

// keptUntil is until when a pod is kept for its logs, whose end is on that record; zero when it is not.
func (s *survey) keptUntil(pod *Pod, rec *record.Record) time.Time {
	keep := s.in.Job.Spec.RetainPodsSeconds
	if keep == 0 || rec == nil || !pod.ended() || !pod.DeleteRequested.IsZero() || !s.in.Job.DeletionTimestamp.IsZero() {
		return time.Time{}
	}
	if rec.Outcome == record.Rebooting {
		return time.Time{} // the run goes on, with other pods
	}
	ended := rec.EndedAt()
	if rec.Rollback != nil && rec.Rollback.PodUID == pod.UID {
		ended = rec.Rollback.EndedAt()
	}
	return s.past(ended).Add(time.Duration(keep) * time.Second)
}

// keep is true for a pod that stays although its end is on record. The finalizer comes off all the same: whoever
// deletes it is not held up.
func (s *survey) keep(pod *Pod, w *work, p *Plan) bool {
	until := s.keptUntil(pod, w.node.On.Record)
	if !onRecord(pod, w.node) || !s.in.Now.Before(until) {
		return false
	}
	w.kept = append(w.kept, pod)
	if pod.Finalized {
		p.Actions = append(p.Actions, Keep{Pod: *pod})
	}
	p.wake(until)
	return true
}

// dismiss lets a pod go that needs no record, or has one, unless it is kept.
func (s *survey) dismiss(pod *Pod, why fate, w *work, p *Plan) {
	if why == fateRecorded && s.keep(pod, w, p) {
		return
	}
	p.Actions = append(p.Actions, Release{Pod: *pod, Unrecorded: why == fateRecorded && !onRecord(pod, w.node)})
	w.leaving = true
}

// makeRoom lets the pods go that are kept on a node that runs again: names are derived, and the next attempt may
// need the name of one of them.
func (s *survey) makeRoom(w *work, st *NodeState, p *Plan) {
	if w.start == nil || len(w.kept) == 0 {
		return
	}
	for _, pod := range w.kept {
		p.Actions = append(p.Actions, Release{Pod: *pod})
	}
	w.start = nil
	st.Message = "the pod of an earlier attempt has not left yet"
	if st.State == Waiting {
		st.Reason = v1alpha1.ReasonPodTerminating
	}
}

// expire deletes the NodeJob when it has been at rest for spec.ttlSecondsAfterFinished.
func (s *survey) expire(p *Plan) {
	if closes := s.closesAt(); !closes.IsZero() && s.in.Now.Before(closes) {
		p.wake(closes)
	}
	ttl := s.in.Job.Spec.TTLSecondsAfterFinished
	reconciling := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReconciling)
	if ttl == nil || reconciling == nil || reconciling.Status != metav1.ConditionFalse || !s.atRest() {
		return
	}
	since := later(reconciling.LastTransitionTime.Time, s.lastEnd())
	if at := since.Add(time.Duration(*ttl) * time.Second); s.in.Now.Before(at) {
		p.wake(at)
		return
	}
	p.Actions = append(p.Actions, Expire{})
}

// atRest is true when nothing runs, and no failed node is still to be rolled back or drained. A rollout that has
// stopped is not Reconciling although all of that may go on.
func (s *survey) atRest() bool {
	for i := range s.work {
		if w := &s.work[i]; w.slot || (w.exhausted && !w.settled) {
			return false
		}
	}
	return s.draining == 0
}

// lastEnd is when the last attempt ended, of a rollback too; zero when none has.
func (s *survey) lastEnd() time.Time {
	var last time.Time
	for i := range s.work {
		rec := s.work[i].node.On.Record
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
