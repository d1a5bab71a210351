// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// Event is an event about an attempt on a node, which the cluster retains for a limited time.
type Event struct {
	At time.Time
	// Count is the number of events of this kind, the last of them at Until. The cluster retains the message of the first
	// one.
	Count int32
	Until time.Time
	record.Ended
}

// before is what is known about the attempts before the last one.
func (e Explain) before(rec *record.Record) [][]text.Line {
	var told [][]text.Line
	name := "Before"
	earlier := e.earlier(rec)
	if rec != nil && rec.Attempts > 1 && rec.Outcome != record.Disrupted {
		sentence := plural(rec.Attempts-1, "attempt") + " failed before it"
		if len(earlier) == 0 && e.EventsUnknown == "" {
			sentence += ", of which the cluster keeps no events any more"
		}
		told, name = append(told, text.Wrap(label(name), text.Plain, sentence, e.Width)), ""
	}
	for _, event := range earlier {
		sentence, printed := e.tell(event)
		told, name = append(told, e.attempt(name, sentence, printed)), ""
	}
	return told
}

// earlier returns the events about attempts for which there is neither a record nor a pod.
func (e Explain) earlier(rec *record.Record) []Event {
	var earlier []Event
	for _, event := range e.Events {
		byPod := slices.ContainsFunc(e.Pods, func(p plan.Pod) bool {
			return p.Exit != nil && event.Rollback == (p.Runs == task.Rollback) && event.Attempt == p.Attempt
		})
		if last := lastEnd(rec, event.Rollback); !byPod && (last.IsZero() || event.At.Before(last)) {
			earlier = append(earlier, event)
		}
	}
	return earlier
}

// lastEnd returns when the recorded attempt ended; zero if there is none.
func lastEnd(rec *record.Record, rollback bool) time.Time {
	switch {
	case rec == nil:
		return time.Time{}
	case !rollback:
		return rec.FinishedAt
	case rec.Rollback != nil:
		return rec.Rollback.FinishedAt
	}
	return time.Time{}
}

// tell describes an event in a sentence, with the output of the attempt.
func (e Explain) tell(event Event) (sentence, printed string) {
	sentence, printed = event.Sentence(), event.Said
	if event.Next == "" && printed != "" { // the text is from the manager, not from the task
		sentence, printed = sentence+": "+printed, ""
	}
	sentence += fmt.Sprintf(", at %s (%s ago)", clock(e.Now, event.At), ago(e.Now, event.At))
	if event.Count > 1 {
		sentence += fmt.Sprintf(", and %d more like it until %s (%s ago)", event.Count-1, clock(e.Now, event.Until), ago(e.Now, event.Until))
	}
	return sentence, printed
}

// saidBy returns the output of an attempt that has ended.
func saidBy(pod *plan.Pod) string {
	if pod.Exit == nil {
		return ""
	}
	return pod.Exit.Message
}
