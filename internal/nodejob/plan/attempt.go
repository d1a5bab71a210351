// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

const (
	// DeadlineSlack is how long after its time limit the manager ends an attempt. Before that, the runner on the node
	// enforces the limit itself, because it can report the last output of the script.
	DeadlineSlack = 10 * time.Second

	// StopSlack is how long after the end of its grace period a deleted pod may still exist before its kubelet counts as
	// dead, even if the node does not say so.
	StopSlack = 60 * time.Second

	// EndSlack is how long after the record of its outcome a pod may take to end before its kubelet counts as dead.
	EndSlack = 60 * time.Second

	// slowStart is how long a pod may take to start before the status says so.
	slowStart = 30 * time.Second
)

// attemptReader determines what pods mean, and what is recorded of them.
type attemptReader struct {
	*job
	publisher *publisher
}

// podDisposition is what the planner does with a pod.
type podDisposition int

const (
	// podRuns : the pod runs, or ends without a request from Everynode.
	podRuns podDisposition = iota
	// podOverdue : the pod must be stopped.
	podOverdue
	// podEnded : the outcome of the pod is known and not recorded.
	podEnded
	// podRecorded : the outcome is recorded on the node, and the finalizer of the pod must still be removed when it has
	// ended.
	podRecorded
	// podTerminating : the pod is being deleted, and Everynode has no finalizer on it. Its attempt is over, even if a user
	// has removed its record from the node to request a retry.
	podTerminating
	// podOrphaned : the node of the pod was replaced by another one, and the finalizer of the pod must still be removed.
	podOrphaned
)

type podAssessment struct {
	disposition podDisposition
	// record is set for podEnded.
	record  *record.Record
	message string
	// until is when the attempt ends at the latest; zero if that is not known.
	until time.Time
	// checkAt is when the status may change before that; zero if it does not.
	checkAt time.Time
}

// assessPod determines what a pod that is bound to the node's name means for the node.
func (a *attemptReader) assessPod(pod *Pod, node *Node) podAssessment {
	switch {
	case !needsFinalizerRemoval(pod):
		return podAssessment{disposition: podTerminating}
	case a.isRecorded(pod, node):
		return podAssessment{disposition: podRecorded}
	case pod.Runs == task.Reboot:
		return a.assessRebootPod(pod, node)
	case a.isObsolete(pod, node):
		return podAssessment{disposition: podOrphaned}
	case !sameMachine(a.in.Job, pod, node):
		return podAssessment{disposition: podOrphaned}
	case pod.ended() || pod.Concluded:
		return a.ended(pod, node, a.readEnd(pod, node))
	}

	deadline := a.deadline(pod)
	if a.in.Now.Before(deadline) {
		message, checkAt := a.notStarting(pod)
		return podAssessment{disposition: podRuns, until: deadline, checkAt: checkAt, message: message}
	}
	return a.assessOverduePod(pod, node, deadline)
}

// isObsolete reports whether the outcome of a check does not matter any more: its run has ended, or the NodeJob is being deleted, or the
// question was about another revision.
func (a *attemptReader) isObsolete(pod *Pod, node *Node) bool {
	switch pod.Runs {
	case task.Check:
		return !belongsToRun(pod, node)
	case task.CheckBefore:
		return !a.in.Job.DeletionTimestamp.IsZero()
	case task.CheckExpires:
		return !a.in.Job.DeletionTimestamp.IsZero() || pod.Revision != a.in.Revision
	case task.CheckDrift:
		return !a.awaitsAnswer(pod, node)
	case task.Task, task.Rollback, task.Reboot:
	}
	return false
}

// onRecord reports whether the outcome of the pod is recorded on its node.
func onRecord(pod *Pod, node *Node) bool { return node.On.Record.HasEndOf(pod.UID) }

// isRecorded reports whether the outcome of the pod is or was recorded on its node. It is not recorded a second time from
// a later status of the pod, not even if a user has removed the record. A pod that is retained for its logs says so
// itself.
func (a *attemptReader) isRecorded(pod *Pod, node *Node) bool {
	return onRecord(pod, node) || pod.RecordedOn == node.UID || (pod.Recorded && !pod.Finalized && a.in.Job.Spec.RetainPodsSeconds > 0)
}

// assessOverduePod assesses an attempt that is past its deadline. If the kubelet responds, the pod is deleted, and the
// kubelet reports how it ended. If the kubelet does not respond, the attempt must not have its slot forever: an attempt
// that made its node unavailable has failed.
func (a *attemptReader) assessOverduePod(pod *Pod, node *Node, deadline time.Time) podAssessment {
	if node.unreachable() {
		return a.ended(pod, node, end{outcome: record.Failed, reason: v1alpha1.ReasonNodeUnreachable,
			message: "the node became unreachable during the attempt and was not reachable again before the deadline of the attempt"})
	}
	if pod.DeleteRequested.IsZero() {
		return podAssessment{disposition: podOverdue, message: pod.Waiting}
	}
	if giveUp := later(deadline, pod.DeleteRequested.Add(pod.DeleteGrace)).Add(StopSlack); a.in.Now.Before(giveUp) {
		return podAssessment{disposition: podRuns, until: giveUp, message: "it is being stopped after its deadline"}
	}
	return a.ended(pod, node, end{outcome: record.Failed, reason: v1alpha1.ReasonDeadlineExceeded,
		message: "the attempt took too long, and its kubelet did not end it"})
}

// notStarting returns why a pod has not started, or when to check that again. A missing volume or network has no reason
// in the status of the pod, only events.
func (a *attemptReader) notStarting(pod *Pod) (string, time.Time) {
	slow := pod.Created.Add(slowStart)
	switch {
	case pod.Waiting != "" || !pod.Started.IsZero():
		return pod.Waiting, time.Time{}
	case a.in.Now.Before(slow):
		return "", slow
	case pod.Silent:
		return fmt.Sprintf("the kubelet has not reported on the pod for %d s", slowStart/time.Second), time.Time{}
	}
	if pod.Initializing != "" {
		return fmt.Sprintf("not started for %d s: its init container %[2]s has not ended; its log: kubectl -n %[3]s logs %[4]s -c %[2]s",
			slowStart/time.Second, pod.Initializing, a.in.Job.Namespace, pod.Name), time.Time{}
	}
	return fmt.Sprintf("not started for %d s: kubectl -n %s describe pod %s says why",
		slowStart/time.Second, a.in.Job.Namespace, pod.Name), time.Time{}
}

func (a *attemptReader) timeout(pod *Pod) time.Duration { return task.PodTimeout(a.in.Job, pod.Runs) }

func (a *attemptReader) deadline(pod *Pod) time.Time {
	return pod.Created.Add(a.timeout(pod) + DeadlineSlack)
}

// sameMachine reports whether the effects of the attempt are still on the node: the pod was created for this Node
// object, or for an earlier one of the same boot of the same machine. If a machine is reinstalled in place, its Node
// object can stay the same. Then rerun.onMachineChange decides whether that matters.
func sameMachine(job *v1alpha1.NodeJob, pod *Pod, node *Node) bool {
	if pod.NodeUID == node.UID {
		return !onMachineChange(job) || !differ(task.MachineID(pod.Machine), node.MachineID)
	}
	return node.BootID != "" && pod.Machine == task.Machine(node.MachineID, node.BootID)
}

// needsFinalizerRemoval reports whether the pod has the finalizer of Everynode, or its deletion was never requested.
func needsFinalizerRemoval(pod *Pod) bool {
	return pod.Finalized || pod.DeleteRequested.IsZero()
}

// end is how an attempt ended.
type end struct {
	outcome record.Outcome
	reason  string
	message string
	// answer is that of the check before the task, if the task has not run; "" otherwise.
	answer record.Answer
}

// readEnd distinguishes success, failure and disruption. In case of doubt it is a disruption, which is repeated and
// does not count as a failure.
func (a *attemptReader) readEnd(pod *Pod, node *Node) end {
	exit := pod.Exit
	if e, ok := a.answer(pod, node); ok {
		return e
	}
	if pod.succeeded() {
		e := end{outcome: record.Succeeded}
		if exit != nil {
			e.message = exit.Message
		}
		return e
	}
	if exit := pod.Exit; exit != nil && exit.reverted() {
		return end{outcome: record.Failed, reason: exit.Reason, message: exit.Message}
	}
	if a.overran(pod) && !a.failedInTime(pod) {
		return end{outcome: record.Failed, reason: v1alpha1.ReasonDeadlineExceeded, message: firstOf(ownMessage(exit), pod.Waiting, exitMessage(exit), "the attempt took longer than its time limit")}
	}
	if why := disruption(pod, node); why != "" {
		reason := v1alpha1.ReasonDisrupted
		if pod.DisruptedReason == kube.EvictedByAPI {
			reason = v1alpha1.ReasonEvicted
		}
		return end{outcome: record.Disrupted, reason: reason, message: why}
	}
	return end{outcome: record.Failed, reason: failureReason(exit), message: exit.Message}
}

// overran reports whether the pod was ended because its time was over.
func (a *attemptReader) overran(pod *Pod) bool {
	return pod.PastDeadline || deletedAfter(pod, pod.Created.Add(a.timeout(pod)))
}

// failedInTime reports whether the task is known to have failed on its own within its time limit. A kubelet on a busy node can report the
// end of a container so late that it ends the pod because of its deadline in between.
func (a *attemptReader) failedInTime(pod *Pod) bool {
	exit := pod.Exit
	return exit != nil && !exit.interrupted() && failedBefore(exit, pod.Created.Add(a.timeout(pod)))
}

// deletedAfter reports whether the deletion of the pod was requested at that time or later. To recognize that Everynode
// itself deleted an overdue pod, compare with the time limit and not with the deadline, which is the time of the
// request: the deletion timestamp is the time of the API server, whose clock may be behind the clock of the manager.
func deletedAfter(pod *Pod, at time.Time) bool {
	return !pod.DeleteRequested.IsZero() && !pod.DeleteRequested.Before(at)
}

// disruption says what ended the pod other than the task itself, or "".
func disruption(pod *Pod, node *Node) string {
	exit := pod.Exit
	switch {
	case exit == nil || exit.Lost:
		return firstOf(joined(pod.StatusReason, pod.StatusMessage), joined(pod.DisruptedReason, ""), "the pod ended before its container reported how")
	case exit.interrupted():
		return interruption(pod)
	case !pod.Disrupted.IsZero() && !failedBefore(exit, pod.Disrupted):
		return firstOf(joined(pod.DisruptedReason, pod.StatusMessage), "the pod was disrupted")
	case !pod.DeleteRequested.IsZero() && !failedBefore(exit, pod.DeleteRequested):
		return "the pod was deleted while the task ran"
	case inAnotherBoot(pod, node) && !exit.Reported:
		return "the node rebooted while the task ran"
	}
	return ""
}

// interrupted reports whether the runner says that it has not run the task to its end.
func (e *Exit) interrupted() bool {
	return e.Reason == outcome.ReasonDisrupted || e.Reason == outcome.ReasonFilesChanged
}

// inAnotherBoot reports whether the node is in another boot than when the pod was created, so its kubelet may know less about the pod.
func inAnotherBoot(pod *Pod, node *Node) bool {
	return node.BootID != "" && pod.Machine != task.Machine(node.MachineID, node.BootID)
}

// interruption says what the runner reports about an attempt that it has not run to its end.
func interruption(pod *Pod) string {
	if exit := pod.Exit; exit.Reason == outcome.ReasonFilesChanged {
		return firstOf(exit.Message, "the files of the task have changed")
	}
	return firstOf(joined(pod.DisruptedReason, pod.StatusMessage), "the task was interrupted by a signal from outside")
}

// failedBefore reports whether a task is known to have failed on its own before t. The exit code of a container alone
// does not prove it: its finish time is from the clock of the node, and t is from the clock of the API server.
func failedBefore(exit *Exit, t time.Time) bool { return exit.Reported && exit.Finished.Before(t) }

// failureReason is the reason that the task reports, which the outcome restricts to a closed set, or one of the few
// reasons of the container runtime that say more than an exit code.
func failureReason(exit *Exit) string {
	switch {
	case exit.Reported && exit.Reason == outcome.ReasonTimedOut:
		return v1alpha1.ReasonDeadlineExceeded
	case exit.Reported && exit.Reason != "":
		return exit.Reason
	case !exit.Reported && slices.Contains(runtimeReasons, exit.Reason):
		return exit.Reason
	}
	return outcome.ReasonTaskFailed
}

// runtimeReasons are the termination reasons of a container that a user can act on.
var runtimeReasons = []string{"OOMKilled", "StartError", "ContainerCannotRun"}

// ended creates the record of an end.
func (a *attemptReader) ended(pod *Pod, node *Node, e end) podAssessment {
	e = a.ofCheck(pod, e)
	switch {
	case pod.Runs.AsksDone():
		return a.answeredWhenDone(pod, node, e)
	case pod.Runs == task.CheckExpires:
		r := a.expiryAnswered(pod, node, e)
		return podAssessment{disposition: podEnded, record: &r, message: e.message}
	}
	r := a.recordOf(pod, node, e)
	switch pod.Runs {
	case task.Rollback:
		if !undoable(pod, node) {
			return podAssessment{disposition: podOrphaned}
		}
		r = a.rollbackEnded(pod, node, r)
	case task.Check:
		r = a.checked(pod, node, r)
	case task.Reboot: // see assessRebootPod
	case task.CheckBefore, task.CheckDrift, task.CheckExpires: // below, and above
	case task.Task:
		if e.outcome == record.Succeeded && a.reboots(pod) {
			r = a.rebooting(pod, node, r)
		}
		a.reverted(pod, &r)
	}
	r = a.answered(pod, node, r, e.answer)
	return podAssessment{disposition: podEnded, record: &r, message: e.message}
}

// recordOf returns what is recorded of an attempt.
func (a *attemptReader) recordOf(pod *Pod, node *Node, e end) record.Record {
	before := a.failuresBefore(pod, node)
	r := record.Record{
		Revision:  pod.Revision,
		Digest:    a.digestOf(pod.Revision, node.On.Record),
		Outcome:   e.outcome,
		Attempts:  before + 1,
		Reason:    e.reason,
		Message:   e.message,
		BootID:    firstOf(task.BootID(pod.Machine), node.BootID),
		MachineID: node.MachineID,
		Retry:     pod.Retry,
		ChangedBy: pod.ChangedBy,
		Inputs:    pod.Inputs,
		PodUID:    pod.UID,

		OutsideWindow: pod.OutsideWindow,

		FirstStartedAt: a.firstStart(node, pod.Revision),
	}
	prev := node.On.Record
	if prev != nil {
		r.RemovedLabels, r.Expiry = prev.RemovedLabels, a.expiryOf(node, pod.Revision)
		r.Cordoned = prev.Cordoned && a.cordonedForUs(node) // until it succeeds
	}
	known := &Exit{}
	if exit := pod.Exit; exit != nil && !exit.Lost {
		known = exit
		r.ExitCode = &exit.Code
		r.Results, r.Truncated = exit.Results, exit.Truncated
	}
	if pod.Runs == task.Task {
		r = a.recordOfTask(pod, node, r)
	}
	r.Archives = archivesOf(pod, known)
	r.StartedAt, r.FinishedAt = a.times(pod, known)
	if e.outcome == record.Disrupted {
		a.countDisruption(&r, pod, node, before)
	}
	if e.reason == v1alpha1.ReasonEvicted {
		r.BootID = firstOf(node.BootID, r.BootID) // the pod may be for an older boot: in doubt, the node has not rebooted since then
	}
	return r
}

// recordOfTask completes the record of a pod of the task.
func (a *attemptReader) recordOfTask(pod *Pod, node *Node, r record.Record) record.Record {
	if a.in.Job.Spec.Task.Template != nil {
		r.Images = pod.Images
	}
	reported := pod.Exit != nil && pod.Exit.Reported
	if pod.NotStarted && r.Outcome != record.Succeeded && (reported || !inAnotherBoot(pod, node)) {
		return a.notStarted(node, r)
	}
	return r
}

// notStarted completes the record of an attempt that has not started the task. What earlier attempts did on the node remains to be rolled
// back: those of this run if it fails, and all of them when the NodeJob is deleted, or the task expires.
func (a *attemptReader) notStarted(node *Node, r record.Record) record.Record {
	prev := node.On.Record
	if prev == nil || a.replaced(node) || prev.NeverStarted {
		r.NeverStarted = true
		return r
	}
	r.NotStarted = prev.Outcome.Done() || prev.NotStarted || !prev.HasRun(r.Revision)
	if rb := prev.Rollback; rb != nil && rb.Outcome == record.Succeeded {
		r.Rollback, r.NotStarted = rb, true
	}
	return r
}

// archivesOf says what became of the output of a pod, if it was to be archived. The location is that of the pod, since a node
// reports only what it did.
func archivesOf(pod *Pod, exit *Exit) record.Archives {
	if pod.Archive == "" {
		return nil
	}
	return record.Archives{record.ArchiveOf(string(pod.Runs), pod.Archive, exit.Archive)}
}

// firstStart is when the revision first started on the machine, if an attempt of it is on record; zero otherwise.
func (a *attemptReader) firstStart(node *Node, revision string) time.Time {
	rec := node.On.Record
	if rec == nil || !rec.HasRun(revision) || a.replaced(node) {
		return time.Time{}
	}
	return rec.BeganAt()
}

// countDisruption turns a record into the record of a disruption, which may be one of several in a row.
func (a *attemptReader) countDisruption(r *record.Record, pod *Pod, node *Node, failures int32) {
	r.Rerun, r.Attempts = a.isRerun(node, pod.Revision), failures
	r.Disruptions, r.DisruptedSince = 1, a.recordedAt()
	prev := node.On.Record
	if prev == nil || prev.Revision != pod.Revision || prev.Outcome != record.Disrupted {
		return
	}
	r.Disruptions = prev.Disruptions + 1
	if prev.Retry == pod.Retry && !prev.RetryRequested && !prev.DisruptedSince.IsZero() {
		r.DisruptedSince = prev.DisruptedSince.Add(a.idle(prev, pod))
	}
}

// idle is how long nothing ran on a node before a pod, although an attempt could have: the NodeJob was suspended, no manager ran, or a budget
// was frozen. That is not the time of the node.
func (a *attemptReader) idle(prev *record.Record, pod *Pod) time.Duration {
	return max(0, pod.Created.Sub(a.after(prev.EndedAt(), prev.Disruptions)))
}

// failuresBefore is the number of failures that count before the attempt of a pod. It is lower than when the attempt
// started if the record was removed from the node since then: attempts are then counted from the beginning.
func (a *attemptReader) failuresBefore(pod *Pod, node *Node) int32 {
	if pod.Runs != task.Task && !pod.Runs.Asks() {
		return pod.Attempt - 1
	}
	rec := node.On.Record
	if rec == nil || rec.Revision != pod.Revision || rec.Retry != pod.Retry || rec.RetryRequested || a.replaced(node) || rec.Outcome.Done() {
		return 0
	}
	return min(pod.Attempt-1, rec.Attempts)
}

// ownMessage is what the task itself reported.
func ownMessage(exit *Exit) string {
	if exit == nil || exit.Lost {
		return ""
	}
	return exit.Message
}

func exitMessage(exit *Exit) string {
	if exit == nil {
		return ""
	}
	return exit.Message
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func joined(reason, message string) string {
	if reason == "" || message == "" {
		return reason
	}
	return reason + ": " + message
}
