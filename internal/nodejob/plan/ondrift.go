// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// task.check.periodSeconds and onDrift. A node that is done has drifted if task.check answers no. It stays done, with its label, so that
// what waits for the label does not flap:
//
//	done ──► no ──► drifted ──► Report: nothing else
//	  ▲                │   └──► Run: waits for its slot, budgets and windows, and runs the task again
//	  └──── yes ◄──────┘
//
// A check that fails itself is no answer: it neither begins nor ends a drift.

// repairs reports whether the task runs again on a node that is done because the node has drifted.
func (p *policy) repairs(rec *record.Record) bool {
	return task.DriftPeriod(p.in.Job) > 0 && p.in.Job.Spec.Task.Check.OnDrift == v1alpha1.DriftRun && !driftOf(rec).NoSince.IsZero()
}

func driftOf(rec *record.Record) record.Asked { return rec.Asked[record.QuestionCheck] }

// driftText says since when a node has drifted.
func driftText(rec *record.Record) string {
	return "task.check has answered no since " + driftOf(rec).NoSince.UTC().Format(time.RFC3339)
}

// askedBefore are the answers that stay on record with the next attempt: those that it has not made obsolete.
func askedBefore(node *Node, next *record.Record) record.Answers {
	prev := node.On.Record
	if next.IsAnswer() {
		return next.Asked // that of an audit
	}
	if prev == nil || prev.Revision != next.Revision || record.OtherMachine(prev, next) {
		return nil
	}
	switch next.Outcome {
	case record.Disrupted, record.Rebooting, record.Needed:
		return prev.Asked
	case record.Succeeded, record.Failed, record.Expired:
	}
	return nil
}

// assessDrift notes whether a node has drifted, and whether its check itself fails.
func (as *assessor) assessDrift(w *nodePlan) {
	rec := w.node.On.Record
	if !as.mayHaveDrifted(w) {
		return
	}
	is := driftOf(rec)
	w.drifted = !is.NoSince.IsZero()
	switch {
	case w.State != Done:
	case !is.ErrorSince.IsZero():
		as.noteDriftError(w, is)
	case w.drifted:
		message := driftText(rec)
		if line := lastLine(is.Message); line != "" {
			message += ": " + line
		}
		w.explain(v1alpha1.ReasonDrifted, message)
	}
}

// mayHaveDrifted reports whether the answers of a node count: its check is asked, and it is done, or runs the task again.
func (as *assessor) mayHaveDrifted(w *nodePlan) bool {
	rec := w.node.On.Record
	if task.DriftPeriod(as.in.Job) == 0 && !task.IsAudit(as.in.Job) || rec == nil || as.replaced(w.node) {
		return false
	}
	return w.State == Done || (w.State == Waiting || w.State == Running) && rec.Revision == as.in.Revision
}

// noteDriftError notes a node that is done, and whose check itself fails.
func (as *assessor) noteDriftError(w *nodePlan, is record.Asked) {
	why := checkErrorText(is.ExitCode, is.Message)
	w.explain(v1alpha1.ReasonCheckError, fmt.Sprintf("task.check itself has failed since %s: %s", is.ErrorSince.UTC().Format(time.RFC3339), why))
	w.findings().askError, w.findings().askErrorStalls = why, as.losesPatience(is.ErrorSince)
}

// countChecks counts what task.check says of a node.
func countChecks(c *v1alpha1.NodeCounts, w *nodePlan) {
	if w.drifted {
		c.Drifted++
	}
	if w.found != nil && (w.found.checkError != "" || w.found.askError != "") {
		c.CheckErrors++
	}
}

// driftErrorMessage names the nodes that are done and whose check fails, and says what to do.
func (su *summarizer) driftErrorMessage() string {
	return checkErrorsMessage("task.check", su.driftErrors)
}

// driftMessage names the nodes that have drifted, and those whose check itself fails; "" if there are none.
func (su *summarizer) driftMessage() string {
	text := ""
	if len(su.drifted) > 0 {
		text = " (" + named(su.drifted) + ")"
	}
	if len(su.driftErrors) > 0 {
		text += "; " + su.driftErrorMessage()
	}
	return text
}
