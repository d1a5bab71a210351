// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// writeOf is the write of the outcome of an attempt.
func writeOf(t *testing.T, in Input) Record {
	t.Helper()
	p := Next(in)
	for _, action := range p.Actions {
		if r, is := action.(Record); is {
			return r
		}
	}
	t.Fatalf("actions %v, want a record", told(p))
	return Record{}
}

func TestAFailureOnANodeWithARecordIsNotCalledQuarantined(t *testing.T) {
	for name, tt := range map[string]struct {
		node func(*Node)
		want bool
	}{
		"it is quarantined":     {recorded(record.Failed, wasCordoned), true},
		"it is not quarantined": {recorded(record.Failed), false},
		"it has no record":      {func(*Node) {}, false},
	} {
		node := newNode("n", tt.node)
		if got := writeOf(t, see(newJob(), []Node{node}, newPod(node, exited(1)))).Quarantine; got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// Without a pod, only the version of the node shows whether the record has changed since it was read.
func TestTheEndOfARunByTimeIsWrittenToTheObservedVersion(t *testing.T) {
	node := newNode(
		"n",
		recorded(record.Rebooting, func(r *record.Record) { r.Reboot.StartedAt = ago(300) }),
		func(n *Node) { n.ResourceVersion = "7" },
	)
	if got := writeOf(
		t,
		see(newJob(rebootingAs(v1alpha1.RebootAlways)), []Node{node}),
	); got.ResourceVersion != "7" ||
		got.Record.Outcome != record.Failed {
		t.Errorf("%+v, want a failure in version 7", got)
	}
}

// TestLabelAfterAnAttempt tests what becomes of the label of a node when an attempt ends.
func TestLabelAfterAnAttempt(t *testing.T) {
	old := func(r *record.Record) { r.Revision, r.Label = "old", "old" }
	on := func(label string, change func(*record.Record)) func(*Node) {
		return func(n *Node) {
			recorded(record.Succeeded, change)(n)
			n.On.Label = label
		}
	}
	gone := func(r *record.Record) { r.MachineID = "gone" }
	var success, failure, disruption = record.Record{Outcome: record.Succeeded}, record.Record{Outcome: record.Failed, Reason: "TaskFailed"}, record.Record{Outcome: record.Disrupted}
	notDrained, notDrainedAgain, notBegun := failure, failure, failure
	notBegun.NotStarted = true
	notDrained.Reason, notDrainedAgain.Reason, notDrainedAgain.Rerun = v1alpha1.ReasonDrainTimedOut, v1alpha1.ReasonDrainTimedOut, true
	notDrained.NotStarted, notDrainedAgain.NotStarted = true, true
	notStarted, notAnswered, reboot := disruption, disruption, record.Record{Outcome: record.Rebooting}
	notStarted.NeverStarted, notAnswered.CheckBefore = true, record.AnswerError
	for name, tt := range map[string]struct {
		node       func(*Node)
		end        record.Record
		drop, keep bool
		label      string // that the manager has set
	}{
		"a success":                                            {func(*Node) {}, success, false, false, rev},
		"a failure without a label":                            {func(*Node) {}, failure, false, false, ""},
		"a failure after an earlier revision":                  {on("old", old), failure, true, false, ""},
		"a failure in a rerun":                                 {on(rev, func(*record.Record) {}), failure, true, false, ""},
		"a failure on another machine":                         {on("old", func(r *record.Record) { old(r); gone(r) }), failure, true, false, ""},
		"a failure on another machine that a user has skipped": {on(rev, func(r *record.Record) { old(r); gone(r) }), failure, true, false, ""},
		"a failure on a node that a user has skipped":          {on(rev, old), failure, false, false, ""},
		"a failure with a label of a user":                     {on("other", old), failure, true, false, ""},
		"a disruption after an earlier revision":               {on("old", old), disruption, true, false, ""},
		"a disruption before the task has started":             {on("old", old), notStarted, false, false, "old"},
		"a disruption of a check before the task":              {on("old", old), notAnswered, false, false, "old"},
		"a disruption of a rerun":                              {on(rev, func(*record.Record) {}), disruption, false, false, rev},
		"a disruption on a node that a user has skipped":       {on(rev, old), disruption, false, false, ""},
		"a reboot after an earlier revision":                   {on("old", old), reboot, true, false, ""},
		"a reboot of a rerun":                                  {on(rev, func(*record.Record) {}), reboot, false, false, rev},
		"a disruption on another machine":                      {on("old", func(r *record.Record) { old(r); gone(r) }), disruption, true, false, ""},
		"a disruption after a user has removed the label":      {on("", old), disruption, false, false, ""},
		"a drain that times out after an earlier revision":     {on("old", old), notDrained, false, false, "old"},
		"a failure before the task of another revision":        {on("old", old), notBegun, false, false, "old"},
		"a failure before the task of the same revision":       {on(rev, func(*record.Record) {}), notBegun, true, false, ""},
		"a drain that times out in a rerun":                    {on(rev, func(*record.Record) {}), notDrainedAgain, true, false, ""},
		"a success on a node that a user has skipped":          {on(rev, old), success, false, true, ""},
		"a success with a label, and without a record":         {labelled(rev), success, false, false, rev},
	} {
		node := newNode("n", tt.node)
		p := newPlanner(see(newJob(), []Node{node}))
		r := tt.end
		r.Revision, r.MachineID = rev, node.MachineID
		r.LabelRemoved = true // of the record before: it says nothing about the label after this one
		a := Record{Change: record.Change{Record: &r}}
		p.recorder.setLabel(&node, &a)
		if r.LabelRemoved {
			t.Errorf("%s: the label counts as removed", name)
		}
		if a.DropLabel != tt.drop || a.KeepLabel != tt.keep || r.Label != tt.label {
			t.Errorf(
				"%s: dropped %t, kept %t, label %q, want %t, %t, %q",
				name,
				a.DropLabel,
				a.KeepLabel,
				r.Label,
				tt.drop,
				tt.keep,
				tt.label,
			)
		}
	}
}

// TestSkippedNodes tests whether the label of a node is that of a user who skips an attempt.
func TestSkippedNodes(t *testing.T) {
	for name, tt := range map[string]struct {
		current, label string
		record         *record.Record
		want           bool
	}{
		"the label is of the attempt":            {"new", rev, nil, true},
		"the label is of the current revision":   {"new", "new", nil, true},
		"the label is of another revision":       {"new", "other", nil, false},
		"there is no label":                      {"", "", &record.Record{Label: "old"}, false},
		"the manager has set the label":          {"new", rev, &record.Record{Label: rev}, false},
		"a user has set the label a second time": {"new", rev, &record.Record{Label: rev, LabelRemoved: true}, true},
	} {
		node := newNode("n", func(n *Node) { n.On.Label, n.On.Record = tt.label, tt.record })
		if got := (&recorder{job: &job{policy: policy{in: Input{Revision: tt.current}}}}).skipped(&node, rev); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// A success with an earlier revision leaves the label with which a user has skipped the current one.
func TestASuccessIsMarkedByItsLabel(t *testing.T) {
	for name, tt := range map[string]struct {
		node func(*Node)
		want bool
	}{
		"the label is of the success":                   {labelled(rev), true},
		"the label is of the success, and has a record": {func(n *Node) { recorded(record.Failed)(n); labelled(rev)(n) }, false},
		"the label is of another revision":              {labelled("other"), false},
	} {
		if got := marksSuccess(new(newNode("n", tt.node)), &record.Record{Revision: rev}); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
