// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestNextAnswer tests what an answer keeps of earlier ones.
func TestNextAnswer(t *testing.T) {
	first, second := at("12:00:00"), at("13:00:00")
	code := new(int32(1))
	no := record.Asked{Answer: record.AnswerNo, At: first, NoSince: first, ExitCode: code, Message: "no", PodUID: "1"}
	failed := record.Asked{Answer: record.AnswerError, At: first, NoSince: first, ErrorSince: first, Unanswered: 2, PodUID: "1"}
	for name, tt := range map[string]struct {
		was  record.Asked
		is   record.Answer
		want record.Asked
	}{
		"the first no begins a drift": {
			record.Asked{}, record.AnswerNo, record.Asked{Answer: record.AnswerNo, At: second, NoSince: second, ExitCode: code, Message: "said"},
		},
		"a second no continues it":       {no, record.AnswerNo, record.Asked{Answer: record.AnswerNo, At: second, NoSince: first, ExitCode: code, Message: "said"}},
		"a yes ends it, and has no more": {no, record.AnswerYes, record.Asked{Answer: record.AnswerYes, At: second}},
		"an error does not end it": {
			no, record.AnswerError,
			record.Asked{Answer: record.AnswerError, At: second, NoSince: first, ErrorSince: second, Unanswered: 1, ExitCode: code, Message: "said"},
		},
		"a disruption ends neither a drift nor an error": {
			failed, record.AnswerNone,
			record.Asked{Answer: record.AnswerNone, At: second, NoSince: first, ErrorSince: first, Unanswered: 3, ExitCode: code, Message: "said"},
		},
		"a no ends an error": {failed, record.AnswerNo, record.Asked{Answer: record.AnswerNo, At: second, NoSince: first, ExitCode: code, Message: "said"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.PodUID = "2"
			got := tt.was.Next(record.Asked{Answer: tt.is, At: second, ExitCode: code, Message: "said", PodUID: "2"})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCompliance tests what a record says of task.check.
func TestCompliance(t *testing.T) {
	ended, asked := at("12:00:00"), at("13:00:00")
	done := record.Record{Revision: "r", Outcome: record.Succeeded, RecordedAt: ended, Message: "ok"}
	with := func(is record.Asked) *record.Record {
		r := done
		r.Asked = r.Asked.With(record.QuestionCheck, is)
		return &r
	}
	before := func(o record.Outcome, answer record.Answer) *record.Record {
		r := done
		r.Outcome, r.CheckBefore, r.ExitCode, r.DisruptedSince = o, answer, new(int32(3)), ended
		return &r
	}
	for name, tt := range map[string]struct {
		is   *record.Record
		want record.Compliance
	}{
		"no record": {nil, record.Compliance{}},
		"not asked": {&done, record.Compliance{}},
		"drifted": {
			with(record.Asked{Answer: record.AnswerNo, At: asked, NoSince: ended, ExitCode: new(int32(1)), Message: "no"}),
			record.Compliance{Answer: record.AnswerNo, AskedAt: asked, DriftedSince: ended, ExitCode: new(int32(1)), Message: "no"},
		},
		"already done": {before(record.Succeeded, record.AnswerYes), record.Compliance{Answer: record.AnswerYes, AskedAt: ended}},
		"the check before the task fails": {
			before(record.Disrupted, record.AnswerError),
			record.Compliance{Answer: record.AnswerError, AskedAt: ended, FailingSince: ended, ExitCode: new(int32(3)), Message: "ok"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.is.Compliance()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Answers are bounded, and what no manager has written is dropped without the rest of the record.
func TestAnswersAreBounded(t *testing.T) {
	long := record.Record{Revision: "r", Outcome: record.Succeeded, PodUID: "1", Asked: record.Answers{
		record.QuestionCheck: {
			Answer:     record.AnswerNo,
			At:         at("12:00:00"),
			Message:    strings.Repeat("x", 9999) + "\x1b[31m",
			Unanswered: -1,
			PodUID:     "2",
		},
		"other": {Answer: record.AnswerNo},
	}}
	got, err := record.Decode(record.Encode(long))
	is := got.Asked[record.QuestionCheck]
	if err != nil || len(got.Asked) != 1 || len(is.Message) > 512 || strings.ContainsRune(is.Message, '\x1b') || is.Unanswered != 0 {
		t.Errorf("%v: %+v", err, got.Asked)
	}
	if !got.HasEndOf("2") || got.HasEndOf("3") || !got.AnswerOf("2").Equal(at("12:00:00")) {
		t.Error("the pod that asked is not on record")
	}
	for _, asked := range []string{`{"check":{"answer":"Perhaps"}}`, `{"check":7}`, `[]`} {
		got, err := record.Decode(
			`{"revision":"r","outcome":"Succeeded","attempts":1,"finishedAt":"2026-07-01T12:00:00Z","podUID":"1","asked":` + asked + `}`,
		)
		if err != nil || len(got.Asked) != 0 {
			t.Errorf("%s is read as %+v: %v", asked, got.Asked, err)
		}
	}
	full := long
	full.Results = map[string]string{}
	for _, key := range []string{"a", "b", "c"} {
		full.Results[key] = strings.Repeat(key, 4000)
	}
	got, err = record.Decode(record.Encode(full))
	if err != nil || got.Asked[record.QuestionCheck].Answer != record.AnswerNo ||
		!got.Asked[record.QuestionCheck].At.Equal(at("12:00:00")) {
		t.Errorf("without space, %+v is left: %v", got.Asked, err)
	}
}
