// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/outcome"
)

// Question is what a node that is done is asked from time to time.
type Question string

// QuestionCheck is task.check.
const QuestionCheck Question = "check"

// questions are all keys of Record.Asked.
var questions = []Question{QuestionCheck}

// maxAskedMessage limits Asked.Message, in bytes.
const maxAskedMessage = 512

// Asked is the last answer to a question.
type Asked struct {
	// Answer is the last one.
	Answer Answer `json:"answer"`
	// At is when the answer was recorded, in whole seconds of the API server's clock, rounded up.
	At time.Time `json:"at"`
	// NoSince is when the first no was recorded since the last yes; zero if there is none. A question that fails itself does not
	// change it.
	NoSince time.Time `json:"noSince,omitzero"`
	// Unanswered counts the questions in a row that have failed themselves, or were disrupted, and ErrorSince is when the first of
	// them that has failed itself was recorded.
	Unanswered int32     `json:"unanswered,omitempty"`
	ErrorSince time.Time `json:"errorSince,omitzero"`
	// ExitCode is nil if the question did not end on its own, or for a yes.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Message is the end of the output, or why the question did not end on its own: at most 512 bytes. "" for a yes.
	Message string `json:"message,omitempty"`
	// PodUID is the pod that asked.
	PodUID types.UID `json:"podUID"`
}

// Next returns the answer that follows a, which is the zero value if the question was not asked before. It sets what depends on
// earlier answers.
func (a Asked) Next(is Asked) Asked {
	is.NoSince, is.ErrorSince = a.NoSince, a.ErrorSince
	switch is.Answer {
	case AnswerYes:
		return Asked{Answer: AnswerYes, At: is.At, PodUID: is.PodUID}
	case AnswerNo:
		is.NoSince, is.ErrorSince = firstTime(is.NoSince, is.At), time.Time{}
	case AnswerError:
		is.Unanswered, is.ErrorSince = a.Unanswered+1, firstTime(is.ErrorSince, is.At)
	case AnswerNone:
		is.Unanswered = a.Unanswered + 1
	}
	return is
}

// bounded returns the answer with all fields limited, and false if no manager has written it.
func (a Asked) bounded() (Asked, bool) {
	a.At, a.NoSince, a.ErrorSince = wholeSeconds(a.At), wholeSeconds(a.NoSince), wholeSeconds(a.ErrorSince)
	a.Message, a.PodUID = outcome.Clean(a.Message, maxAskedMessage), types.UID(outcome.Clean(string(a.PodUID), 64))
	a.Unanswered = min(max(a.Unanswered, 0), maxCount)
	return a, slices.Contains(answers, a.Answer)
}

// Answers are the last answers to the questions that a node that is done is asked.
type Answers map[Question]Asked

// UnmarshalJSON drops what it cannot read, as that of Attempts does.
func (a *Answers) UnmarshalJSON(b []byte) error {
	type plain Answers
	var read plain
	if json.Unmarshal(b, &read) != nil {
		read = nil
	}
	*a = Answers(read)
	return nil
}

// With returns the answers with another one. It does not change a.
func (a Answers) With(q Question, is Asked) Answers {
	next := Answers{q: is}
	for other, was := range a {
		if other != q {
			next[other] = was
		}
	}
	return next
}

// of returns the answer of a pod.
func (a Answers) of(pod types.UID) (Asked, bool) {
	for _, is := range a {
		if is.PodUID == pod {
			return is, true
		}
	}
	return Asked{}, false
}

// bounded returns the answers to known questions, limited. It does not share what it modifies.
func (a Answers) bounded() Answers {
	var known Answers
	for _, q := range questions {
		if is, ok := a[q].bounded(); ok {
			known = known.With(q, is)
		}
	}
	return known
}

// withoutMessages returns the answers without what only users read.
func (a Answers) withoutMessages() Answers {
	var short Answers
	for q, is := range a {
		is.Message = ""
		short = short.With(q, is)
	}
	return short
}

// AnswerOf returns when the answer of a pod was recorded; zero if it is not the last one.
func (r *Record) AnswerOf(pod types.UID) time.Time {
	is, _ := r.Asked.of(pod)
	return is.At
}

// Compliance is what is known of task.check on a node.
type Compliance struct {
	// Answer is the last one; "" if the check was not asked, except after the task.
	Answer Answer
	// AskedAt is when it was recorded; zero if there is none.
	AskedAt time.Time
	// DriftedSince is when the check first answered no, if it has not answered yes since; zero otherwise.
	DriftedSince time.Time
	// FailingSince is since when the check itself fails; zero if it does not.
	FailingSince time.Time
	// ExitCode and Message are those of the last answer: nil and "" for a yes. The message has at most 512 bytes.
	ExitCode *int32
	Message  string
}

// Compliance returns what is known of task.check on a node by its record, which may be nil. It does not know whether the check is still
// asked.
func (r *Record) Compliance() Compliance {
	if r == nil {
		return Compliance{}
	}
	if is, asked := r.Asked[QuestionCheck]; asked {
		return Compliance{is.Answer, is.At, is.NoSince, is.ErrorSince, is.ExitCode, is.Message}
	}
	c := Compliance{Answer: r.CheckBefore, AskedAt: r.EndedAt()}
	switch r.CheckBefore {
	case AnswerYes:
	case "":
		return Compliance{}
	case AnswerError:
		c.FailingSince = r.DisruptedSince
		fallthrough
	case AnswerNo, AnswerNone:
		c.ExitCode, c.Message = r.ExitCode, outcome.Clean(r.Message, maxAskedMessage)
	}
	return c
}
