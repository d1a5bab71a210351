// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/outcome"
)

// listed returns the earlier attempts of a record, one line each.
func listed(r Record) []string {
	var all []string
	for _, a := range r.Earlier {
		s := fmt.Sprintf("%s %d %s", a.Revision, a.Number, a.Outcome)
		if a.Rollback {
			s += " rollback"
		}
		if a.Disruptions > 0 {
			s += fmt.Sprintf(" x%d", a.Disruptions)
		}
		if a.Message != "" {
			s += ": " + a.Message
		}
		all = append(all, s)
	}
	return all
}

// ends records outcomes of attempts one after the other, as the planner does: each one changes a copy of the record
// before it, and reports whether it is the outcome of a rollback.
func ends(t *testing.T, changes ...func(*Record) (rollback bool)) Record {
	t.Helper()
	var prev *Record
	for i, change := range changes {
		next := Record{MachineID: "m"}
		if prev != nil {
			next = *prev
		}
		next.FinishedAt = began.Add(time.Duration(i) * time.Minute)
		rollback := change(&next)
		next.Earlier = EarlierThan(prev, &next, rollback)
		decoded, err := Decode(Encode(next))
		if err != nil {
			t.Fatal(err)
		}
		prev = &decoded
	}
	return *prev
}

func TestEarlierThan(t *testing.T) {
	failed := func(revision string, attempt int32) func(*Record) bool {
		return func(r *Record) bool {
			r.Revision, r.Outcome, r.Attempts, r.Disruptions, r.Rollback, r.Reboot = revision, Failed, attempt, 0, nil, nil
			r.Reason, r.Message = "TaskFailed", fmt.Sprintf("looking\nno disk %d\n", attempt)
			return false
		}
	}
	succeeded := func(revision string) func(*Record) bool {
		return func(r *Record) bool {
			r.Revision, r.Outcome, r.Attempts, r.Disruptions, r.Rollback, r.Reboot = revision, Succeeded, 1, 0, nil, nil
			r.Reason, r.Message = "", "all is well"
			return false
		}
	}
	disrupted := func(failures, inARow int32) func(*Record) bool {
		return func(r *Record) bool {
			r.Revision, r.Outcome, r.Attempts, r.Disruptions, r.Reason, r.Message = "a", Disrupted, failures, inARow, "Disrupted", "evicted"
			return false
		}
	}
	rebooting := func(r *Record) bool {
		r.Revision, r.Outcome, r.Attempts, r.Rollback, r.Reboot = "a", Rebooting, 2, nil, &Reboot{StartedAt: began, FromBootID: "boot"}
		return false
	}
	rollback := func(o Outcome, attempts, inARow int32) func(*Record) bool {
		return func(r *Record) bool {
			r.Rollback = &Rollback{Outcome: o, Attempts: attempts, Disruptions: inARow, FinishedAt: r.FinishedAt, Message: "undo\nfailed"}
			return true
		}
	}
	// notDrained is a failure before the task started, which retains an earlier rollback.
	notDrained := func(r *Record) bool {
		r.Revision, r.Outcome, r.Attempts, r.Message = "b", Failed, r.Attempts+1, "not drained"
		return false
	}
	on := func(machine string, end func(*Record) bool) func(*Record) bool {
		return func(r *Record) bool {
			r.MachineID = machine
			return end(r)
		}
	}
	tests := map[string]struct {
		ends []func(*Record) bool
		want []string
	}{
		"the first attempt": {ends: []func(*Record) bool{failed("a", 1)}},
		"a failure before another one": {
			[]func(*Record) bool{failed("a", 1), failed("a", 2)},
			[]string{"a 1 Failed: no disk 1"},
		},
		"the five before the last": {
			[]func(*Record) bool{
				failed("a", 1),
				failed("a", 2),
				failed("a", 3),
				failed("a", 4),
				failed("a", 5),
				failed("a", 6),
				failed("a", 7),
			},
			[]string{
				"a 2 Failed: no disk 2",
				"a 3 Failed: no disk 3",
				"a 4 Failed: no disk 4",
				"a 5 Failed: no disk 5",
				"a 6 Failed: no disk 6",
			},
		},
		"a new revision continues the list": {
			[]func(*Record) bool{failed("a", 1), succeeded("a"), failed("b", 1)},
			[]string{"a 1 Failed: no disk 1", "a 1 Succeeded"},
		},
		"a rerun of the same revision": {
			[]func(*Record) bool{succeeded("a"), succeeded("a"), succeeded("a")},
			[]string{"a 1 Succeeded", "a 1 Succeeded"},
		},
		"a retry that a user requested": {
			[]func(*Record) bool{failed("a", 1), func(r *Record) bool { r.Retry = "again"; return failed("a", 1)(r) }},
			[]string{"a 1 Failed: no disk 1"},
		},
		"another machine starts an empty list": {
			[]func(*Record) bool{failed("a", 1), failed("a", 2), on("other", failed("a", 1))},
			nil,
		},
		"an unknown machine continues the list": {
			[]func(*Record) bool{on("", failed("a", 1)), on("m", failed("a", 2)), on("", failed("a", 3))},
			[]string{"a 1 Failed: no disk 1", "a 2 Failed: no disk 2"},
		},
		"disruptions in a row are one entry": {
			[]func(*Record) bool{failed("a", 1), disrupted(1, 1), disrupted(1, 2), disrupted(1, 3), failed("a", 2)},
			[]string{"a 1 Failed: no disk 1", "a 2 Disrupted x3: evicted"},
		},
		"disruptions that continue are counted by the record": {
			[]func(*Record) bool{failed("a", 1), disrupted(1, 1), disrupted(1, 2)},
			[]string{"a 1 Failed: no disk 1"},
		},
		"disruptions with a failure between them": {
			[]func(*Record) bool{disrupted(0, 1), failed("a", 1), disrupted(1, 1)},
			[]string{"a 1 Disrupted x1: evicted", "a 1 Failed: no disk 1"},
		},
		"disruptions of two revisions": {
			[]func(*Record) bool{
				disrupted(0, 1),
				disrupted(0, 2),
				func(r *Record) bool { disrupted(0, 1)(r); r.Revision = "b"; return false },
			},
			[]string{"a 1 Disrupted x2: evicted"},
		},
		"a reboot does not end an attempt": {
			[]func(*Record) bool{failed("a", 1), rebooting, rebooting, succeeded("a")},
			[]string{"a 1 Failed: no disk 1"},
		},
		"a reboot does not replace an earlier attempt": {
			[]func(*Record) bool{
				failed("a", 1),
				failed("a", 2),
				failed("a", 3),
				failed("a", 4),
				failed("a", 5),
				failed("a", 6),
				rebooting,
				succeeded("a"),
			},
			[]string{
				"a 2 Failed: no disk 2",
				"a 3 Failed: no disk 3",
				"a 4 Failed: no disk 4",
				"a 5 Failed: no disk 5",
				"a 6 Failed: no disk 6",
			},
		},
		"a revision that is assumed to be done has no attempt": {
			[]func(*Record) bool{
				func(r *Record) bool { succeeded("a")(r); r.Assumed = true; return false },
				func(r *Record) bool { r.Assumed = false; return failed("b", 1)(r) },
			},
			nil,
		},
		"a run with a reboot that failed": {
			[]func(*Record) bool{rebooting, failed("a", 2), failed("a", 3)},
			[]string{"a 2 Failed: no disk 2"},
		},
		"the attempts of a rollback": {
			[]func(*Record) bool{
				failed("a", 1),
				rollback(Failed, 1, 0),
				rollback(Disrupted, 1, 1),
				rollback(Disrupted, 1, 2),
				rollback(Succeeded, 2, 0),
			},
			[]string{"a 1 Failed rollback: failed", "a 2 Disrupted rollback x2: failed"},
		},
		"a rollback and what it undid": {
			[]func(*Record) bool{failed("a", 1), rollback(Succeeded, 1, 0), failed("b", 1)},
			[]string{"a 1 Failed: no disk 1", "a 1 Succeeded rollback"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, listed(ends(t, tt.ends...))); diff != "" {
				t.Errorf("earlier attempts (-want +got):\n%s", diff)
			}
		})
	}

	// The planner retains the rollback itself, not a copy.
	first := ends(t, failed("a", 1), rollback(Succeeded, 1, 0))
	second := first
	second.FinishedAt = first.FinishedAt.Add(time.Minute)
	notDrained(&second)
	second.Earlier = EarlierThan(&first, &second, false)
	if diff := cmp.Diff([]string{"a 1 Failed: no disk 1"}, listed(second)); diff != "" {
		t.Errorf("while the rollback is on record (-want +got):\n%s", diff)
	}
}

func TestDisruptionsInARow(t *testing.T) {
	of := func(o Outcome, disruptions int32) *Record {
		return &Record{Revision: "a", Outcome: o, Disruptions: disruptions}
	}
	other := of(Disrupted, 2)
	other.Revision = "b"
	for name, tt := range map[string]struct {
		prev, next             *Record
		want, wantForARollback bool
	}{
		"the second one":                   {of(Disrupted, 1), of(Disrupted, 2), true, true},
		"the first one":                    {of(Disrupted, 1), of(Disrupted, 1), false, false},
		"after a failure":                  {of(Failed, 1), of(Disrupted, 2), false, false},
		"a failure, with those of its run": {of(Disrupted, 1), of(Failed, 2), false, false},
		"another revision":                 {of(Disrupted, 1), other, false, true}, // the rollback belongs to the record
	} {
		if got := continuesDisruptions(tt.prev, tt.next); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
		rollback := func(r *Record) *Rollback { return &Rollback{Outcome: r.Outcome, Disruptions: r.Disruptions} }
		if got := rollback(tt.prev).continuedBy(rollback(tt.next)); got != tt.wantForARollback {
			t.Errorf("%s, of a rollback: %t, want %t", name, got, tt.wantForARollback)
		}
	}
	if (&Rollback{Outcome: Disrupted, Disruptions: 1}).continuedBy(nil) {
		t.Error("a rollback is continued by none")
	}
}

func TestEarlierThanDoesNotChangeRecords(t *testing.T) {
	prev := Record{Revision: "a", Outcome: Failed, Attempts: 6, FinishedAt: began, Earlier: make(Attempts, MaxEarlier, 2*MaxEarlier)}
	for i := range prev.Earlier {
		prev.Earlier[i] = Attempt{Revision: "a", Number: int32(i + 1), Outcome: Failed, FinishedAt: began.Add(-time.Hour), Message: "x"}
	}
	next := Record{Revision: "a", Outcome: Failed, Attempts: 7}
	want := listed(prev)
	next.Earlier = EarlierThan(&prev, &next, false)
	next.Message = strings.Repeat(`"`, MaxBytes)
	Encode(next)
	if diff := cmp.Diff(want, listed(prev)); diff != "" {
		t.Errorf("the record before (-want +got):\n%s", diff)
	}
	if len(next.Earlier) != MaxEarlier || next.Earlier[0].Number != 2 || next.Earlier[0].Message != "x" {
		t.Errorf("the record was changed by Encode: %+v", next.Earlier)
	}
}

// full has the longest possible list: every byte of it is escaped in JSON.
func full() Record {
	r := whole()
	for i := range 2 * MaxEarlier {
		r.Earlier = append(r.Earlier, Attempt{
			Revision: strings.Repeat(
				"r",
				63,
			),
			Rollback:    true,
			Number:      maxCount,
			Outcome:     Disrupted,
			Disruptions: maxCount,
			ExitCode:    new(int32(255)),
			StartedAt:   began,
			FinishedAt:  began.Add(time.Duration(i) * time.Second),
			Reason:      strings.Repeat(`"`, 1<<10),
			Message:     strings.Repeat("first\n", 1<<10) + strings.Repeat(`"`, 1<<10),
		})
	}
	return r
}

func TestEarlierAttemptsAreBounded(t *testing.T) {
	without := whole()
	got, err := Decode(Encode(full()))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Earlier) != MaxEarlier {
		t.Errorf("%d attempts, want %d", len(got.Earlier), MaxEarlier)
	}
	for _, a := range got.Earlier {
		if len(a.Message) > maxEarlierMessage || len(a.Reason) > maxEarlierReason || strings.Contains(a.Message, "\n") {
			t.Errorf("attempt %+v", a)
		}
	}
	if added := len(Encode(full())) - len(Encode(without)); added > 3500 {
		t.Errorf("the list takes %d bytes", added)
	}
}

// The list is truncated before anything else.
func TestEncodeCutsEarlierAttemptsFirst(t *testing.T) {
	quotes := func(n int) string { return strings.Repeat(`"`, n) }
	tests := map[string]struct {
		change       func(*Record)
		wantMessages bool
		wantEarlier  int
	}{
		"everything fits": {func(*Record) {}, true, 5},
		"the messages of earlier attempts do not fit": {func(r *Record) {
			r.Message, r.Results = quotes(1024), map[string]string{"a": strings.Repeat("x", 500)}
		}, false, 5},
		"two earlier attempts fit": {func(r *Record) {
			r.Message, r.Results = quotes(1024), map[string]string{"a": strings.Repeat("x", 2400)}
		}, false, 2},
		"no earlier attempt fits": {func(r *Record) {
			r.Message, r.Results = quotes(1024), map[string]string{"a": strings.Repeat("x", 3200)}
		}, false, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := full()
			in.Archives = nil
			tt.change(&in)
			encoded := Encode(in)
			got, err := Decode(encoded)
			if err != nil || len(encoded) > MaxBytes {
				t.Fatalf("%d bytes, want at most %d; %v", len(encoded), MaxBytes, err)
			}
			if got.Message != in.Message || got.Truncated != in.Truncated || cmp.Diff(in.Results, got.Results) != "" {
				t.Error("the message or the results were truncated before the list")
			}
			if len(got.Earlier) != tt.wantEarlier {
				t.Errorf("%d earlier attempts, want %d", len(got.Earlier), tt.wantEarlier)
			}
			for i, a := range got.Earlier {
				if (a.Message != "") != tt.wantMessages {
					t.Errorf("message %q", a.Message)
				}
				if want := began.Add(time.Duration(2*MaxEarlier-len(got.Earlier)+i) * time.Second); !a.FinishedAt.Equal(want) {
					t.Errorf("entry %d is of %v, want %v: the oldest are cut first", i, a.FinishedAt, want)
				}
			}
		})
	}
}

// A list that Everynode did not write does not make the record unreadable.
func TestDecodeBoundsEarlierAttempts(t *testing.T) {
	tests := map[string]struct {
		list string
		want []string
	}{
		"no list":                      {`"x"`, nil},
		"null":                         {`null`, nil},
		"an object":                    {`{"a":1}`, nil},
		"entries that are not objects": {`[1,"a",null]`, nil},
		"an unknown outcome": {
			`[{"revision":"r","attempt":1,"outcome":"Maybe"},{"revision":"r","attempt":1,"outcome":"Failed"}]`,
			[]string{"r 1 Failed"},
		},
		"an attempt that continues": {`[{"revision":"r","attempt":1,"outcome":"Rebooting"}]`, nil},
		"a revision that is not a label value": {
			`[{"revision":"\u001b[2J","attempt":1,"outcome":"Failed"},{"revision":"","attempt":1,"outcome":"Failed"}]`,
			nil,
		},
		"numbers out of range": {
			`[{"revision":"r","attempt":-5,"outcome":"Disrupted","disruptions":-1},{"revision":"r","attempt":2147483647,"outcome":"Failed","disruptions":2147483647}]`,
			[]string{"r 1 Disrupted", "r 1000000 Failed x1000000"},
		},
		"a number that is not an int32": {`[{"revision":"r","attempt":1e99,"outcome":"Failed"}]`, nil},
		"text with hidden characters": {
			`[{"revision":"r","attempt":1,"outcome":"Failed","message":"a\n\u202eb\u0000\n\n"}]`,
			[]string{`r 1 Failed: \u202eb\x00`},
		},
		"a success has no message and no reason": {
			`[{"revision":"r","attempt":1,"outcome":"Succeeded","message":"a","reason":"b"}]`,
			[]string{"r 1 Succeeded"},
		},
		"a thousand entries": {
			"[" + strings.Repeat(`{"revision":"r","outcome":"Failed"},`, 300) + `{"revision":"r","outcome":"Failed"}]`,
			[]string{"r 1 Failed", "r 1 Failed", "r 1 Failed", "r 1 Failed", "r 1 Failed"},
		},
		"a time with an invalid year": {
			`[{"revision":"r","attempt":1,"outcome":"Failed","finishedAt":"9999-12-31T23:59:59Z"}]`,
			[]string{"r 1 Failed"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Decode(
				`{"revision":"r","outcome":"Failed","attempts":1,"finishedAt":"2026-03-01T12:00:00Z","earlier":` + tt.list + `,"podUID":"p"}`,
			)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, listed(got)); diff != "" {
				t.Errorf("earlier attempts (-want +got):\n%s", diff)
			}
			if again, err := Decode(Encode(got)); err != nil || cmp.Diff(got, again) != "" {
				t.Errorf("written and read again: %v\n%s", err, cmp.Diff(got, again))
			}
		})
	}
}

// Results and messages of the maximum size leave no space for the list, and are not truncated for it.
func TestEarlierAttemptsDoNotTruncateResults(t *testing.T) {
	r := full()
	r.Results = map[string]string{}
	for i := range 7 {
		r.Results[fmt.Sprintf("k%d", i)] = strings.Repeat("v", outcome.MaxValueBytes)
	}
	r.Message = strings.Repeat("x", outcome.MaxMessageBytes)
	got, err := Decode(Encode(r))
	if err != nil || got.Message != r.Message || cmp.Diff(r.Results, got.Results) != "" || got.Rollback.Message != r.Rollback.Message {
		t.Errorf("%v; record %+v", err, got)
	}
}
