// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "testing"

func TestWhetherANodeIsDoneWithARevision(t *testing.T) {
	of := func(outcome Outcome, change func(*Record)) *Record {
		r := &Record{Revision: "new", Label: "new", Outcome: outcome}
		if change != nil {
			change(r)
		}
		return r
	}
	rerun := func(r *Record) { r.Rerun = true }
	for name, tt := range map[string]struct {
		label  string
		record *Record
		any    bool // a label of any revision counts
		want   bool
		before bool // the node has been done, with any revision
	}{
		"nothing is stored there":                             {"", nil, false, false, false},
		"the task has succeeded":                              {"new", of(Succeeded, nil), false, true, true},
		"a user has removed the label":                        {"", of(Succeeded, nil), false, false, true},
		"a user has skipped the node":                         {"new", nil, false, true, true},
		"a user has skipped the node after a failure":         {"new", of(Failed, nil), false, true, true},
		"the task has failed":                                 {"", of(Failed, nil), false, false, false},
		"the task was disrupted":                              {"", of(Disrupted, nil), false, false, false},
		"another revision has succeeded":                      {"old", of(Succeeded, func(r *Record) { r.Revision, r.Label = "old", "old" }), false, false, true},
		"another revision has succeeded, and any revision is": {"old", of(Succeeded, func(r *Record) { r.Revision, r.Label = "old", "old" }), true, true, true},
		"it succeeded while the label skipped another one":    {"old", of(Succeeded, func(r *Record) { r.Label = "old" }), false, true, true},
		"a check has said yes while the label skipped another one": {"old", of(Succeeded, func(r *Record) {
			r.Label, r.Assumed = "old", true
		}), false, true, true},
		"it succeeded, and a user has set the label to another": {"old", of(Succeeded, nil), false, false, true},
		"a rerun was disrupted":                                 {"new", of(Disrupted, rerun), false, false, true},
		"a rerun has failed, and a user has skipped the node":   {"new", of(Failed, rerun), false, true, true},
		"a rerun was disrupted, and a user has skipped it": {"new", of(Disrupted, func(r *Record) {
			r.Rerun, r.LabelRemoved = true, true
		}), false, true, true},
		"the run continues with a reboot":                 {"", of(Rebooting, nil), false, false, false},
		"the same on a node that has the label":           {"new", of(Rebooting, nil), false, false, true},
		"the revision is assumed to be done":              {"new", of(Succeeded, func(r *Record) { r.Assumed = true }), false, true, true},
		"the label of a node that was assumed is removed": {"", of(Succeeded, func(r *Record) { r.Assumed = true }), false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			on := NodeRecord{Label: tt.label, Record: tt.record}
			if got := on.DoneWith("new", tt.any); got != tt.want {
				t.Errorf("done: %v, want %v", got, tt.want)
			}
			if got := on.WasDone(); got != tt.before {
				t.Errorf("was done: %v, want %v", got, tt.before)
			}
		})
	}
}
