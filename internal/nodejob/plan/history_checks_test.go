// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/rand"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// This file defines what a history knows about the check before the task.

// checks are the answers of the checks before the task.
type checkAnswers struct {
	// asks is true in histories with such checks.
	asks bool
	// questions is the random source for this file, so that histories without checks do not change.
	questions *rand.Rand
	// mayRun says on which (node UID, machine, revision) a check has said no, or a task has started, since the last success.
	mayRun map[string]bool
}

const (
	saysYes   = "yes"
	saysNo    = "no"
	saysError = "error"
)

// newChecks lets every fifth history check nodes before the task, except those that are kept.
func newChecks(seed int64) checkAnswers {
	c := checkAnswers{questions: rand.New(rand.NewSource(seed + 1<<42)), mayRun: map[string]bool{}}
	c.asks = c.questions.Intn(5) == 0 && !slices.Contains(kept, seed)
	return c
}

// someChecks adds a check before the task, or pulls the images before. Later changes of the maintenance of nodes may remove them.
func (h *history) someChecks() {
	if !h.asks {
		return
	}
	switch luck := h.questions.Intn(4); {
	case luck == 0:
		h.job.Spec.Maintenance.PrePull = true
	case h.job.Spec.Task.Template == nil:
		h.job.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, Before: true}
	}
}

// checksFirst reports whether nodes must be checked, or their images pulled, before they are cordoned, drained or rebooted.
func (h *history) checksFirst() bool {
	check := h.job.Spec.Task.Check
	return h.disrupts() && (h.job.Spec.Maintenance.PrePull || check != nil && check.Before)
}

// onlyPulls reports whether the pod before only pulls the images.
func (h *history) onlyPulls() bool {
	check := h.job.Spec.Task.Check
	return h.checksFirst() && (check == nil || !check.Before)
}

// pulls reports whether a pod only pulls images.
func (pod *simPod) pulls() bool { return slices.Contains(pod.raw.Spec.Containers[0].Args, "--pulled") }

// answers ends a pod whose check decides that the task does not run, or not in this pod.
func (h *history) answers(pod *simPod, node *Node) bool {
	if h.answersDrift(pod, node) {
		return true
	}
	if pod.Runs != task.CheckBefore && !(pod.Runs == task.Task && pod.ChecksBefore) {
		return false
	}
	if h.isBad(node) || pod.answer == "" { // a compromised node says what it likes
		switch luck := h.questions.Intn(6); {
		case luck < 2 && (h.isBad(node) || !pod.pulls()):
			pod.answer = saysYes
		case luck == 2 && h.faults:
			pod.answer = saysError
		default:
			pod.answer = saysNo
		}
	}
	if pod.Runs == task.Task && pod.answer == saysNo {
		return false
	}
	pod.Started, pod.endedAt = h.by(node), h.now
	pod.Phase, pod.Exit = corev1.PodFailed, &Exit{Finished: h.by(node), Reported: true, Reason: outcome.ReasonTaskFailed}
	switch pod.answer {
	case saysYes:
		pod.Phase, pod.Exit.Reason = corev1.PodSucceeded, ""
	case saysNo:
		pod.Exit.Code = 1
		if pod.pulls() {
			pod.Exit.Reason = outcome.ReasonImagesPulled
		}
	case saysError:
		pod.Exit.Code = 75
	}
	if pod.Runs == task.Task {
		pod.Exit.Reason = map[string]string{saysYes: outcome.ReasonAlreadyDone, saysError: outcome.ReasonCheckError}[pod.answer]
		h.mayHaveBegun.neverBegins(pod)
	}
	h.say("the check of pod %s on %s says %s", pod.Name, node.Name, pod.answer)
	h.openGap(pod)
	return true
}

// checkAsked checks that a node was checked before what the task needs from it.
func (h *history) checkAsked(node *Node, revision, what string) {
	if h.checksFirst() && !h.isBad(node) && !h.mayRun[run(node, revision)] {
		h.break_("check before", "%s is %s, and no check has said no there", node.Name, what)
	}
}

// checkAnswer checks the record of a pod in which the task has not run against what its check has said.
func (h *history) checkAnswer(node *Node, a Record, pod *simPod) {
	r, seen := a.Record, h.seen[node.Name]
	h.forgetMachine(node, r)
	if pod == nil || h.isBad(node) {
		if pod == nil {
			h.break_("check before", "%s is recorded on %s for a pod that the manager has not created", r.CheckBefore, node.Name)
		}
		return
	}
	key := run(&Node{UID: node.UID, MachineID: r.MachineID}, r.Revision)
	h.forgetRuns(func(k string) bool { return strings.HasPrefix(k, string(node.UID)+"/") && k != key })
	overdue := !h.now.Before(pod.Created.Add(task.Timeout(h.job, pod.Runs)))
	failures := int32(0)
	if was := seen.On.Record; was != nil && was.Revision == r.Revision && was.Outcome != record.Succeeded {
		failures = was.Attempts
	}
	switch {
	case r.Outcome == record.Failed || r.Attempts > failures:
		h.break_("check before", "a check counts as a failure of %s: %s, %d attempts", node.Name, r.Outcome, r.Attempts)
	case (r.Outcome == record.Succeeded) != (r.CheckBefore == record.AnswerYes),
		(r.Outcome == record.Needed) != (r.CheckBefore == record.AnswerNo):
		h.break_("check before", "%s is %s after the answer %s", node.Name, r.Outcome, r.CheckBefore)
	case r.CheckBefore == record.AnswerYes && pod.answer != saysYes, r.CheckBefore == record.AnswerNo && pod.answer != saysNo:
		h.break_("check before", "%s is recorded on %s, and the check has said %q", r.CheckBefore, node.Name, pod.answer)
	case r.CheckBefore == record.AnswerNo && pod.pulls() && !h.onlyPulls():
		h.break_("check before", "%s is recorded as asked, and its pod has only pulled images", node.Name)
	case r.CheckBefore == record.AnswerError && pod.answer != saysError && !overdue:
		h.break_("check before", "an error is recorded on %s, and the check has said %q", node.Name, pod.answer)
	case r.NeverStarted && seen.On.Record != nil && seen.On.Record.MachineID == r.MachineID && !seen.On.Record.NeverStarted:
		h.break_("rollback", "what the task did on %s is forgotten", node.Name)
	}
	if r.Rerun {
		delete(h.succeeded, key) // what has begun continues
	}
	if r.CheckBefore == record.AnswerNo {
		h.mayRun[key] = true
	}
	if r.Outcome == record.Succeeded {
		h.lastTask[r.MachineID] = lastTask{pod, r.Revision}
		h.succeeded[key], h.relabelled[key] = true, h.wasRelabelled(node)
		h.done[key] = success{boot: r.BootID, at: pod.endedAt.Truncate(time.Second)}
		h.ranWith[key] = h.begunWith[key]
		delete(h.failures, key)
		h.endsRun(key)
		delete(h.mayHaveBegun, h.mayHaveBegun.of(node.Name, r.Revision))
		delete(h.recordedBegin, node.Name)
		if r.Revision == h.rev && h.firstSuccess.IsZero() && h.hasBegun[node.Name] {
			h.firstSuccess = h.now // an attempt that was disrupted has done it
		}
	}
}

// beginsRun notes that a task may run on a node until it succeeds.
func (h *history) beginsRun(key string) { h.mayRun[key] = true }

// endsRun notes that a run has succeeded, so that the next one needs another answer.
func (h *history) endsRun(key string) { delete(h.mayRun, key) }

// isUndone reports whether the task was rolled back on a node, and has not run since, because a check said yes.
func isUndone(rec *record.Record) bool {
	return rec.CheckBefore == record.AnswerYes && rec.Rollback != nil && rec.Rollback.Outcome == record.Succeeded
}

// onlyAnswered reports whether a record says no more than what checks have answered.
func onlyAnswered(rec *record.Record) bool {
	return rec.CheckBefore != "" && rec.FirstStartedAt.IsZero()
}
