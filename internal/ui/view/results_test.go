// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/nodejob/record"
)

func TestPreviousResultOf(t *testing.T) {
	results := map[string]string{"kernel": "6.1"}
	before := &record.Previous{Revision: "a", Outcome: record.Failed, Attempts: 2, ExitCode: new(int32(3)), Results: results}
	recorded := record.Record{
		Revision: "b",
		Outcome:  record.Succeeded,
		Attempts: 1,
		Results:  results,
		Reason:   "r",
		Message:  "m",
		Previous: before,
	}
	assumed := record.Record{Revision: "b", Outcome: record.Succeeded, Assumed: true}
	earlier := NodeResult{Node: "n", Outcome: "Failed", Revision: "a", Attempts: 2, ExitCode: new(int32(3)), Results: results}
	tests := map[string]struct {
		rec     record.Record
		current string
		want    NodeResult
		none    bool
	}{
		"a record of the current revision":     {rec: recorded, current: "b", want: earlier},
		"a current revision that is not known": {rec: recorded, want: earlier},
		"a record of an earlier revision":      {rec: recorded, current: "c", want: ResultOf("n", nil, &recorded)},
		"a node that was assumed done by the earlier": {
			rec:     assumed,
			current: "c",
			want:    NodeResult{Node: "n", Outcome: "AssumedDone", Revision: "b"},
		},
		"a node that is assumed done, and nothing more": {rec: assumed, current: "b", none: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := PreviousResultOf("n", nil, &tt.rec, tt.current)
			if diff := cmp.Diff(tt.want, got); diff != "" || ok == tt.none {
				t.Errorf("%t (-want +got):\n%s", ok, diff)
			}
		})
	}
}
