// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/view"
)

func TestResultsAsJUnit(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	node := func(name string, rec record.Record) view.NodeResult {
		if rec.Revision == "" {
			rec.Revision = "new"
		}
		rec.FinishedAt = at.Add(90 * time.Second)
		return view.ResultOf(name, nil, &rec)
	}
	found := view.Results{Revision: "new", Nodes: []view.NodeResult{
		node(
			"a",
			record.Record{
				Outcome:   record.Succeeded,
				StartedAt: at,
				ExitCode:  new(int32(0)),
				Results:   map[string]string{"kernel": "6.1", "disk": "\x1b[2J\ufffe"},
			},
		),
		node(
			"b",
			record.Record{
				Outcome:   record.Failed,
				StartedAt: at,
				ExitCode:  new(int32(3)),
				Reason:    "TaskFailed",
				Message:   "no <disk> & \x00\n\x1b[2J]]>",
			},
		),
		node("c", record.Record{Outcome: record.Failed, Reason: "DeadlineExceeded"}),
		node("d", record.Record{Outcome: record.Disrupted, Reason: "Evicted"}),
		node("assumed", record.Record{Outcome: record.Succeeded, Assumed: true, Reason: "AssumedDone"}),
		node("e", record.Record{Outcome: record.Failed, Revision: "old", ExitCode: new(int32(1)), Reason: "TaskFailed"}),
	}}
	const want = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="ns/j" tests="6" failures="2" errors="0" skipped="3" time="180">
    <testcase classname="ns/j" name="a" time="90">
      <system-out>disk=\x1b[2J\ufffe&#xA;kernel=6.1&#xA;</system-out>
    </testcase>
    <testcase classname="ns/j" name="b" time="90">
      <failure type="TaskFailed" message="TaskFailed: exit code 3">no &lt;disk&gt; &amp; \x00&#xA;\x1b[2J]]&gt;</failure>
    </testcase>
    <testcase classname="ns/j" name="c" time="0">
      <failure type="DeadlineExceeded" message="DeadlineExceeded"></failure>
    </testcase>
    <testcase classname="ns/j" name="d" time="0">
      <skipped message="Disrupted: Evicted"></skipped>
    </testcase>
    <testcase classname="ns/j" name="assumed" time="0">
      <skipped message="AssumedDone: the task has not run, because the node matched spec.nodes.assumeDone"></skipped>
    </testcase>
    <testcase classname="ns/j" name="e" time="0">
      <skipped message="the current revision new has not ended there; the record is of revision old"></skipped>
    </testcase>
  </testsuite>
</testsuites>
`
	got, err := junitReport("ns/j", found)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var read junitSuites
	if err := xml.Unmarshal(
		got,
		&read,
	); err != nil || len(read.Suite.Cases) != 6 ||
		read.Suite.Cases[1].Failure.Text != "no <disk> & \\x00\n\\x1b[2J]]>" {
		t.Errorf("it is read as %+v (%v)", read, err)
	}
	if strings.ContainsRune(string(got), '\ufffd') {
		t.Error("a character was replaced")
	}
}
