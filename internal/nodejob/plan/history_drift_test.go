// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"math/rand"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// This file defines what a history knows about questions that nodes are asked when they are done.

const (
	// driftPeriod is how often they are asked.
	driftPeriod = time.Minute
	// driftSlack is how long it may take after that until a manager asks: it plans every 5 seconds at the end of a history.
	driftSlack = 15 * time.Second
)

// drifting is what a history knows of the questions.
type drifting struct {
	// watches is true in histories that ask nodes that are done.
	watches bool
	// luck is the random source for this file, so that other histories do not change.
	luck *rand.Rand
	// no says on which run (node UID, machine, revision) the last answer on record is a no, without a yes or a run since.
	no map[string]bool
	// idle is since when each node could have been asked and was not.
	idle map[types.UID]time.Time
	// asked counts the questions that have started.
	asked int
}

// someDrift lets every seventh history ask nodes that are done, except those that are kept. Half of them run the task again.
func (h *history) someDrift(seed int64) {
	h.drifting = drifting{luck: rand.New(rand.NewSource(seed ^ 37)), no: map[string]bool{}, idle: map[types.UID]time.Time{}}
	if h.watches = (seed%7+7)%7 == 3 && h.job.Spec.Task.Template == nil && !slices.Contains(kept, seed); !h.watches {
		return
	}
	if h.job.Spec.Task.Check == nil {
		h.job.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
	}
	check := h.job.Spec.Task.Check
	if check.PeriodSeconds = int32(driftPeriod / time.Second); h.luck.Intn(2) == 0 {
		check.OnDrift = v1alpha1.DriftRun
		for i := range h.job.Spec.Rollout.Steps {
			h.job.Spec.Rollout.Steps[i].SoakSeconds = 0 // the oracle of soaks does not know reruns
		}
	}
}

// repairs reports whether the task runs again on a node that has drifted.
func (h *history) repairs() bool {
	check := h.job.Spec.Task.Check
	return h.watches && check != nil && check.PeriodSeconds > 0 && check.OnDrift == v1alpha1.DriftRun
}

// answersDrift ends a pod that asks a node that is done; false for another pod.
func (h *history) answersDrift(pod *simPod, node *Node) bool {
	if pod.Runs != task.CheckDrift {
		return false
	}
	if h.isBad(node) || pod.answer == "" { // a compromised node says what it likes
		switch luck := h.luck.Intn(8); {
		case luck < 4 || !h.faults:
			pod.answer = saysYes
		case luck == 4:
			pod.answer = saysError
		default:
			pod.answer = saysNo
		}
	}
	pod.Started, pod.endedAt = h.by(node), h.now
	code := map[string]int32{saysYes: 0, saysNo: 2, saysError: 75}[pod.answer]
	pod.Phase, pod.Exit = corev1.PodFailed, &Exit{Code: code, Finished: h.by(node), Reported: true, Reason: outcome.ReasonTaskFailed}
	if code == 0 {
		pod.Phase, pod.Exit.Reason = corev1.PodSucceeded, ""
	}
	h.say("the check of pod %s for drift on %s says %s", pod.Name, node.Name, pod.answer)
	h.openGap(pod)
	return true
}

// checkQuestion checks that only a node that is done is asked.
func (h *history) checkQuestion(seen *Node, revision string) {
	h.asked++
	rec := seen.On.Record
	if !h.watches || rec == nil || rec.Outcome != record.Succeeded || seen.On.Label != rec.Revision || revision != h.rev {
		h.break_("drift", "%s is asked, and is not done", seen.Name)
	}
}

// checkDriftAnswer checks what is recorded of a question: the answer, and nothing else.
func (h *history) checkDriftAnswer(node *Node, a Record, pod *simPod) {
	was, is := h.seen[node.Name].On.Record, a.Record.Asked[record.QuestionCheck]
	rest := *a.Record
	rest.Asked = was.Asked
	if !cmp.Equal(rest, *was) || !a.KeepLabel || a.DropLabel || a.Shared() || a.Final {
		h.break_("drift", "an answer of %s changes more than the answer", node.Name)
	}
	if h.isBad(node) {
		return
	}
	late := !h.now.Before(pod.Created.Add(task.Timeout(h.job, pod.Runs)))
	switch {
	case is.Answer == record.AnswerYes && pod.answer != saysYes, is.Answer == record.AnswerNo && pod.answer != saysNo,
		is.Answer == record.AnswerError && pod.answer != saysError && !late:
		h.break_("drift", "%s is recorded on %s, and the check has said %q", is.Answer, node.Name, pod.answer)
	case is.Answer == record.AnswerNo && is.NoSince.IsZero(), is.Answer == record.AnswerYes && !is.NoSince.IsZero(),
		is.Answer == record.AnswerError && was.Asked[record.QuestionCheck].NoSince != is.NoSince:
		h.break_("drift", "the answer %s of %s dates the drift from %v", is.Answer, node.Name, is.NoSince)
	}
	key := run(node, was.Revision)
	switch is.Answer {
	case record.AnswerYes:
		delete(h.no, key)
		h.endsRun(key)
	case record.AnswerNo:
		h.no[key] = true
		if h.repairs() { // the task needs no other no
			h.beginsRun(key)
		}
	case record.AnswerError, record.AnswerNone:
	}
}

// isAnswer reports whether a record adds an answer to the one before, which may be nil.
func isAnswer(was, is *record.Record) bool {
	return was != nil && was.PodUID == is.PodUID && !cmp.Equal(was.Asked, is.Asked)
}

// checkIdle checks that each node that could be asked is asked within its period.
func (h *history) checkIdle(in Input, p Plan) {
	started := map[types.UID]bool{}
	for _, action := range p.Actions {
		if start, is := action.(Start); is {
			started[start.Attempt.NodeUID] = true
		}
	}
	for i := range in.Nodes {
		node := &in.Nodes[i]
		if !h.couldBeAsked(in, node) || started[node.UID] {
			delete(h.idle, node.UID)
			continue
		}
		if h.idle[node.UID].IsZero() {
			h.idle[node.UID] = h.now
		}
		if since := h.idle[node.UID]; h.now.After(since.Add(driftPeriod + driftSlack + clockStep)) {
			h.break_("drift", "%s could be asked since %s and is not", node.Name, since.Format("15:04:05"))
		}
	}
}

// couldBeAsked reports whether nothing prevents that a node is asked.
func (h *history) couldBeAsked(in Input, node *Node) bool {
	rec := node.On.Record
	check := in.Job.Spec.Task.Check
	_, problem := in.NodeProblems[node.UID]
	asks := h.watches && check != nil && check.PeriodSeconds > 0 && !h.isScheduled() && in.Job.DeletionTimestamp.IsZero() &&
		!in.Job.Spec.Suspend
	starts := in.Obstacle == nil && in.RunnerRefused == nil && in.NotAllowed == nil && !problem && in.BusyNodes[node.Name].IsZero() &&
		!slices.ContainsFunc(in.Pods, func(pod Pod) bool { return pod.NodeName == node.Name })
	responds := h.selected(node) && !barred(node) && !h.isBad(node) && !silent(node) && !node.Deleting && node.Ready != "" &&
		!h.lacksValue(node)
	done := rec != nil && rec.Outcome == record.Succeeded && node.On.Label == rec.Revision && rec.Revision == h.rev && h.isDone(node)
	return asks && starts && responds && done
}

// nothingToAsk reports whether the rollout is over, and no node could be asked.
func (h *history) nothingToAsk() bool {
	return h.ended() &&
		!slices.ContainsFunc(slices.Collect(maps.Values(h.nodes)), func(node *Node) bool { return !h.idle[node.UID].IsZero() })
}

// hasDrifted reports whether a node runs the task again because of the last answer on record.
func (h *history) hasDrifted(rec *record.Record) bool {
	return h.repairs() && !rec.Asked[record.QuestionCheck].NoSince.IsZero()
}
