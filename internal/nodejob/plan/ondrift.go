// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
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
	w.nonCompliant = !is.NoSince.IsZero()
	switch {
	case w.State != Done:
	case !is.ErrorSince.IsZero():
		as.noteDriftError(w, is)
	case w.nonCompliant:
		message := driftText(rec)
		if line := lastLine(is.Message); line != "" {
			message += ": " + line
		}
		reason := v1alpha1.ReasonDrifted
		if task.IsAudit(as.in.Job) {
			reason = v1alpha1.ReasonNonCompliant
		}
		w.explain(reason, message)
	}
}

// mayHaveDrifted reports whether the answers of a node count: its check is asked, and it is done, or runs the task again.
func (as *assessor) mayHaveDrifted(w *nodePlan) bool {
	rec := w.node.On.Record
	if task.DriftPeriod(as.in.Job) == 0 && !task.IsAudit(as.in.Job) || rec == nil || as.replaced(w.node) {
		return false
	}
	isAsked := w.State == Waiting || w.State == Running
	return w.State == Done || isAsked && rec.Revision == as.in.Revision && !task.IsAudit(as.in.Job)
}

// noteDriftError notes a node that is done, and whose check itself fails.
func (as *assessor) noteDriftError(w *nodePlan, is record.Asked) {
	why := checkErrorText(is.ExitCode, is.Message)
	w.explain(v1alpha1.ReasonCheckError, fmt.Sprintf("task.check itself has failed since %s: %s", is.ErrorSince.UTC().Format(time.RFC3339), why))
	w.findings().askError, w.findings().askErrorStalls = why, as.losesPatience(is.ErrorSince)
}

// countChecks counts what task.check says of a node.
func countChecks(c *v1alpha1.NodeCounts, w *nodePlan) {
	if w.nonCompliant {
		c.NonCompliant++
	}
	if w.found != nil && (w.found.checkError != "" || w.found.askError != "") {
		c.CheckErrors++
	}
}

// driftErrorMessage names the nodes that are done and whose check fails, and says what to do.
func (su *summarizer) driftErrorMessage() string {
	return checkErrorsMessage("task.check", su.driftErrors)
}

// driftMessage names the nodes on which the check answers no, and those whose check itself fails; "" if there are none.
func (su *summarizer) driftMessage() string {
	text := ""
	if n := len(su.nonCompliant); n > 0 {
		slices.SortFunc(su.nonCompliant, func(a, b *nodePlan) int { return strings.Compare(a.Name, b.Name) })
		names := make([]string, 0, maxNamed)
		for _, w := range su.nonCompliant[:min(n, maxNamed)] {
			names = append(names, w.Name)
		}
		if line := lastLine(driftOf(su.nonCompliant[0].node.On.Record).Message); line != "" {
			names[0] += ": " + line // only one, so that the status does not change with each answer of each node
		}
		if n > maxNamed {
			names = append(names, fmt.Sprintf("and %d more", n-maxNamed))
		}
		text = " (" + outcome.CleanHead(strings.Join(names, "; "), maxFailureMessage) + ")"
	}
	if len(su.driftErrors) > 0 {
		text += "; " + su.driftErrorMessage()
	}
	return text
}
