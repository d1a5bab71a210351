// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/view"
)

// TestNodesAreReportedAsTheyEnd checks -o jsonl: a line for each node as soon as its log is read, and for the others at
// the end.
func TestNodesAreReportedAsTheyEnd(t *testing.T) {
	r := newRun(t, &jobServer{uid: "uid-of-j"}, func(o *options) { o.output = outputJSONLines })
	withPods(r)
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	lines := func() []string {
		r.draw()
		return strings.SplitAfter(strings.TrimSuffix(r.Out.(*clitest.Buffer).String(), "\n"), "\n")
	}
	r.observeLog(logPart{pod: "uid-of-node-2", data: []byte("a\x1b[2J\nb\u202ec\n")})
	r.nodes[1].record = &record.Record{
		Outcome:    record.Failed,
		Attempts:   1,
		ExitCode:   new(int32(3)),
		Reason:     "TaskFailed",
		Message:    "b",
		StartedAt:  at,
		FinishedAt: at.Add(time.Minute),
	}
	r.view.Nodes[1].State, r.view.Nodes[1].Reason, r.view.Nodes[1].Said = view.RunFailed, "TaskFailed", "b"
	if got := lines(); got[0] != "" {
		t.Errorf("before its log was read, it is reported: %q", got)
	}
	r.observeLog(logPart{pod: "uid-of-node-2", end: true})
	want := `{"node":"node-2","outcome":"Failed","exitCode":3,"reason":"TaskFailed","message":"b","attempts":1,"startedAt":"2026-07-01T12:00:00Z",` +
		`"finishedAt":"2026-07-01T12:01:00Z","durationSeconds":60,"output":"a\u001b[2J\nb\u202ec\n"}`
	for range 2 { // the second time, nothing is new
		if diff := cmp.Diff([]string{want}, lines()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	r.observeLog(logPart{pod: "uid-of-node-1", data: []byte("begun\n")})
	r.view.Nodes[0].State = view.RunRunning
	_ = r.end(t.Context(), endDetached)
	if diff := cmp.Diff(
		[]string{want + "\n", `{"node":"node-1","outcome":"Running","output":"begun\n","truncated":true}`},
		lines(),
	); diff != "" {
		t.Errorf("at the end, -want +got:\n%s", diff)
	}
}

// TestTruncatedOutputOfANode checks that -o json and -o jsonl tell whether output is missing.
func TestTruncatedOutputOfANode(t *testing.T) {
	tests := map[string]struct {
		logged        string
		lost          error
		message       string
		wantTruncated bool
		wantCut       bool
	}{
		"the whole log": {logged: "all\n"},
		"a log that is longer than its limit": {
			logged:        strings.Repeat("0123456789\n", maxOutputBytes/10),
			wantTruncated: true,
			wantCut:       true,
		},
		"no log, and the whole output on record": {lost: errors.New("lost"), message: "all"},
		"no log, and the end on record":          {lost: errors.New("lost"), message: "…end", wantTruncated: true},
	}
	for name, tt := range tests {
		for _, output := range []string{"json", outputJSONLines} {
			t.Run(name+" "+output, func(t *testing.T) {
				r := newRun(t, &jobServer{uid: "uid-of-j"}, func(o *options) { o.output = output })
				withPods(r)
				for i := range r.view.Nodes {
					r.observeLog(logPart{pod: r.nodes[i].last, data: []byte(tt.logged)})
					r.observeLog(logPart{pod: r.nodes[i].last, end: true, err: tt.lost})
					r.view.Nodes[i].State, r.nodes[i].record = view.RunSucceeded, &record.Record{
						ExitCode: new(int32(0)),
						Message:  tt.message,
					}
				}
				r.draw()
				if err := r.end(t.Context(), endOver); err != nil {
					t.Fatal(err)
				}
				out := r.Out.(*clitest.Buffer).String()
				var all result
				if output == outputJSONLines {
					out = `{"nodes":[` + strings.ReplaceAll(strings.TrimSpace(out), "\n", ",") + `]}`
				}
				if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Nodes) != 2 {
					t.Fatal(err, out)
				}
				if n := all.Nodes[0]; n.Truncated != tt.wantTruncated || (n.OutputCut > 0) != tt.wantCut ||
					(n.OutputNote != "") != (tt.wantTruncated && !tt.wantCut) {
					t.Errorf("truncated: %v, cut: %d, note: %q", n.Truncated, n.OutputCut, n.OutputNote)
				}
			})
		}
	}
}

// TestARecordIsUsedOnce covers a node that is reported before the end of the run: its record is not added again.
func TestARecordIsUsedOnce(t *testing.T) {
	r, dir := savingRun(t)
	r.output = outputJSONLines
	for i := range r.view.Nodes {
		r.observeLog(logPart{pod: r.nodes[i].last, end: true, err: errors.New("lost")})
		r.view.Nodes[i].State, r.nodes[i].record = view.RunSucceeded, &record.Record{ExitCode: new(int32(0)), Message: "all"}
	}
	r.draw()
	if err := r.end(t.Context(), endOver); err != nil {
		t.Fatal(err)
	}
	if got := savedFiles(t, dir)["node-1.txt"]; got != "all\n" {
		t.Errorf("it is used as %q", got)
	}
}
