// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// before is what the record contains about the attempts before the last one.
func (e Explain) before(rec *record.Record) [][]text.Line {
	var told [][]text.Line
	name := "Before"
	from, missing := currentRun(rec)
	if missing > 0 {
		sentence := plural.Count(missing, "earlier failed attempt") + ", no longer on record"
		told, name = append(told, text.Wrap(label(name), text.Plain, sentence, e.Width)), ""
	}
	earlier, from := e.earlier(rec, from)
	for i, attempt := range earlier {
		said := e.earlierSentence(&attempt)
		switch {
		case !attempt.DriftedAt.IsZero():
			said += fmt.Sprintf("; task.check answered no at %s, and the task ran again", clock(e.Now, attempt.DriftedAt))
		case i < from && attempt.Revision == e.Job.Status.Revision:
			said += ", of an earlier run"
		}
		told, name = append(told, e.attempt(name, said, printedBy(&attempt))), ""
	}
	return told
}

// currentRun returns the index of the first earlier attempt that is of the same run as the last one, and the number of attempts that failed
// before in this run and that the record does not list.
func currentRun(rec *record.Record) (from int, missing int32) {
	failures := rec.Attempts
	if rec.Outcome != record.Disrupted && rec.CheckBefore == "" {
		failures-- // the last attempt itself
	}
	first := failures + 1
	for i := len(rec.Earlier) - 1; i >= 0; i-- {
		switch a := &rec.Earlier[i]; {
		case a.Rollback || a.Outcome == record.Disrupted:
		case a.Revision != rec.Revision || a.Outcome != record.Failed || a.Number >= first:
			return i + 1, first - 1
		default:
			first = a.Number
		}
	}
	return 0, first - 1
}

// earlier returns the attempts before the last one, except those whose pods still exist and say more, and the index of the first one of the
// current run, which is from in the record.
func (e Explain) earlier(rec *record.Record, from int) ([]record.Attempt, int) {
	earlier := slices.Clone(rec.Earlier)
	for i := range e.Pods {
		pod := &e.Pods[i]
		if pod.Exit == nil || rec.HasEndOf(pod.UID) {
			continue
		}
		for k, a := range slices.Backward(earlier) {
			if a.Revision == pod.Revision && a.Number == pod.Attempt && a.Rollback == (pod.Runs == task.Rollback) {
				earlier = slices.Delete(earlier, k, k+1)
				if k < from {
					from--
				}
				break
			}
		}
	}
	return earlier, from
}

// earlierSentence says how an earlier attempt ended, and when.
func (e Explain) earlierSentence(a *record.Attempt) string {
	what := fmt.Sprintf("attempt %d", a.Number)
	if a.Rollback {
		what += " of the rollback"
	}
	at := fmt.Sprintf(" at %s (%s ago)", clock(e.Now, a.FinishedAt), ago(e.Now, a.FinishedAt))
	if a.Outcome == record.Disrupted {
		what += " was disrupted" + at
		if a.Disruptions > 1 {
			what += fmt.Sprintf(", the last of %d disruptions in a row", a.Disruptions)
		}
		if a.Message != "" {
			what += ": " + a.Message // from the manager, not from the task
		}
		return what + e.ofRevision(a.Revision)
	}
	what += " " + strings.ToLower(string(a.Outcome)) + at
	if !a.StartedAt.IsZero() && !a.FinishedAt.IsZero() {
		what += " after " + a.FinishedAt.Sub(a.StartedAt).String()
	}
	return what + exited(a.ExitCode, a.Reason) + e.ofRevision(a.Revision)
}

// printedBy returns the end of the output of an earlier attempt.
func printedBy(a *record.Attempt) string {
	if a.Outcome == record.Disrupted {
		return "" // see earlierSentence
	}
	return a.Message
}

// saidBy returns the output of an attempt that has ended.
func saidBy(pod *plan.Pod) string {
	if pod.Exit == nil {
		return ""
	}
	return pod.Exit.Message
}
