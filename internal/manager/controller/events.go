// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// Actions of events about a node.
const (
	actionAttempt    = "Attempt"
	actionRollback   = "Rollback"
	actionQuarantine = "SetAside"
	actionDrain      = "Drain"
	actionCheck      = "Check"
)

// announcer sends events, and counts what they are about.
type announcer struct{ *shell }

// recorded sends an event after the end of an attempt is recorded. A success has no event, because the label shows it.
func (r announcer) recorded(seen observation, a plan.Record) {
	r.Metrics.archived(a)
	switch { // a run that a time limit ends has no pod
	case a.Pod.Runs == task.Rollback:
		r.rolledBack(seen, a)
	case a.Pod.Runs == task.CheckExpires:
		r.checkedExpiry(seen, a)
	case a.Pod.Runs.AsksDone():
		r.answered(seen, a)
	default:
		r.ended(seen, a)
	}
}

// ended sends an event after the end of an attempt of the task is recorded.
func (r announcer) ended(seen observation, a plan.Record) {
	rec := a.Record
	if rec.Outcome == record.Rebooting {
		return // nothing has ended yet
	}
	r.Metrics.attempt(phaseOf(rec), rec.Outcome)
	switch rec.Outcome {
	case record.Needed, record.Expired: // the run continues, or has no attempt
	case record.Succeeded:
		r.succeeded(seen, a)
	case record.Disrupted:
		r.disrupted(seen, a)
	case record.Rebooting: // see above
	case record.Failed:
		reason, next := v1alpha1.ReasonAttemptFailed, "retried"
		if a.Final {
			reason, next = v1alpha1.ReasonRetriesExhausted, "not retried"
		}
		message := rec.Message
		if rec.Reverted { // its last line says why; what the task has printed does not
			message = message[strings.LastIndexByte(message, '\n')+1:]
		}
		r.tell(seen.job, a.Node, a.UID, corev1.EventTypeWarning, reason, actionAttempt,
			fmt.Sprintf("attempt %d failed (%s), it is %s%s", rec.Attempts, why(rec.Reason, rec.ExitCode), next, after(said(message))))
	}
}

// succeeded sends the events of a success that its label does not show.
func (r announcer) succeeded(seen observation, a plan.Record) {
	if a.Record.CheckBefore == record.AnswerNo { // in an audit
		r.answersNo(seen, a, v1alpha1.ReasonNonCompliant, "is not compliant")
	}
	r.Metrics.succeeded(seen, a)
	if a.Quarantine {
		r.uncordoned(seen.job, a.Node, a.UID, a.Cordon)
	}
}

// disrupted sends an event about an attempt that does not count.
func (r announcer) disrupted(seen observation, a plan.Record) {
	rec := a.Record
	if rec.CheckBefore != record.AnswerError {
		r.event(seen.job, loop.Node(a.Node, a.UID), corev1.EventTypeNormal, v1alpha1.ReasonDisrupted, actionAttempt,
			fmt.Sprintf("node %s: attempt %d was disrupted and does not count%s", a.Node, a.Pod.Attempt, after(rec.Message)))
		return
	}
	what := "the check before the task itself failed"
	switch {
	case rec.Reason == v1alpha1.ReasonImagesNotPulled:
		what = "the images of the task could not be pulled"
	case task.IsAudit(seen.job):
		what = "task.check itself failed"
	}
	r.tell(seen.job, a.Node, a.UID, corev1.EventTypeWarning, rec.Reason, actionAttempt,
		fmt.Sprintf("%s (%s), it is repeated and does not count as a failure%s", what, why(rec.Reason, rec.ExitCode), after(said(rec.Message))))
}

// rolledBack sends an event after the end of an attempt of the rollback is recorded. Unlike a success of the task, a
// successful rollback has an event: nothing else on the node shows it.
func (r announcer) rolledBack(seen observation, a plan.Record) {
	rb := a.Record.Rollback
	r.Metrics.attempt(task.Rollback, rb.Outcome)
	switch rb.Outcome {
	case record.Succeeded:
		r.tell(seen.job, a.Node, a.UID, corev1.EventTypeNormal, v1alpha1.ReasonRolledBack, actionRollback, "the rollback has succeeded")
	case record.Disrupted:
		r.event(seen.job, loop.Node(a.Node, a.UID), corev1.EventTypeNormal, v1alpha1.ReasonDisrupted, actionRollback,
			fmt.Sprintf("node %s: attempt %d of the rollback was disrupted and does not count%s", a.Node, a.Pod.Attempt, after(rb.Message)))
	case record.Rebooting, record.Needed, record.Expired: // no rollback reboots, or is checked before
	case record.Failed:
		reason, next := v1alpha1.ReasonAttemptFailed, "retried"
		if a.Final {
			reason, next = v1alpha1.ReasonRollbackFailed, "not retried; the node may be in an inconsistent state, check it"
		}
		r.tell(seen.job, a.Node, a.UID, corev1.EventTypeWarning, reason, actionRollback,
			fmt.Sprintf("attempt %d of the rollback failed (%s), it is %s%s", rb.Attempts, why(rb.Reason, rb.ExitCode), next, after(said(rb.Message))))
	}
}

// answerOutcomes are the outcomes, for metrics, of pods that only ask a question.
var answerOutcomes = map[record.Answer]record.Outcome{
	record.AnswerYes: record.Succeeded, record.AnswerNo: record.Needed, record.AnswerError: record.Disrupted, record.AnswerNone: record.Disrupted,
}

// answered sends an event if the answer of a node that is done differs from the one before: one when a drift begins or ends, and
// one when the check begins to fail itself.
func (r announcer) answered(seen observation, a plan.Record) {
	is := a.Record.Compliance()
	r.Metrics.attempt(a.Pod.Runs, answerOutcomes[is.Answer])
	output := after(said(is.Message))
	switch {
	case is.Answer == record.AnswerNo && a.Was.NoSince.IsZero():
		r.answersNo(seen, a, v1alpha1.ReasonDrifted, "has drifted")
	case is.Answer == record.AnswerYes && !a.Was.NoSince.IsZero():
		r.tell(seen.job, a.Node, a.UID, corev1.EventTypeNormal, v1alpha1.ReasonDriftEnded, actionCheck, "task.check answers yes again")
	case is.Answer == record.AnswerError && a.Was.ErrorSince.IsZero():
		r.tell(seen.job, a.Node, a.UID, corev1.EventTypeWarning, v1alpha1.ReasonCheckError, actionCheck,
			fmt.Sprintf("task.check itself failed (%s), it is repeated and does not count as a failure%s", why(v1alpha1.ReasonCheckError, is.ExitCode), output))
	}
}

// answersNo sends an event about a node that has drifted, or that an audit finds not to be compliant.
func (r announcer) answersNo(seen observation, a plan.Record, reason, is string) {
	r.tell(seen.job, a.Node, a.UID, corev1.EventTypeWarning, reason, actionCheck, "the node "+is+": task.check answers no"+after(said(a.Record.Compliance().Message)))
}

// checkedExpiry sends an event after the answer of spec.expires.check is recorded. That the task is still needed has none.
func (r announcer) checkedExpiry(seen observation, a plan.Record) {
	e := a.Record.Expiry
	ended := answerOutcomes[e.Answer]
	switch e.Answer {
	case record.AnswerYes:
		ended = record.Expired
		r.tell(seen.job, a.Node, a.UID, corev1.EventTypeNormal, v1alpha1.ReasonExpired, actionAttempt, "the task is no longer needed (spec.expires.check)")
	case record.AnswerNo, record.AnswerNone:
	case record.AnswerError:
		r.tell(seen.job, a.Node, a.UID, corev1.EventTypeWarning, v1alpha1.ReasonCheckError, actionAttempt,
			fmt.Sprintf("spec.expires.check itself failed (%s), it is repeated and ends nothing%s", why(v1alpha1.ReasonCheckError, e.ExitCode), after(said(e.Message))))
	}
	r.Metrics.attempt(task.CheckExpires, ended)
}

// phaseOf is what has run in an attempt, for metrics: a check that decided that the task does not run, or not yet, is not the task.
func phaseOf(rec *record.Record) task.Phase {
	if rec.CheckBefore != "" {
		return task.CheckBefore
	}
	return task.Task
}

// why is the reason of a failure, with its exit code if there is one.
func why(reason string, code *int32) string {
	if code == nil {
		return reason
	}
	return fmt.Sprintf("%s, exit code %d", reason, *code)
}

// after is a message at the end of a sentence; "" if there is none.
func after(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// said returns as much of the last output of the attempt as an event can contain.
func said(message string) string { return outcome.Clean(message, 512) }

// quiet are the marks of a normal run. Like a success, they have no events.
var quiet = []string{v1alpha1.ReasonPreparing, v1alpha1.ReasonSettling, v1alpha1.ReasonGateClosed, v1alpha1.ReasonGateOpened, v1alpha1.ReasonPublished,
	v1alpha1.ReasonAssumedDone, v1alpha1.ReasonExpired}

// nodePatched sends an event about a write to a failed node.
func (r announcer) nodePatched(job *v1alpha1.NodeJob, a plan.PatchNode) {
	kind, note := corev1.EventTypeNormal, a.Message
	switch {
	case slices.Contains(quiet, a.Reason):
		return
	case a.Reason == v1alpha1.ReasonDrainTimedOut:
		kind = corev1.EventTypeWarning
	case a.Reason == v1alpha1.ReasonUncordoned && a.Cordon != nil && len(a.Cordon.By) > 0:
		note += "; it stays cordoned for another NodeJob"
	}
	r.tell(job, a.Node, a.UID, kind, a.Reason, actionQuarantine, note)
}

// uncordoned sends an event if the removal of a record has also uncordoned the node.
func (r announcer) uncordoned(job *v1alpha1.NodeJob, name string, uid types.UID, cordon *record.Cordon) {
	if cordon != nil && len(cordon.By) == 0 {
		r.tell(job, name, uid, corev1.EventTypeNormal, v1alpha1.ReasonUncordoned, actionQuarantine, "the cordon is no longer needed")
	}
}

// tell sends one event about the NodeJob and one about the node.
func (r announcer) tell(job *v1alpha1.NodeJob, name string, uid types.UID, kind, reason, action, what string) {
	loop.RecordEvent(r.Recorder, job, loop.Node(name, uid), kind, reason, action, fmt.Sprintf("NodeJob %s/%s on node %s: %s", job.Namespace, job.Name, name, what))
}
