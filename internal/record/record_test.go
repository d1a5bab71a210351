// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
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
		Revision: "0123456789", Outcome: Failed, Attempts: 2, Disruptions: 1,
		StartedAt: began, FinishedAt: began.Add(90 * time.Second), ExitCode: &code,
		Reason: "TaskFailed", Message: "line 1\nline 2: no <disk> & more",
		Results: map[string]string{"kernel": "6.12", "zone": "a"}, Truncated: true,
		BootID: "boot", MachineID: "machine", Retry: "again", PodUID: "pod-uid",
		Rollback: &Rollback{
			Outcome: Failed, Attempts: 3, Disruptions: 1, StartedAt: began.Add(100 * time.Second), FinishedAt: began.Add(110 * time.Second),
			ExitCode: &code, Reason: "TaskFailed", Message: "no way back", Retry: "again", PodUID: "undo-uid",
		},
		Cordoned: true,
		Drain:    &Drain{StartedAt: began.Add(120 * time.Second), FinishedAt: began.Add(130 * time.Second), Outcome: "Drained"},
		Earlier: Attempts{
			{Revision: "9876543210", Number: 1, Outcome: Succeeded, StartedAt: began.Add(-time.Hour), FinishedAt: began.Add(-time.Hour), ExitCode: new(int32(0))},
			{Revision: "0123456789", Number: 1, Outcome: Failed, StartedAt: began.Add(-time.Minute), FinishedAt: began.Add(-time.Minute), ExitCode: &code, Reason: "TaskFailed", Message: "line 2"},
		},
	}
}

func TestEncodeGivesBackWhatWasRecorded(t *testing.T) {
	zero := int32(0)
	tests := map[string]Record{
		"every field":                        whole(),
		"a success has little to say":        {Revision: "r", Outcome: Succeeded, Attempts: 1, FinishedAt: began, ExitCode: &zero, PodUID: "p"},
		"an exit code of 0 is not none":      {Revision: "r", Outcome: Disrupted, FinishedAt: began, ExitCode: &zero, PodUID: "p"},
		"an attempt that never said its end": {Revision: "r", Outcome: Disrupted, Disruptions: 1, FinishedAt: began, PodUID: "p"},
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

// The annotation is read by people and by their scripts: what it looks like is part of the product.
func TestEncodeLooksLikeThis(t *testing.T) {
	want := `{"revision":"0123456789","outcome":"Failed","attempts":2,"disruptions":1,` +
		`"startedAt":"2026-03-01T12:00:00Z","finishedAt":"2026-03-01T12:01:30Z","exitCode":3,"reason":"TaskFailed",` +
		`"message":"line 1\nline 2: no <disk> & more","results":{"kernel":"6.12","zone":"a"},"truncated":true,` +
		`"bootID":"boot","machineID":"machine","retry":"again",` +
		`"rollback":{"outcome":"Failed","attempts":3,"disruptions":1,"startedAt":"2026-03-01T12:01:40Z","finishedAt":"2026-03-01T12:01:50Z",` +
		`"exitCode":3,"reason":"TaskFailed","message":"no way back","retry":"again","podUID":"undo-uid"},"cordoned":true,` +
		`"drain":{"startedAt":"2026-03-01T12:02:00Z","finishedAt":"2026-03-01T12:02:10Z","outcome":"Drained"},` +
		`"earlier":[{"revision":"9876543210","attempt":1,"outcome":"Succeeded","startedAt":"2026-03-01T11:00:00Z","finishedAt":"2026-03-01T11:00:00Z","exitCode":0},` +
		`{"revision":"0123456789","attempt":1,"outcome":"Failed","startedAt":"2026-03-01T11:59:00Z","finishedAt":"2026-03-01T11:59:00Z",` +
		`"exitCode":3,"reason":"TaskFailed","message":"line 2"}],"podUID":"pod-uid"}`
	if diff := cmp.Diff(want, Encode(whole())); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestEncodeTellsTimesInWholeSecondsOfUTC(t *testing.T) {
	r := whole()
	east := time.FixedZone("east", 2*60*60)
	r.StartedAt, r.FinishedAt = r.StartedAt.Add(time.Nanosecond).In(east), r.FinishedAt.Add(time.Second-1).In(east)
	if diff := cmp.Diff(Encode(whole()), Encode(r)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// TestEncodeKeepsItsBounds gives it what no attempt can report, since outcome bounds that before:
// the bound on a node must not hang on who calls.
func TestEncodeKeepsItsBounds(t *testing.T) {
	many := map[string]string{}
	for i := range 10_000 {
		many[fmt.Sprintf("key-%d", i)] = strings.Repeat("v", 100)
	}
	tests := map[string]struct {
		change func(r *Record)
		want   func(r *Record)
	}{
		"ten thousand results are left out and said so": {
			change: func(r *Record) { r.Results, r.Truncated = many, false },
			want:   func(r *Record) { r.Results, r.Truncated, r.Earlier = nil, true, nil },
		},
		"one result of a megabyte is left out and said so": {
			change: func(r *Record) { r.Results, r.Truncated = map[string]string{"a": strings.Repeat("v", 1<<20)}, false },
			want:   func(r *Record) { r.Results, r.Truncated, r.Earlier = nil, true, nil },
		},
		"of a long message the end stays": {
			change: func(r *Record) { r.Message = strings.Repeat("x", 1<<20) + "the end" },
			want:   func(r *Record) { r.Message = "…" + strings.Repeat("x", outcome.MaxMessageBytes-10) + "the end" },
		},
		"control characters and what hides text show as escapes": {
			change: func(r *Record) { r.Reason, r.Message = "\x1b[31m", "a\u202eb\x00\xff\u2028" },
			want:   func(r *Record) { r.Reason, r.Message = `\x1b[31m`, `a\u202eb\x00\xff\u2028` },
		},
		"a node's clock of a year that is not told with a deadline": {
			change: func(r *Record) { r.Drain.StartedAt = time.Date(9999, 12, 31, 23, 59, 0, 0, time.UTC) },
			want:   func(r *Record) { r.Drain.StartedAt = time.Time{} },
		},
		"counts that one more would make negative": {
			change: func(r *Record) { r.Attempts, r.Disruptions, r.Rollback.Disruptions = 1<<31-1, 1<<31-1, 1<<31-1 },
			want:   func(r *Record) { r.Attempts, r.Disruptions, r.Rollback.Disruptions = maxCount, maxCount, maxCount },
		},
		"a node's clock beyond the year 9999 is not told": {
			change: func(r *Record) {
				r.StartedAt, r.FinishedAt = r.StartedAt.AddDate(8000, 0, 0), r.FinishedAt.AddDate(8000, 0, 0)
			},
			want: func(r *Record) { r.StartedAt, r.FinishedAt = time.Time{}, time.Time{} },
		},
		"a boot ID of a megabyte is cut": {
			change: func(r *Record) { r.BootID = strings.Repeat("b", 1<<20) },
			want:   func(r *Record) { r.BootID = "…" + strings.Repeat("b", 125) },
		},
		"of what a rollback printed the end stays": {
			change: func(r *Record) { r.Rollback.Message = strings.Repeat("x", 1<<20) + "the end" },
			want:   func(r *Record) { r.Rollback.Message = "…" + strings.Repeat("x", maxRollbackMessage-10) + "the end" },
		},
		"what somebody wrote into a record is bounded when it is written back": {
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

// What an attempt may report fits a record, whatever characters it is made of.
func TestEncodeLosesNoResultThatAnOutcomeMayHave(t *testing.T) {
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

func TestEncodeChangesNothingOfItsArgument(t *testing.T) {
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

func TestDecodeTakesNoRecordForOne(t *testing.T) {
	tests := map[string]string{
		"nothing":                       "",
		"words":                         "done",
		"null":                          "null",
		"a list":                        `[{"revision":"r","outcome":"Succeeded"}]`,
		"an empty object":               "{}",
		"no revision":                   `{"outcome":"Succeeded","attempts":1}`,
		"no outcome":                    `{"revision":"r","attempts":1}`,
		"an outcome that nobody has":    `{"revision":"r","outcome":"Maybe"}`,
		"an outcome in another case":    `{"revision":"r","outcome":"succeeded"}`,
		"an outcome of another type":    `{"revision":"r","outcome":true}`,
		"attempts below zero":           `{"revision":"r","outcome":"Failed","attempts":-1}`,
		"disruptions below zero":        `{"revision":"r","outcome":"Failed","disruptions":-1}`,
		"attempts beyond an int32":      `{"revision":"r","outcome":"Failed","attempts":2147483648}`,
		"attempts that are a text":      `{"revision":"r","outcome":"Failed","attempts":"1"}`,
		"results that are a list":       `{"revision":"r","outcome":"Failed","results":["a"]}`,
		"a time that is none":           `{"revision":"r","outcome":"Failed","finishedAt":"yesterday"}`,
		"a rollback with no outcome":    `{"revision":"r","outcome":"Failed","rollback":{}}`,
		"a rollback below zero":         `{"revision":"r","outcome":"Failed","rollback":{"outcome":"Failed","attempts":-1}}`,
		"a revision that is no label":   `{"revision":"not a label!","outcome":"Failed"}`,
		"a revision that begins badly":  `{"revision":"-r","outcome":"Failed"}`,
		"a revision that is too long":   `{"revision":"` + strings.Repeat("r", 64) + `","outcome":"Failed"}`,
		"half an object":                `{"revision":"r","outcome":"Failed"`,
		"something behind the object":   `{"revision":"r","outcome":"Failed"} x`,
		"a valid record of a megabyte":  `{"revision":"r","outcome":"Failed","message":"` + strings.Repeat("x", 1<<20) + `"}`,
		"deep nesting":                  strings.Repeat("[", MaxBytes),
		"an outcome that hides its end": `{"revision":"r","outcome":"` + "\u202e" + `deliaF"}`,
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
				t.Errorf("the error repeats what it was given: %q", err)
			}
		})
	}
}

func TestDecodeIgnoresFieldsOfTheFuture(t *testing.T) {
	got, err := Decode(`{"revision":"r","outcome":"Succeeded","attempts":1,"finishedAt":"2026-03-01T12:00:00Z","podUID":"p","weather":{"x":[1]}}`)
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
		"a node that never ran carries nothing": {
			labels:      map[string]string{"ns.everynode.dev/other": "x"},
			annotations: map[string]string{"ns.everynode.dev/other": Encode(r)},
		},
		"label and annotation": {
			labels:      map[string]string{key: "rev", sealKey: Seal(Encode(r))},
			annotations: map[string]string{key: Encode(r)},
			want:        NodeRecord{Label: "rev", Record: &r, Sealed: true, Present: true},
		},
		"the label was taken off": {
			labels:      map[string]string{sealKey: Seal(Encode(r))},
			annotations: map[string]string{key: Encode(r)},
			want:        NodeRecord{Record: &r, Sealed: true, Present: true},
		},
		"a record without a seal is ignored": {
			labels:      map[string]string{key: "rev"},
			annotations: map[string]string{key: Encode(r)},
			want:        NodeRecord{Label: "rev", Altered: true, Present: true},
		},
		"a record with the seal of another is ignored": {
			labels:      map[string]string{sealKey: Seal(Encode(other))},
			annotations: map[string]string{key: Encode(r)},
			want:        NodeRecord{Altered: true, Sealed: true, Present: true},
		},
		"a seal without its record is still there to be forgotten": {
			labels: map[string]string{sealKey: Seal(Encode(r))},
			want:   NodeRecord{Sealed: true, Present: true},
		},
		"a label set by hand": {
			labels: map[string]string{key: "rev"},
			want:   NodeRecord{Label: "rev", Present: true},
		},
		"an empty label is still there to be forgotten": {
			labels: map[string]string{key: ""},
			want:   NodeRecord{Present: true},
		},
		"an annotation that cannot be read is still there to be forgotten": {
			labels:      map[string]string{sealKey: Seal("what")},
			annotations: map[string]string{key: "what"},
			want:        NodeRecord{Sealed: true, Present: true},
		},
		"an empty annotation is still there to be forgotten": {
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

// FuzzDecode: whatever stands in an annotation, reading it ends well, and what is read can be
// written again within the bound and be read as the same attempt.
func FuzzDecode(f *testing.F) {
	f.Add(Encode(whole()))
	f.Add(`{"revision":"r","outcome":"Disrupted","disruptions":2147483647,"message":"\u001b\ud800"}`)
	f.Add(`{"revision":"r","outcome":"Failed","results":{"a":"<<<"},"finishedAt":"9999-12-31T23:59:59-23:59"}`)
	f.Add(`{"REVISION":"r","outcome":"Failed","revision":null}`)
	f.Add(`{"revision":"r","outcome":"Rebooting","reboot":{"startedAt":"0001-01-01T00:00:00Z","fromBootID":"\u202e"},"removedLabels":{"a":"b","":""}}`)
	f.Add(`{"revision":"r","outcome":"Failed","earlier":[{"revision":"r","attempt":-1,"outcome":"Disrupted","message":"\u202e\n"},{"outcome":"Rebooting"},7]}`)
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
			t.Errorf("%q is no UTF-8", encoded)
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
