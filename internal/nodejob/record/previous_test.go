// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPreviousTo(t *testing.T) {
	results := map[string]string{"kernel": "6.1"}
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	of := func(revision string, changes ...func(*Record)) *Record {
		r := &Record{
			Revision:   revision,
			Outcome:    Succeeded,
			Attempts:   1,
			FinishedAt: at,
			MachineID:  "m",
			ExitCode:   new(int32(0)),
			Results:    results,
		}
		for _, change := range changes {
			change(r)
		}
		return r
	}
	silent := func(r *Record) { r.Results = nil }
	after := func(revision string) func(*Record) {
		return func(r *Record) { r.Previous = &Previous{Revision: revision, Outcome: Failed} }
	}
	tests := map[string]struct {
		prev, next *Record
		want       *Previous
	}{
		"no record":                {nil, of("b"), nil},
		"the first revision again": {of("a"), of("a"), nil},
		"a new revision": {
			of("a"),
			of("b"),
			&Previous{Revision: "a", Outcome: Succeeded, Attempts: 1, FinishedAt: at, ExitCode: new(int32(0)), Results: results},
		},
		"a new revision after another": {
			of("b", after("a")),
			of("c"),
			&Previous{Revision: "b", Outcome: Succeeded, Attempts: 1, FinishedAt: at, ExitCode: new(int32(0)), Results: results},
		},
		"a further attempt of the new revision": {of("b", after("a")), of("b"), &Previous{Revision: "a", Outcome: Failed}},
		"a revision without results":            {of("b", silent, after("a")), of("c"), &Previous{Revision: "a", Outcome: Failed}},
		"the first revision without results":    {of("a", silent), of("b"), nil},
		"the earlier revision again":            {of("b", silent, after("a")), of("a"), nil},
		"the results of truncated values": {
			of("a", func(r *Record) { r.Truncated = true }),
			of("b"),
			&Previous{
				Revision:   "a",
				Outcome:    Succeeded,
				Attempts:   1,
				FinishedAt: at,
				ExitCode:   new(int32(0)),
				Results:    results,
				Truncated:  true,
			},
		},
		"another machine": {of("b", after("a")), of("c", func(r *Record) { r.MachineID = "n" }), nil},
		"a machine that did not report its ID": {
			of("a"),
			of("b", func(r *Record) { r.MachineID = "" }),
			&Previous{Revision: "a", Outcome: Succeeded, Attempts: 1, FinishedAt: at, ExitCode: new(int32(0)), Results: results},
		},
		"a new attempt that was disrupted itself": {
			of("a"),
			of("b", func(r *Record) { r.Outcome = Disrupted }),
			&Previous{Revision: "a", Outcome: Succeeded, Attempts: 1, FinishedAt: at, ExitCode: new(int32(0)), Results: results},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, PreviousTo(tt.prev, tt.next)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEncodeRemovesPreviousResultsBeforeTheMessage fills a record until the results of both revisions do not fit.
func TestEncodeRemovesPreviousResultsBeforeTheMessage(t *testing.T) {
	r := whole()
	r.Previous = &Previous{
		Revision:   "old",
		Outcome:    Succeeded,
		FinishedAt: r.FinishedAt,
		Results:    map[string]string{"a": strings.Repeat("v", MaxBytes)},
	}
	caller := maps.Clone(r.Previous.Results)
	got, err := Decode(Encode(r))
	if err != nil {
		t.Fatal(err)
	}
	want := &Previous{Revision: "old", Outcome: Succeeded, FinishedAt: r.FinishedAt, Truncated: true}
	if diff := cmp.Diff(want, got.Previous); diff != "" {
		t.Errorf("the previous revision (-want +got):\n%s", diff)
	}
	if got.Message != r.Message || got.Truncated != r.Truncated || cmp.Diff(r.Results, got.Results) != "" {
		t.Error("the message or the results were removed as well")
	}
	if len(got.Earlier) > 0 {
		t.Errorf("%d earlier attempts, which are removed first", len(got.Earlier))
	}
	if cmp.Diff(caller, r.Previous.Results) != "" || r.Previous.Truncated {
		t.Error("the caller's record was changed")
	}
}

// What Everynode did not write does not make the record unreadable.
func TestDecodeBoundsThePreviousRevision(t *testing.T) {
	for _, previous := range []string{
		`1`, `"x"`, `[]`, `{}`, `null`, `{"revision":"","outcome":"Failed"}`, `{"revision":"a b","outcome":"Failed"}`, `{"revision":"a","outcome":"Lost"}`, `{"revision":1}`,
		`{"revision":"a","outcome":"Failed","results":{"a":1}}`, `{"revision":"a","outcome":"Failed","attempts":-1}`,
	} {
		r, err := Decode(`{"revision":"b","outcome":"Succeeded","attempts":1,"previous":` + previous + `}`)
		if err != nil || r.Previous != nil {
			t.Errorf("%s: %+v, %v", previous, r.Previous, err)
		}
	}
	r, err := Decode(
		`{"revision":"b","outcome":"Succeeded","attempts":1,"previous":{"revision":"a","outcome":"Failed","finishedAt":"9999-01-01T00:00:00Z"}}`,
	)
	if err != nil || r.Previous == nil || !r.Previous.FinishedAt.IsZero() {
		t.Errorf("a time that no record has: %+v, %v", r.Previous, err)
	}
	if _, err := Decode(`{"revision":"","previous":{}}`); !errors.Is(err, ErrNoRecord) {
		t.Errorf("a record without a revision: %v", err)
	}
}
