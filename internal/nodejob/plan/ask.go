// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// Questions that nodes that are done are asked from time to time, each in a pod of its own:
//
//	done ──► due ──► pod ──► yes, no, failed, or disrupted: one patch of the record ──► due again
//
// A pod that asks changes nothing on its node: it takes no slot, claims no budget, and the node stays done with its label. Only the
// answer is added to the record. What an answer means is decided elsewhere: see ondrift.go.

// question is what nodes that are done are asked.
type question struct {
	name  record.Question
	phase task.Phase
	// period is how often each node is asked, in seconds.
	period int32
}

// questionOf are the questions by the phase of the pods that ask them.
var questionOf = map[task.Phase]record.Question{task.CheckDrift: record.QuestionCheck}

// questions are those of the NodeJob. Of two that are due, the first one is asked first.
func (p *policy) questions() []question {
	if period := task.DriftPeriod(p.in.Job); period > 0 {
		return []question{{record.QuestionCheck, task.CheckDrift, period}}
	}
	return nil
}

// dueQuestion is a question that is due on a node.
type dueQuestion struct {
	question
	since time.Time
}

// isAsked reports whether a node has a record to which answers are added: that of the success that its label says.
func (j *job) isAsked(node *Node) bool {
	return node.On.HasLabelOfSuccess() && !j.replaced(node) && j.in.Job.DeletionTimestamp.IsZero()
}

// awaitsAnswer reports whether the answer of a pod that asks a node that is done still matters.
func (a *attemptReader) awaitsAnswer(pod *Pod, node *Node) bool {
	return pod.Revision == a.in.Revision && a.isAsked(node) &&
		slices.ContainsFunc(a.questions(), func(q question) bool { return q.phase == pod.Runs })
}

// answeredWhenDone adds the answer of a pod to the record of a node that is done. Nothing else of the record changes.
func (a *attemptReader) answeredWhenDone(pod *Pod, node *Node, e end) podAssessment {
	is := record.Asked{Answer: e.answer, At: a.recordedAt(), Message: outcome.Clean(e.message, outcome.MaxMessageBytes), PodUID: pod.UID}
	if exit := pod.Exit; exit != nil && !exit.Lost {
		is.ExitCode = &exit.Code
	}
	if !pod.ended() && node.unreachable() {
		is.Answer = record.AnswerNone // this says nothing about the question itself
	}
	r, name := *node.On.Record, questionOf[pod.Runs]
	r.Asked = r.Asked.With(name, r.Asked[name].Next(is))
	return podAssessment{disposition: podEnded, record: &r, message: e.message}
}

// dueAt is when a node that is done is asked next: at its own fixed time in each period, or after the backoff if it has not
// answered.
func (p *policy) dueAt(rec *record.Record, node types.UID, q question) time.Time {
	was, last := rec.Asked[q.name], p.past(rec.EndedAt())
	last = later(last, p.past(was.At))
	due := slotAfter(last.Add(time.Second), q.period, p.key+"/"+string(q.name), node)
	if was.Unanswered > 0 {
		return earlier(due, p.past(was.At).Add(p.backoff(was.Unanswered)))
	}
	return due
}

// assessQuestions determines what a node is asked now, and wakes the plan when something is due.
func (as *assessor) assessQuestions(w *nodePlan) {
	if !as.mayAsk(w) {
		return
	}
	for _, q := range as.questions() {
		due := as.dueAt(w.node.On.Record, w.node.UID, q)
		if as.in.Now.Before(due) {
			as.plan.wake(due) // also if a taint keeps pods off the node now: see NodeChange.isIgnoredBy
			continue
		}
		if as.untolerated(w.node, as.tolerations) != nil {
			continue
		}
		b := as.startBlock(startRequest{phase: q.phase, node: w.node, terminating: w.terminating})
		if !b.blocks() {
			w.asks = &dueQuestion{q, due}
			return
		}
		w.note(b)
		w.unasked = true
		as.plan.wake(b.Until)
	}
}

// mayAsk reports whether a node is asked questions: it is done, or waits for its turn to run the task because it has drifted.
func (as *assessor) mayAsk(w *nodePlan) bool {
	waits := w.State == Waiting && w.nonCompliant && !as.isPrepared(w.node) && !as.in.Budgets[w.node.UID].Claimed
	return (w.State == Done || waits) && !w.isBusy() && as.isAsked(w.node)
}

// isBusy reports whether something else happens on the node now, or is being asked.
func (w *nodePlan) isBusy() bool {
	return w.slot || w.checking || w.written || w.expiring || w.start.phase == task.CheckExpires
}

// askQuestions starts the pods that ask nodes that are done, the longest due first, unless too many run, or one start must show
// whether an obstacle still exists.
func (p *planner) askQuestions() {
	var due []*nodePlan
	for i := range p.nodes {
		if w := &p.nodes[i]; w.asks != nil && !w.slot && !w.claims && !w.preparing && !w.checking {
			due = append(due, w)
		}
	}
	slices.SortFunc(due, func(a, b *nodePlan) int {
		return cmp.Or(a.asks.since.Compare(b.asks.since), cmp.Compare(a.Name, b.Name))
	})
	for _, w := range due {
		phase, c := w.asks.phase, p.capacity
		if c.checking >= maxChecksBefore || p.obstacleFor(phase) != nil && c.startsLike(phase) > 0 {
			w.unasked = true
			continue
		}
		p.startQuestion(w, p.attempt(w.node, start{phase, 1}, p.in.Revision))
	}
}
