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

// Event is what the cluster keeps of an attempt on a node for a while.
type Event struct {
	At time.Time
	// Count is how many there were of the kind, the last at Until: a cluster keeps the words of the first.
	Count int32
	Until time.Time
	record.Ended
}

// before is what is known of the attempts before the last.
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

// earlier are the events of attempts that neither the record nor a pod tells of.
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

// lastEnd is when the attempt ended that is on record; zero when none is.
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

// tell is an event as a sentence, and what the attempt printed.
func (e Explain) tell(event Event) (sentence, printed string) {
	sentence, printed = event.Sentence(), event.Said
	if event.Next == "" && printed != "" { // the manager's words, not the task's
		sentence, printed = sentence+": "+printed, ""
	}
	sentence += fmt.Sprintf(", at %s (%s ago)", clock(e.Now, event.At), ago(e.Now, event.At))
	if event.Count > 1 {
		sentence += fmt.Sprintf(", and %d more like it until %s (%s ago)", event.Count-1, clock(e.Now, event.Until), ago(e.Now, event.Until))
	}
	return sentence, printed
}

// saidBy is what an attempt printed that has ended.
func saidBy(pod *plan.Pod) string {
	if pod.Exit == nil {
		return ""
	}
	return pod.Exit.Message
}
