// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// confirm confirms the node of a pod that runs, if it waits for that, and returns the reason and the message of its state.
//
// The kubelet reports that a pod waits only after the task has ended, so this report shows that the node still reaches the API
// server. The node must be Ready as well: a kubelet whose container runtime or network does not work any more can still report.
func (as *assessor) confirm(w *nodePlan, pod *Pod, v podAssessment) (reason, explained string) {
	node := w.node
	switch {
	case pod.Confirm && !pod.Confirming && !pod.Started.IsZero() && node.unreachable() && task.Confirms(as.in.Job, pod.Runs):
		text := fmt.Sprintf("not heard since %s: if the task has cut it off, it reverts by itself, %v after the end of the task, by %s at the latest",
			node.UnreachableSince.UTC().Format(time.RFC3339), task.ConfirmWindow(as.in.Job), v.until.UTC().Format(time.RFC3339))
		w.findings().unheard = text
		return v1alpha1.ReasonRunning, text
	case !pod.Confirming || !pod.DeleteRequested.IsZero():
		return v1alpha1.ReasonRunning, v.message
	case pod.Confirmed:
		return v1alpha1.ReasonConfirming, "the task has ended, and the node is confirmed"
	case node.Ready != corev1.ConditionTrue:
		return v1alpha1.ReasonConfirming, "the task has ended, and the node is not Ready: it runs the rollback by itself unless it is Ready in time (spec.confirm)"
	}
	as.do(Confirm{Pod: *pod})
	return v1alpha1.ReasonConfirming, "the task has ended, and the node is being confirmed"
}

// unheardMessage names up to three nodes that are not heard while they may wait for a confirmation; "" if there are none.
func (sb *statusBuilder) unheardMessage() string {
	var named []string
	for i := range sb.nodes {
		if w := &sb.nodes[i]; len(named) < maxNamed && w.found != nil && w.found.unheard != "" {
			named = append(named, "; "+w.Name+": "+w.found.unheard)
		}
	}
	return strings.Join(named, "")
}

// noteRevertFailed notes that the rollback has failed that the node has run by itself. Further rollbacks may follow, but the node may
// be unreachable for them, so users must know at once.
func (as *assessor) noteRevertFailed(w *nodePlan) {
	if rec := w.node.On.Record; rec.Reverted && rec.Rollback.Outcome == record.Failed {
		w.findings().unrecovered = rollbackFailure(w.node.Name, rec.Rollback)
	}
}

// reverted reports whether the node has run the rollback by itself after the task, and the attempt counts. A node whose pod was told
// to stop repeats the task.
func (e *Exit) reverted() bool {
	return e.RollbackExitCode != nil && e.Reported && !e.Lost && e.Reason != outcome.ReasonDisrupted
}

// reverted adds to the record of an attempt how the rollback ended that the node has run by itself. The node decides that, and is
// believed: a forged report harms only that node.
func (a *attemptReader) reverted(pod *Pod, r *record.Record) {
	exit := pod.Exit
	if exit == nil || !exit.reverted() || r.Outcome != record.Failed {
		return
	}
	code := int32(*exit.RollbackExitCode)
	rb := &record.Rollback{
		Outcome: record.Succeeded, Attempts: 1, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, RecordedAt: a.recordedAt(),
		ExitCode: &code, Retry: r.Retry, PodUID: pod.UID,
	}
	if code != 0 {
		rb.Outcome, rb.Reason, rb.Message = record.Failed, v1alpha1.ReasonRevertFailed, r.Message
	}
	r.Reverted, r.Rollback = true, rb
}
