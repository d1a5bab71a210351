// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// retainedUntil is until when a pod whose outcome is in that record is retained for its logs; zero if it is not
// retained.
func (a *attemptReader) retainedUntil(pod *Pod, rec *record.Record) time.Time {
	keep := a.in.Job.Spec.RetainPodsSeconds
	if keep == 0 || rec == nil || pod.Runs.AsksDone() || !pod.over() || !pod.DeleteRequested.IsZero() || !a.in.Job.DeletionTimestamp.IsZero() {
		return time.Time{}
	}
	if pod.Runs == task.CheckExpires || rec.Outcome == record.Rebooting || rec.Outcome == record.Needed {
		return time.Time{} // the run continues with other pods
	}
	return a.recordedEnd(pod, rec).Add(time.Duration(keep) * time.Second)
}

// recordedEnd is when the outcome of the pod in that record was recorded.
func (a *attemptReader) recordedEnd(pod *Pod, rec *record.Record) time.Time {
	if rec.Rollback != nil && rec.Rollback.PodUID == pod.UID {
		return a.past(rec.Rollback.EndedAt())
	}
	if pod.Runs.AsksDone() {
		return a.past(rec.AnswerOf(pod.UID))
	}
	if rec.Expiry != nil && rec.Expiry.PodUID == pod.UID {
		return a.past(rec.Expiry.At)
	}
	return a.past(rec.EndedAt())
}

// endsUntil is until when a pod whose outcome is on record may take to end; zero if it has ended, or need not end.
func (a *attemptReader) endsUntil(pod *Pod, node *Node) time.Time {
	if pod.over() || !onRecord(pod, node) {
		return time.Time{}
	}
	return a.recordedEnd(pod, node.On.Record).Add(EndSlack)
}

// removePod releases a pod that needs no record, or has one, unless it has not ended, or is retained for its logs.
func (as *assessor) removePod(pod *Pod, why podDisposition, w *nodePlan) {
	if ends := as.attempts.endsUntil(pod, w.node); as.in.Now.Before(ends) {
		w.noteTerminating(pod.Runs, time.Time{})
		as.plan.wake(ends)
		return
	}
	until := as.attempts.retainedUntil(pod, w.node.On.Record)
	if onRecord(pod, w.node) && as.in.Now.Before(until) {
		as.retain(pod, w, until)
		return
	}
	w.releases = append(w.releases, FinalizePod{Pod: *pod, Unrecorded: why == podRecorded && !onRecord(pod, w.node) && pod.RecordedOn != w.node.UID})
	w.noteTerminating(pod.Runs, time.Time{})
	if !pod.over() {
		w.noteDisruption(pod)
	}
}

// release plans the release of the pods of a node, once its state is known.
func (as *assessor) release(w *nodePlan) {
	for _, a := range w.releases {
		a.Awaited = as.isDeleted() || w.awaitsPods()
		as.do(a)
	}
}

// retain retains a pod. Its finalizer is removed anyway, so that a deletion of the pod does not block.
func (as *assessor) retain(pod *Pod, w *nodePlan, until time.Time) {
	w.retained = append(w.retained, pod)
	if pod.Finalized {
		as.do(RetainPod{Pod: *pod})
	}
	as.plan.wake(until)
}

// removeRetainedPods releases the retained pods on a node that runs again. Pod names are derived, and the next attempt
// may need the name of one of them.
func (as *assessor) removeRetainedPods(w *nodePlan) {
	if !w.start.ready() || len(w.retained) == 0 || w.start.phase == task.CheckExpires {
		return
	}
	for _, pod := range w.retained {
		w.releases = append(w.releases, FinalizePod{Pod: *pod})
	}
	b := podIsTerminating(as.job, startRequest{terminating: true})
	w.start = start{}
	if w.State == Waiting {
		w.waitFor(b)
	} else {
		w.explain(w.Reason, b.Message)
	}
}
