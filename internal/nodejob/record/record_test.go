// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/outcome"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func whole() Record {
	code := int32(3)
	return Record{
		Revision:    "0123456789",
		Outcome:     Failed,
		Attempts:    2,
		Disruptions: 1,
		StartedAt:   began,
		FinishedAt:  began.Add(90 * time.Second),
		ExitCode:    &code,
		Reason:      "TaskFailed",
		Message:     "line 1\nline 2: no <disk> & more",
		Results:     map[string]string{"kernel": "6.12", "zone": "a"},
		Truncated:   true,
		Archives: Archives{
			{Phase: "task", Location: "s3://outputs/a.log", Stored: true, Bytes: 100, Dropped: 7},
			{Phase: "rollback", Location: "s3://outputs/b.log", Error: "the response is 403 Forbidden"},
		},
		BootID:    "boot",
		MachineID: "machine",
		Retry:     "again",
		PodUID:    "pod-uid",
		Rollback: &Rollback{
			Outcome: Failed, Attempts: 3, Disruptions: 1, StartedAt: began.Add(100 * time.Second), FinishedAt: began.Add(110 * time.Second),
			ExitCode: &code, Reason: "TaskFailed", Message: "no way back", Retry: "again", PodUID: "undo-uid",
		},
		Cordoned: true,
		Drain:    &Drain{StartedAt: began.Add(120 * time.Second), FinishedAt: began.Add(130 * time.Second), Outcome: "Drained"},
		Earlier: Attempts{
			{
				Revision:   "9876543210",
				Number:     1,
				Outcome:    Succeeded,
				StartedAt:  began.Add(-time.Hour),
				FinishedAt: began.Add(-time.Hour),
				ExitCode:   new(int32(0)),
			},
			{
				Revision:   "0123456789",
				Number:     1,
				Outcome:    Failed,
				StartedAt:  began.Add(-time.Minute),
				FinishedAt: began.Add(-time.Minute),
				ExitCode:   &code,
				Reason:     "TaskFailed",
				Message:    "line 2",
			},
		},
		Previous: &Previous{
			Revision:   "9876543210",
			Outcome:    Succeeded,
			Attempts:   1,
			FinishedAt: began.Add(-time.Hour),
			ExitCode:   new(int32(0)),
			Results:    map[string]string{"kernel": "6.1"},
		},
	}
}

// withoutResults is what a record keeps of the previous revision if there is no space for its results.
func withoutResults(p *Previous) *Previous {
	return &Previous{
		Revision:   p.Revision,
		Outcome:    p.Outcome,
		Attempts:   p.Attempts,
		FinishedAt: p.FinishedAt,
		ExitCode:   p.ExitCode,
		Truncated:  true,
	}
}

func TestEncodeAndDecode(t *testing.T) {
	zero := int32(0)
	tests := map[string]Record{
		"every field": whole(),
		"a success without a message": {
			Revision:   "r",
			Outcome:    Succeeded,
			Attempts:   1,
			FinishedAt: began,
			ExitCode:   &zero,
			PodUID:     "p",
		},
		"an exit code of 0 is recorded": {Revision: "r", Outcome: Disrupted, FinishedAt: began, ExitCode: &zero, PodUID: "p"},
		"a rollback that was disrupted": {
			Revision:   "r",
			Outcome:    Failed,
			Attempts:   1,
			FinishedAt: began,
			PodUID:     "p",
			Rollback:   &Rollback{Outcome: Disrupted, Disruptions: 1, FinishedAt: began, PodUID: "q"},
		},
		"an attempt that did not report its end": {Revision: "r", Outcome: Disrupted, Disruptions: 1, FinishedAt: began, PodUID: "p"},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Decode(Encode(want))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// Users and their scripts read the annotation, so its format is part of the API.
func TestEncodeFormat(t *testing.T) {
	want := `{"revision":"0123456789","outcome":"Failed","attempts":2,"disruptions":1,` +
		`"startedAt":"2026-03-01T12:00:00Z","finishedAt":"2026-03-01T12:01:30Z","exitCode":3,"reason":"TaskFailed",` +
		`"message":"line 1\nline 2: no <disk> & more","results":{"kernel":"6.12","zone":"a"},"truncated":true,` +
		`"archives":[{"phase":"task","location":"s3://outputs/a.log","stored":true,"bytes":100,"dropped":7},` +
		`{"phase":"rollback","location":"s3://outputs/b.log","error":"the response is 403 Forbidden"}],` +
		`"bootID":"boot","machineID":"machine","retry":"again",` +
		`"rollback":{"outcome":"Failed","attempts":3,"disruptions":1,"startedAt":"2026-03-01T12:01:40Z","finishedAt":"2026-03-01T12:01:50Z",` +
		`"exitCode":3,"reason":"TaskFailed","message":"no way back","retry":"again","podUID":"undo-uid"},"cordoned":true,` +
		`"drain":{"startedAt":"2026-03-01T12:02:00Z","finishedAt":"2026-03-01T12:02:10Z","outcome":"Drained"},` +
		`"earlier":[{"revision":"9876543210","attempt":1,"outcome":"Succeeded","startedAt":"2026-03-01T11:00:00Z","finishedAt":"2026-03-01T11:00:00Z","exitCode":0},` +
		`{"revision":"0123456789","attempt":1,"outcome":"Failed","startedAt":"2026-03-01T11:59:00Z","finishedAt":"2026-03-01T11:59:00Z",` +
		`"exitCode":3,"reason":"TaskFailed","message":"line 2"}],"previous":{"revision":"9876543210","outcome":"Succeeded","attempts":1,"finishedAt":"2026-03-01T11:00:00Z","exitCode":0,"results":{"kernel":"6.1"}},"podUID":"pod-uid"}`
	if diff := cmp.Diff(want, Encode(whole())); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestEncodeWritesTimesInWholeSecondsOfUTC(t *testing.T) {
	r := whole()
	east := time.FixedZone("east", 2*60*60)
	r.StartedAt, r.FinishedAt = r.StartedAt.Add(time.Nanosecond).In(east), r.FinishedAt.Add(time.Second-1).In(east)
	if diff := cmp.Diff(Encode(whole()), Encode(r)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// TestEncodeKeepsItsBounds encodes values that no attempt can report, because outcome limits them before:
// the bounds on a node must not depend on the caller.
func TestEncodeKeepsItsBounds(t *testing.T) {
	many := map[string]string{}
	for i := range 10_000 {
		many[fmt.Sprintf("key-%d", i)] = strings.Repeat("v", 100)
	}
	tests := map[string]struct {
		change func(r *Record)
		want   func(r *Record)
	}{
		"ten thousand results are omitted and this is reported": {
			change: func(r *Record) { r.Results, r.Truncated = many, false },
			want: func(r *Record) {
				r.Results, r.Truncated, r.Earlier, r.Previous, r.Archives = nil, true, nil, withoutResults(r.Previous), nil
			},
		},
		"a result of one megabyte is omitted and this is reported": {
			change: func(r *Record) { r.Results, r.Truncated = map[string]string{"a": strings.Repeat("v", 1<<20)}, false },
			want: func(r *Record) {
				r.Results, r.Truncated, r.Earlier, r.Previous, r.Archives = nil, true, nil, withoutResults(r.Previous), nil
			},
		},
		"a long message keeps its end": {
			change: func(r *Record) { r.Message = strings.Repeat("x", 1<<20) + "the end" },
			want:   func(r *Record) { r.Message = "…" + strings.Repeat("x", outcome.MaxMessageBytes-10) + "the end" },
		},
		"control characters and hidden text are escaped": {
			change: func(r *Record) { r.Reason, r.Message = "\x1b[31m", "a\u202eb\x00\xff\u2028" },
			want:   func(r *Record) { r.Reason, r.Message = `\x1b[31m`, `a\u202eb\x00\xff\u2028` },
		},
		"the time of a node with an invalid year, with a deadline": {
			change: func(r *Record) { r.Drain.StartedAt = time.Date(9999, 12, 31, 23, 59, 0, 0, time.UTC) },
			want:   func(r *Record) { r.Drain.StartedAt = time.Time{} },
		},
		"counts that would overflow": {
			change: func(r *Record) { r.Attempts, r.Disruptions, r.Rollback.Disruptions = 1<<31-1, 1<<31-1, 1<<31-1 },
			want:   func(r *Record) { r.Attempts, r.Disruptions, r.Rollback.Disruptions = maxCount, maxCount, maxCount },
		},
		"a time of a node after the year 9999 is omitted": {
			change: func(r *Record) {
				r.StartedAt, r.FinishedAt = r.StartedAt.AddDate(8000, 0, 0), r.FinishedAt.AddDate(8000, 0, 0)
			},
			want: func(r *Record) { r.StartedAt, r.FinishedAt = time.Time{}, time.Time{} },
		},
		"a boot ID of one megabyte is truncated": {
			change: func(r *Record) { r.BootID = strings.Repeat("b", 1<<20) },
			want:   func(r *Record) { r.BootID = "…" + strings.Repeat("b", 125) },
		},
		"the output of a rollback is truncated before the results": {
			change: func(r *Record) {
				r.Results, r.Rollback.Message = map[string]string{"a": strings.Repeat("v", 1<<20)}, strings.Repeat("x", 200)
			},
			want: func(r *Record) {
				r.Results, r.Truncated, r.Earlier, r.Previous, r.Archives = nil, true, nil, withoutResults(r.Previous), nil
				r.Rollback.Message = "…" + strings.Repeat("x", 125)
			},
		},
		"results of one megabyte, and no earlier revision and no rollback": {
			change: func(r *Record) {
				r.Results, r.Previous, r.Rollback = map[string]string{"a": strings.Repeat("v", 1<<20)}, nil, nil
			},
			want: func(r *Record) {
				r.Results, r.Truncated, r.Earlier, r.Previous, r.Archives, r.Rollback = nil, true, nil, nil, nil, nil
			},
		},
		"the output of a rollback keeps its end": {
			change: func(r *Record) { r.Rollback.Message = strings.Repeat("x", 1<<20) + "the end" },
			want:   func(r *Record) { r.Rollback.Message = "…" + strings.Repeat("x", maxRollbackMessage-10) + "the end" },
		},
		"invalid values in an annotation are limited when they are written again": {
			change: func(r *Record) {
				long := strings.Repeat("x", 1<<20)
				r.Retry, r.Rollback.Retry, r.Drain.Outcome = long, long, long
				r.PodUID, r.Rollback.PodUID = types.UID(long), types.UID(long)
			},
			want: func(r *Record) {
				cut := "…" + strings.Repeat("x", 61)
				r.Retry, r.Rollback.Retry, r.Drain.Outcome = cut, cut, ""
				r.PodUID, r.Rollback.PodUID = types.UID(cut), types.UID(cut)
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in, want := whole(), whole()
			tt.change(&in)
			tt.want(&want)
			encoded := Encode(in)
			if len(encoded) > MaxBytes {
				t.Errorf("%d bytes, want at most %d", len(encoded), MaxBytes)
			}
			got, err := Decode(encoded)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// Everything that an attempt may report fits into a record, with any characters.
func TestEncodeKeepsAllResultsOfOutcome(t *testing.T) {
	for _, character := range []string{"v", `"`, `\`, "<", "&", "\t", "ä", "\u2028"} {
		t.Run(fmt.Sprintf("results made of %q", character), func(t *testing.T) {
			var lines strings.Builder
			for i := range outcome.MaxResults {
				fmt.Fprintf(&lines, "k%d=a%sz\n", i, strings.Repeat(character, outcome.MaxValueBytes))
			}
			results, _, err := outcome.ParseResults([]byte(lines.String()))
			if err != nil || len(results) < 7 {
				t.Fatalf("%d results, %v", len(results), err)
			}
			r := whole()
			r.Results = results
			r.Message = strings.Repeat(character, outcome.MaxMessageBytes)
			got, err := Decode(Encode(r))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(results, got.Results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if got.Message == "" {
				t.Error("the message is lost")
			}
		})
	}
}

// A record of the maximum length is not truncated.
func TestEncodeFillsARecord(t *testing.T) {
	r := whole()
	r.Earlier, r.Previous, r.Archives, r.Results, r.Truncated = nil, nil, nil, map[string]string{"a": ""}, false
	space := MaxBytes - len(Encode(r))
	for length, fits := range map[int]bool{space: true, space + 1: false} {
		r.Results = map[string]string{"a": strings.Repeat("v", length)}
		encoded := Encode(r)
		got, err := Decode(encoded)
		if err != nil || got.Truncated == fits || (len(encoded) == MaxBytes) != fits {
			t.Errorf("with %d of %d bytes for a result: %d bytes, %v", length, space, len(encoded), err)
		}
	}
}

// Identifiers and labels of the maximum length leave space for the outcomes.
func TestEncodeKeepsTheOutcomes(t *testing.T) {
	quotes := strings.Repeat(`"`, 1<<10)
	r := whole()
	r.RemovedLabels = map[string]string{}
	for i := range MaxRemoved {
		r.RemovedLabels[strings.Repeat(strings.Repeat("a", 62)+".", 4)[:251]+"/"+strings.Repeat("b", 62)+strconv.Itoa(i)] = strings.Repeat(
			"c",
			63,
		)
	}
	r.BootID, r.MachineID, r.ChangedBy, r.Retry, r.Label, r.Message, r.Reason = quotes, quotes, quotes, quotes, quotes, quotes, quotes
	r.Reboot = &Reboot{StartedAt: began, FromBootID: quotes, BootID: quotes}
	r.Rollback.Message, r.Rollback.Reason, r.Rollback.Retry = quotes, quotes, quotes
	for _, rollback := range []*Rollback{r.Rollback, nil} {
		r.Rollback = rollback
		encoded := Encode(r)
		got, err := Decode(encoded)
		if err != nil || len(encoded) > MaxBytes || got.Outcome != Failed || got.Attempts != 2 || got.Message != "" {
			t.Errorf("%d bytes, %v: %s", len(encoded), err, encoded)
		}
		if rollback == nil {
			if got.Rollback != nil {
				t.Errorf("a rollback that did not happen: %+v", got.Rollback)
			}
			continue
		}
		if b := got.Rollback; b == nil || b.Outcome != Failed || b.Attempts != 3 || b.Message != "" {
			t.Errorf("rollback %+v", b)
		}
	}
}

func TestTimesOfARecord(t *testing.T) {
	at := func(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
	for year, valid := range map[int]bool{1969: false, 1970: true, 2500: true, 2501: false} {
		if got := wholeSeconds(at(year)); got.IsZero() == valid || valid && !got.Equal(at(year)) {
			t.Errorf("%d: %v", year, got)
		}
	}
}

func TestDigestOfARevision(t *testing.T) {
	valid := strings.Repeat("0a", 32)
	for digest, want := range map[string]string{valid: valid, "": "", valid[2:]: "", valid + "0a": "", valid + "x": "", "x" + valid[1:]: ""} {
		r := whole()
		r.Digest = digest
		if got, err := Decode(Encode(r)); err != nil || got.Digest != want {
			t.Errorf("%q becomes %q, %v", digest, got.Digest, err)
		}
	}
}

func TestAssumedRecords(t *testing.T) {
	for name, tt := range map[string]struct {
		record Record
		want   bool
	}{
		"assumed to be done":            {Record{Assumed: true, Outcome: Succeeded}, true},
		"assumed before, and disrupted": {Record{Assumed: true, Outcome: Disrupted}, false},
		"done":                          {Record{Outcome: Succeeded}, false},
	} {
		if got := tt.record.IsAssumed(); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestHasEndOf(t *testing.T) {
	rolledBack := &Record{PodUID: "task", Rollback: &Rollback{PodUID: "rollback"}}
	for name, tt := range map[string]struct {
		record *Record
		pod    types.UID
		want   bool
	}{
		"no record":                     {nil, "task", false},
		"the last attempt":              {&Record{PodUID: "task"}, "task", true},
		"another attempt":               {&Record{PodUID: "task"}, "other", false},
		"the attempt before a rollback": {rolledBack, "task", true},
		"the rollback":                  {rolledBack, "rollback", true},
		"neither":                       {rolledBack, "other", false},
	} {
		if got := tt.record.HasEndOf(tt.pod); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestEncodeDoesNotChangeItsArgument(t *testing.T) {
	r := whole()
	r.Results = map[string]string{"a": strings.Repeat("v", 1<<20)}
	r.Rollback.Message = strings.Repeat("x", 1<<20)
	Encode(r)
	if len(r.Rollback.Message) != 1<<20 {
		t.Error("the caller's rollback was changed")
	}
	if len(r.Results["a"]) != 1<<20 || r.Truncated != whole().Truncated {
		t.Error("the caller's record was changed")
	}
}

func TestDecodeRejectsInvalidRecords(t *testing.T) {
	tests := map[string]string{
		"nothing":                                    "",
		"plain text":                                 "done",
		"null":                                       "null",
		"a list":                                     `[{"revision":"r","outcome":"Succeeded"}]`,
		"an empty object":                            "{}",
		"no revision":                                `{"outcome":"Succeeded","attempts":1}`,
		"no outcome":                                 `{"revision":"r","attempts":1}`,
		"an unknown outcome":                         `{"revision":"r","outcome":"Maybe"}`,
		"an outcome in another case":                 `{"revision":"r","outcome":"succeeded"}`,
		"an outcome of another type":                 `{"revision":"r","outcome":true}`,
		"attempts below zero":                        `{"revision":"r","outcome":"Failed","attempts":-1}`,
		"disruptions below zero":                     `{"revision":"r","outcome":"Failed","disruptions":-1}`,
		"attempts beyond an int32":                   `{"revision":"r","outcome":"Failed","attempts":2147483648}`,
		"attempts that are a string":                 `{"revision":"r","outcome":"Failed","attempts":"1"}`,
		"results that are a list":                    `{"revision":"r","outcome":"Failed","results":["a"]}`,
		"an invalid time":                            `{"revision":"r","outcome":"Failed","finishedAt":"yesterday"}`,
		"a rollback with no outcome":                 `{"revision":"r","outcome":"Failed","rollback":{}}`,
		"a rollback below zero":                      `{"revision":"r","outcome":"Failed","rollback":{"outcome":"Failed","attempts":-1}}`,
		"a rollback with disruptions below zero":     `{"revision":"r","outcome":"Failed","rollback":{"outcome":"Failed","attempts":1,"disruptions":-1}}`,
		"a revision that is not a label value":       `{"revision":"not a label!","outcome":"Failed"}`,
		"a revision with an invalid first character": `{"revision":"-r","outcome":"Failed"}`,
		"a revision that is too long":                `{"revision":"` + strings.Repeat("r", 64) + `","outcome":"Failed"}`,
		"half an object":                             `{"revision":"r","outcome":"Failed"`,
		"text after the object":                      `{"revision":"r","outcome":"Failed"} x`,
		"a valid record of a megabyte":               `{"revision":"r","outcome":"Failed","message":"` + strings.Repeat("x", 1<<20) + `"}`,
		"deep nesting":                               strings.Repeat("[", MaxBytes),
		"an outcome with hidden characters":          `{"revision":"r","outcome":"` + "\u202e" + `deliaF"}`,
	}
	for name, value := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Decode(value)
			if !errors.Is(err, ErrNoRecord) {
				t.Fatalf("error %v, want ErrNoRecord", err)
			}
			if diff := cmp.Diff(Record{}, got); diff != "" {
				t.Errorf("record beside an error (-want +got):\n%s", diff)
			}
			if len(err.Error()) > 512 || strings.ContainsRune(err.Error(), '\u202e') {
				t.Errorf("the error contains its input: %q", err)
			}
		})
	}
}

func TestTheLimitOfWhatIsRead(t *testing.T) {
	const text = `{"revision":"r","outcome":"Failed","message":""}`
	for over, readable := range map[int]bool{0: true, 1: false} {
		value := strings.Replace(text, `""`, `"`+strings.Repeat("x", 4*MaxBytes-len(text)+over)+`"`, 1)
		if _, err := Decode(value); (err == nil) != readable {
			t.Errorf("%d bytes: %v", len(value), err)
		}
	}
}

func TestDecodeIgnoresUnknownFields(t *testing.T) {
	got, err := Decode(
		`{"revision":"r","outcome":"Succeeded","attempts":1,"finishedAt":"2026-03-01T12:00:00Z","podUID":"p","weather":{"x":[1]}}`,
	)
	if err != nil {
		t.Fatal(err)
	}
	want := Record{Revision: "r", Outcome: Succeeded, Attempts: 1, FinishedAt: began, PodUID: "p"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestRead(t *testing.T) {
	const key, sealKey = "ns.everynode.dev/job", "ns.everynode.node-restriction.kubernetes.io/job"
	r, other := whole(), whole()
	other.Attempts++
	tests := map[string]struct {
		labels, annotations map[string]string
		want                NodeRecord
	}{
		"a node without a run has no record": {
			labels:      map[string]string{"ns.everynode.dev/other": "x"},
			annotations: map[string]string{"ns.everynode.dev/other": Encode(r)},
		},
		"label and annotation": {
			labels:      map[string]string{key: "rev", sealKey: Seal(Encode(r))},
			annotations: map[string]string{key: Encode(r)},
			want:        NodeRecord{Label: "rev", Record: &r, Sealed: true, Present: true},
		},
		"the label was removed": {
			labels:      map[string]string{sealKey: Seal(Encode(r))},
			annotations: map[string]string{key: Encode(r)},
			want:        NodeRecord{Record: &r, Sealed: true, Present: true},
		},
		"a record without a seal is ignored": {
			labels:      map[string]string{key: "rev"},
			annotations: map[string]string{key: Encode(r)},
			want:        NodeRecord{Label: "rev", Altered: true, Present: true},
		},
		"a record with the seal of another record is ignored": {
			labels:      map[string]string{sealKey: Seal(Encode(other))},
			annotations: map[string]string{key: Encode(r)},
			want:        NodeRecord{Altered: true, Sealed: true, Present: true},
		},
		"a seal without its record is removed with Forget": {
			labels: map[string]string{sealKey: Seal(Encode(r))},
			want:   NodeRecord{Sealed: true, Present: true},
		},
		"a label set by hand": {
			labels: map[string]string{key: "rev"},
			want:   NodeRecord{Label: "rev", Present: true},
		},
		"an empty label is removed with Forget": {
			labels: map[string]string{key: ""},
			want:   NodeRecord{Present: true},
		},
		"an invalid annotation is removed with Forget": {
			labels:      map[string]string{sealKey: Seal("what")},
			annotations: map[string]string{key: "what"},
			want:        NodeRecord{Sealed: true, Present: true},
		},
		"an empty annotation is removed with Forget": {
			annotations: map[string]string{key: ""},
			want:        NodeRecord{Altered: true, Present: true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Read(tt.labels, tt.annotations, key)); diff != "" {
				t.Errorf("on the node (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzDecode: any annotation can be read without a panic, and a valid record can be
// written again within the bound and read as the same attempt.
func FuzzDecode(f *testing.F) {
	f.Add(Encode(whole()))
	f.Add(`{"revision":"r","outcome":"Disrupted","disruptions":2147483647,"message":"\u001b\ud800"}`)
	f.Add(`{"revision":"r","outcome":"Failed","results":{"a":"<<<"},"finishedAt":"9999-12-31T23:59:59-23:59"}`)
	f.Add(`{"REVISION":"r","outcome":"Failed","revision":null}`)
	f.Add(
		`{"revision":"r","outcome":"Rebooting","reboot":{"startedAt":"0001-01-01T00:00:00Z","fromBootID":"\u202e"},"removedLabels":{"a":"b","":""}}`,
	)
	f.Add(
		`{"revision":"r","outcome":"Failed","earlier":[{"revision":"r","attempt":-1,"outcome":"Disrupted","message":"\u202e\n"},{"outcome":"Rebooting"},7]}`,
	)
	f.Add(`{"revision":"r","outcome":"Failed","earlier":{"EARLIER":[]},"Earlier":[{"revision":"r","attempt":1,"outcome":"Succeeded"}]}`)
	f.Fuzz(func(t *testing.T, value string) {
		r, err := Decode(value)
		if err != nil {
			if !errors.Is(err, ErrNoRecord) {
				t.Fatalf("error %v, want ErrNoRecord", err)
			}
			return
		}
		encoded := Encode(r)
		if !utf8.ValidString(encoded) {
			t.Errorf("%q is not UTF-8", encoded)
		}
		// A revision and a UID come from objects of the API, which bound them.
		if len(r.Revision)+len(r.PodUID) < 1024 && len(encoded) > MaxBytes {
			t.Errorf("%d bytes, want at most %d", len(encoded), MaxBytes)
		}
		again, err := Decode(encoded)
		if err != nil {
			t.Fatalf("%v, of %q", err, encoded)
		}
		type essence struct {
			revision              string
			outcome               Outcome
			attempts, disruptions int32
			finished              time.Time
			pod                   types.UID
		}
		of := func(r Record) essence {
			return essence{r.Revision, r.Outcome, r.Attempts, r.Disruptions, wholeSeconds(r.FinishedAt), r.PodUID}
		}
		if of(r) != of(again) {
			t.Errorf("read %+v, written and read again %+v", of(r), of(again))
		}
	})
}
