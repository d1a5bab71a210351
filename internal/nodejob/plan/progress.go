// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/plural"
)

// defaultProgressDeadlineSeconds is rollout.progressDeadlineSeconds when omitted, as in the CRD.
const defaultProgressDeadlineSeconds = 3600

// progressDeadline is how long a node may delay others; 0 means forever.
func (p *policy) progressDeadline() time.Duration {
	return time.Duration(valueOr(p.in.Job.Spec.Rollout.ProgressDeadlineSeconds, defaultProgressDeadlineSeconds)) * time.Second
}

// overdue reports whether there was no progress since then for longer than rollout.progressDeadlineSeconds.
func (p *policy) overdue(since time.Time) bool {
	at := p.overdueAt(since)
	return !at.IsZero() && !p.in.Now.Before(at)
}

// overdueAt is when that time ends; zero if it does not.
func (p *policy) overdueAt(since time.Time) time.Time {
	limit := p.progressDeadline()
	if limit == 0 || since.IsZero() {
		return time.Time{}
	}
	return since.Add(limit)
}

// checkProgress counts a node as failed that has delayed others for too long. An attempt may still start there, so that
// the node can recover.
func (as *assessor) checkProgress(w *nodePlan, known recordState) {
	if w.progressDeadlineExceeded || w.rerun || known.done || w.waitsForBudget() || (w.State != Waiting && w.State != Running) {
		return
	}
	since, why := as.waitingSince(w, known)
	if as.overdue(since) {
		as.failProgress(w, why)
	} else {
		as.plan.wake(as.overdueAt(since))
	}
}

// waitingSince is since when a node delays others, and why; zero if it does not, or if its own time limits bound the
// delay.
func (as *assessor) waitingSince(w *nodePlan, known recordState) (time.Time, string) {
	if since, why := as.blockedSince(w); why != "" {
		return since, why
	}
	rec := w.node.On.Record
	switch {
	case !known.ranRevision || as.void(rec) || rec.CheckBefore != "", rec.Outcome == record.Needed: // a check never fails a node
	case rec.Outcome == record.Disrupted && !w.cannotRun():
		return as.disruptedSince(rec)
	case w.cannotRun() && (rec.Outcome == record.Disrupted || as.rollout.stableAt.IsZero()):
		return as.past(unableSince(w.node)), w.Message
	}
	return time.Time{}, ""
}

// unableSince is since when a node that can run nothing now may have been so.
func unableSince(node *Node) time.Time {
	rec := node.On.Record
	if since := rec.EndedAt(); rec.Outcome != record.Succeeded || since.After(node.DeletingSince) {
		return since
	}
	return node.DeletingSince // before that the node was done, or could have run
}

// disruptedSince is since when the attempts on a node are disrupted, until the last of them: whether the node would be disrupted again is not
// known before another attempt runs.
func (as *assessor) disruptedSince(rec *record.Record) (time.Time, string) {
	since := as.past(rec.DisruptedSince)
	if as.overdueAt(since).After(rec.EndedAt()) {
		return time.Time{}, ""
	}
	return since, fmt.Sprintf("%s in a row were disrupted, the last since %s", plural.Count(rec.Disruptions, "attempt"), lastLine(rec.Message))
}

// blockedSince is since when a problem, or a pod that should have ended, prevents a node from starting; "" if neither
// does.
func (as *assessor) blockedSince(w *nodePlan) (time.Time, string) {
	if w.State != Waiting {
		return time.Time{}, ""
	}
	if t, ok := as.in.NodeProblems[w.node.UID]; ok && !t.General {
		if as.overdueAt(t.Since).After(t.TriedAt) {
			return time.Time{}, "" // it may work at the next try, which only this deadline would prevent
		}
		return t.Since, t.Message
	}
	if w.cause == causeTerminatingPod {
		return w.terminatingSince, w.Message
	}
	return time.Time{}, ""
}

// checkDependencies counts the nodes of the current step as failed that wait for NodeJobs of spec.dependsOn, if the step
// has waited for nothing else for rollout.progressDeadlineSeconds. They count until the dependency is done there, or
// until the step can continue with another node.
func (ro *rollout) checkDependencies() {
	since := &ro.status.WaitingForDependencySince
	waits := ro.waitForDependency()
	if len(waits) == 0 {
		*since = metav1.Time{}
		return
	}
	if since.IsZero() {
		*since = ro.now()
	}
	if !ro.overdue(since.Time) {
		ro.plan.wake(ro.overdueAt(since.Time))
		return
	}
	for ; len(waits) > 0 && !ro.stopped; waits = ro.waitForDependency() { // others take their places
		for _, i := range waits {
			ro.failProgress(&ro.nodes[i], ro.nodes[i].Message)
		}
		ro.countFailed()
		ro.assignSteps()
	}
}

// keepFailedDependents lets the nodes that checkDependencies has counted as failed count until the dependency is done there, also after
// the last step has passed without them.
func (ro *rollout) keepFailedDependents() {
	since, waits := &ro.status.WaitingForDependencySince, false
	for _, i := range ro.steps[ro.current].nodes {
		if w := &ro.nodes[i]; ro.overdue(since.Time) && w.cause == causeDependency && !w.countsAsDone() && ro.stepWaitsFor(w) {
			ro.failProgress(w, w.Message)
			waits = true
		}
	}
	if ro.countFailed(); !waits {
		*since = metav1.Time{}
	}
}

// waitForDependency returns the nodes that the current step waits for, if each of them waits for a NodeJob of
// spec.dependsOn; none if the step can continue otherwise.
func (ro *rollout) waitForDependency() []int {
	st := &ro.steps[ro.current]
	var waits []int
	for _, i := range st.nodes {
		switch {
		case !ro.isPendingIn(st, i):
		case ro.nodes[i].cause != causeDependency:
			return nil
		default:
			waits = append(waits, i)
		}
	}
	return waits
}

// failProgress counts a node as failed for lack of progress.
func (j *job) failProgress(w *nodePlan, why string) {
	message := fmt.Sprintf("no progress for %d s (rollout.progressDeadlineSeconds): %s", j.progressDeadline()/time.Second, why)
	w.failed, w.progressDeadlineExceeded = true, true
	f := v1alpha1.NodeFailure{Node: w.node.Name, Reason: v1alpha1.ReasonProgressDeadlineExceeded, Message: message}
	if rec := w.node.On.Record; rec != nil {
		f.Attempts, f.FinishedAt = rec.Attempts, metav1.NewTime(rec.FinishedAt)
	}
	w.addFailure(f)
	if !w.start.ready() && w.State == Waiting {
		w.fail(v1alpha1.ReasonProgressDeadlineExceeded, message, w.Until)
	}
}
