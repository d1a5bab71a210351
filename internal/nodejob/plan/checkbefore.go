// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/runner/contract"
)

// task.check.before. Without maintenance, the pod of the task runs the check first. With maintenance, the check runs in a pod of its own,
// so that only nodes that need the task get a slot, a claim of their NodeDisruptionBudgets, a cordon and a drain:
//
//	may start ──► check ──► yes ──► done (AlreadyDone)
//	                │  ▲
//	                │  └─ error, disrupted: repeated with the backoff, not a failure
//	                └─────► no ──► Needed is recorded ──► slot, budgets ──► cordon, drain ──► task
//
// With maintenance.prePull and without task.check.before, that pod only pulls the images of the task. It can only answer no.
//
// The answer is for one run. A retry of the task is part of its run, so it does not ask once more.

const (
	// maxChecksBefore is how many nodes are checked at the same time, each by a pod of its own, with those that are done. A check
	// disturbs nothing, so this only limits the load of the API server.
	maxChecksBefore = 100

	// checkErrorPatience is how long a check may fail itself in a row before the NodeJob is Stalled because of it.
	checkErrorPatience = 5 * time.Minute
)

// mustCheckFirst reports whether a node that may start must be checked before it gets a slot.
func (j *job) mustCheckFirst(node *Node, known recordState) bool {
	return task.IsAudit(j.in.Job) || task.ChecksFirst(j.in.Job) && !known.needed && !known.drifted && !j.hasRunInRun(node)
}

// hasRunInRun reports whether an attempt of the task is on record for a run that has not ended.
func (j *job) hasRunInRun(node *Node) bool {
	rec := node.On.Record
	return rec != nil && !j.replaced(node) && rec.Revision == j.in.Revision && rec.CheckBefore == "" && !rec.IsIdle() && !j.void(rec)
}

// answer is how the check before the task ended, if it decides that the task does not run, or not in this pod; false otherwise.
func (a *attemptReader) answer(pod *Pod, node *Node) (end, bool) {
	if pod.Runs.Asks() {
		return a.answerOfPod(pod, node), true
	}
	exit := pod.Exit
	switch {
	case pod.Runs != task.Task || !pod.ChecksBefore || exit == nil || !exit.Reported:
	case exit.Reason == outcome.ReasonAlreadyDone && pod.succeeded():
		return end{record.Succeeded, v1alpha1.ReasonAlreadyDone, exit.Message, record.AnswerYes}, true
	case exit.Reason == outcome.ReasonCheckError:
		return end{record.Disrupted, v1alpha1.ReasonCheckError, exit.Message, record.AnswerError}, true
	}
	return end{}, false
}

// answerOfPod is the answer of a pod that runs only the check. In case of doubt the check itself has failed.
func (a *attemptReader) answerOfPod(pod *Pod, node *Node) end {
	exit := pod.Exit
	if pod.pulled() {
		return a.imagesPulled()
	}
	switch why := disruption(pod, node); {
	case pod.succeeded():
		return end{record.Succeeded, v1alpha1.ReasonAlreadyDone, ownMessage(exit), record.AnswerYes}
	case exit != nil && exit.Reported && exit.Reason == outcome.ReasonTaskFailed && answersNo(pod.Runs, exit.Code):
		return end{record.Needed, "", exit.Message, record.AnswerNo}
	case a.overran(pod):
		return a.checkError(pod, firstOf(ownMessage(exit), pod.Waiting, "the check took longer than its time limit"))
	case why != "":
		return end{record.Disrupted, v1alpha1.ReasonDisrupted, why, record.AnswerNone}
	}
	return a.checkError(pod, exit.Message)
}

// answersNo reports whether a check has answered no with an exit code. A typing error in spec.expires.check must not end anything.
func answersNo(phase task.Phase, code int32) bool {
	if phase == task.CheckExpires {
		return code == contract.CheckNo
	}
	return contract.AnswersNo(int(code))
}

// pulled reports whether a pod says that the images of the task are on its node.
func (p *Pod) pulled() bool {
	return p.Runs == task.CheckBefore && p.Exit != nil && p.Exit.Reported && p.Exit.Reason == outcome.ReasonImagesPulled
}

// imagesPulled is the end of such a pod, unless its NodeJob has a check now, which must be asked.
func (j *job) imagesPulled() end {
	if !task.OnlyPulls(j.in.Job) {
		return end{record.Disrupted, v1alpha1.ReasonDisrupted, "the NodeJob was changed while the images were pulled", record.AnswerNone}
	}
	return end{record.Needed, v1alpha1.ReasonImagesPulled, "", record.AnswerNo}
}

// checkError is the end of a pod that has given no answer.
func (j *job) checkError(pod *Pod, message string) end {
	reason := v1alpha1.ReasonCheckError
	if pod.Runs == task.CheckBefore && task.OnlyPulls(j.in.Job) {
		reason = v1alpha1.ReasonImagesNotPulled
	}
	return end{record.Disrupted, reason, message, record.AnswerError}
}

// ofCheck turns an end without an answer, such as a deadline, into the end of a question if the pod asks one.
func (j *job) ofCheck(pod *Pod, e end) end {
	if pod.Runs.Asks() && e.answer == "" {
		return j.checkError(pod, e.message)
	}
	return e
}

// answered completes the record of a pod in which the task has not run, because of an answer; "" if there is none. What an earlier
// attempt did there remains to be rolled back.
func (a *attemptReader) answered(pod *Pod, node *Node, r record.Record, answer record.Answer) record.Record {
	if answer == "" {
		return r
	}
	r = a.notStarted(node, r)
	r.CheckBefore, r.Attempts = answer, a.failuresBefore(pod, node)
	if task.IsAudit(a.in.Job) && (answer == record.AnswerYes || answer == record.AnswerNo) {
		return a.audited(pod, r, answer)
	}
	if answer == record.AnswerNo {
		r.Rerun = a.isRerun(node, pod.Revision)
	}
	return r
}

// noteCheckBefore notes what is known about a node on which a pod only asks a question. It has no slot.
func (w *nodePlan) noteCheckBefore(pod *Pod, v podAssessment) {
	w.checking, w.Until = true, v.until
	w.checkMessage, w.checkPhase = v.message, pod.Runs
	if v.disposition == podRuns && v.message != "" && pod.Started.IsZero() {
		w.findings().notStarted, w.findings().silent = v.message, pod.Silent
	}
}

// checkBlock is that of a node on which a pod of a phase runs before the task, or will. Without a message, it says what that does.
func (j *job) checkBlock(phase task.Phase, message string, until time.Time) block {
	b := block{cause: causeCheckBefore, Why: hold.Why{Reason: v1alpha1.ReasonCheckingBefore, Message: message, Until: until}}
	does := "task.check runs before the task"
	switch {
	case phase == task.CheckExpires:
		does = "spec.expires.check runs"
	case task.IsAudit(j.in.Job):
		b.Reason, does = v1alpha1.ReasonChecking, "task.check runs"
	case task.OnlyPulls(j.in.Job):
		b.Reason, does = v1alpha1.ReasonPullingImages, "its images are pulled first"
	}
	b.Message = firstOf(message, does)
	return b
}

// checkFirst starts the check of a node, unless too many run, or one start must show whether an obstacle still exists.
func (p *planner) checkFirst(w *nodePlan) {
	phase, c := w.start.phase, p.capacity
	switch {
	case c.checking >= maxChecksBefore:
		w.postpone(p.checkBlock(phase, fmt.Sprintf("it waits until fewer than %s are checked", plural.Count(maxChecksBefore, "node")), time.Time{}))
		return
	case p.obstacleFor(phase) != nil && c.startsLike(phase) > 0:
		w.postpone(p.checkBlock(phase, w.Message, time.Time{}))
		return
	}
	p.startQuestion(w, p.attemptOn(w))
	w.postpone(p.checkBlock(phase, "", time.Time{}))
}

// startQuestion starts a pod that only asks a question.
func (p *planner) startQuestion(w *nodePlan, a task.Attempt) {
	c := p.capacity
	c.countStart(a.Phase)
	c.busy++
	c.checking++
	w.checking = true
	a.Gates = p.gate.gateKeys(w.node)
	p.do(Start{Attempt: a})
}

// noteCheckError notes a node whose check before the task itself fails.
func (as *assessor) noteCheckError(w *nodePlan, rec *record.Record) {
	w.findings().checkError, w.findings().checkErrorStalls = checkErrorText(rec.ExitCode, rec.Message), as.losesPatience(rec.DisruptedSince)
}

// losesPatience reports whether a check that itself fails since then makes the NodeJob Stalled, and wakes the plan when it will.
func (as *assessor) losesPatience(since time.Time) bool {
	stalls := as.past(since).Add(checkErrorPatience)
	if as.in.Now.Before(stalls) {
		as.plan.wake(stalls)
		return false
	}
	return true
}

// checkErrorText says how a check itself failed.
func checkErrorText(code *int32, message string) string {
	return firstOf(endOf(code, message), v1alpha1.ReasonCheckError)
}

// endOf is the exit code of an attempt and the last line of its output; "" if neither is known.
func endOf(code *int32, message string) string {
	line := lastLine(message)
	switch {
	case code == nil:
		return line
	case line == "":
		return fmt.Sprintf("exit code %d", *code)
	}
	return fmt.Sprintf("exit code %d: %s", *code, line)
}

// triesToPull reports whether a node has no pod yet that pulls the images of a template, while the API server refuses such pods.
func (sb *statusBuilder) triesToPull(w *nodePlan) bool {
	return sb.in.RunnerRefused != nil && task.OnlyPulls(sb.in.Job) && w.State == Waiting && w.cause == causeCheckBefore && w.checkPhase == ""
}

// stuckBefore counts the nodes that cannot continue without help because of what comes before the task: their check has failed itself for
// long, or the API server refuses the pods that pull its images.
func (su *summarizer) stuckBefore() int32 {
	return su.checksStalled + su.expiryBlocked + su.pullsRefused
}

// stuckBeforeSummary is the summary if that holds for all nodes that are not done. summarize adds what the API server says.
func (su *summarizer) stuckBeforeSummary() summary {
	is := summary{v1alpha1.ConditionStalled, v1alpha1.ReasonCheckError, su.progress}
	switch {
	case su.checksStalled > 0:
		is.reason, is.message = su.checkErrorReason(), is.message+"; "+su.checkErrorMessage()
	case su.expiryBlocked == 0:
		is.reason = su.in.RunnerRefused.Reason
	}
	return is
}

// checkErrorReason is the reason for checkErrorMessage.
func (su *summarizer) checkErrorReason() string {
	if task.OnlyPulls(su.in.Job) {
		return v1alpha1.ReasonImagesNotPulled
	}
	return v1alpha1.ReasonCheckError
}

// checkErrorMessage names the nodes whose check fails, or whose images cannot be pulled, and says what to do.
func (su *summarizer) checkErrorMessage() string {
	switch {
	case task.IsAudit(su.in.Job):
		return checkErrorsMessage("task.check", su.checkErrors)
	case task.OnlyPulls(su.in.Job):
		return fmt.Sprintf("on %s, the images of the task cannot be pulled (%s). It is repeated, does not count as a failure, and changes nothing there; check the names of the images, their registry, and the pull secrets",
			plural.Count(len(su.checkErrors), "node"), named(su.checkErrors))
	}
	return checkErrorsMessage("the check before the task", su.checkErrors)
}

func checkErrorsMessage(check string, nodes []string) string {
	return fmt.Sprintf("on %s, %s itself fails (%s). It is repeated and does not count as a failure; correct task.check: exit code %d is yes, %d means that it cannot say, as do signals and the time limit, and any other is no",
		plural.Count(len(nodes), "node"), check, named(nodes), contract.CheckYes, contract.CheckUnknown)
}
