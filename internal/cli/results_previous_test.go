// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/cli/clitest"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestResultsOfThePreviousRevision has a node that was changed, one that was not changed yet, and one that has joined
// since. The current revision is new.
func TestResultsOfThePreviousRevision(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	of := func(revision, swappiness string, previous *record.Previous) record.Record {
		return record.Record{
			Revision: revision, Outcome: record.Succeeded, Attempts: 1, ExitCode: new(int32(0)), FinishedAt: at,
			Results: map[string]string{"swappiness": swappiness}, Previous: previous,
		}
	}
	before := &record.Previous{
		Revision:   "old",
		Outcome:    record.Failed,
		Attempts:   2,
		ExitCode:   new(int32(3)),
		FinishedAt: at,
		Results:    map[string]string{"swappiness": "60"},
	}
	changed := nodeWith("changed", map[string]string{"pool": "db"}, of("new", "10", before))
	unchanged := nodeWith(
		"unchanged",
		nil,
		of("old", "60", &record.Previous{Revision: "oldest", Outcome: record.Succeeded, Results: map[string]string{"swappiness": "30"}}),
	)
	joined := nodeWith("joined", nil, of("new", "10", nil))
	all := []metav1.PartialObjectMetadata{unchanged, joined, changed, {ObjectMeta: metav1.ObjectMeta{Name: "without-a-record"}}}
	alike := nodeWith(
		"alike",
		nil,
		of(
			"new",
			"60",
			&record.Previous{
				Revision: "old",
				Outcome:  record.Succeeded,
				ExitCode: new(int32(0)),
				Results:  map[string]string{"swappiness": "60"},
			},
		),
	)
	tests := map[string]struct {
		nodes []metav1.PartialObjectMetadata
		args  []string
		code  int
		// want is on stdout, with single spaces and without the ages; told is on stderr.
		want, told string
	}{
		"a table": {
			nodes: all, args: []string{"--previous"},
			want: "NODE OUTCOME EXIT REVISION swappiness\nchanged Failed 3 old 60\nunchanged Succeeded 0 old 60",
		},
		"by a result": {nodes: all, args: []string{"-p", "--by", "swappiness"}, want: "swappiness NODES NAMES\n60 2 changed, unchanged"},
		"by a label":  {nodes: all, args: []string{"-p", "--by", "pool"}, want: "pool NODES NAMES\n(none) 1 unchanged\ndb 1 changed"},
		"for programs": {
			nodes: all[2:],
			args:  []string{"-p", "-o", "csv"},
			want:  "node,outcome,exitCode,attempts,revision,finishedAt,swappiness\nchanged,Failed,3,2,old,2026-07-01T12:00:00Z,60",
		},
		"no node has any": {
			nodes: all[1:2], args: []string{"-p"}, told: "no node has results of an earlier revision of NodeJob ns/j\n",
		},
		"what differs": {
			nodes: all,
			args:  []string{"--diff-previous"},
			code:  cmdutil.ExitDiffers,
			want:  "NODE RESULT CURRENT PREVIOUS\nchanged exitCode 0 3\nchanged outcome Succeeded Failed\nchanged swappiness 10 60\njoined outcome Succeeded (none)\nunchanged outcome (none) Succeeded",
		},
		"nothing differs": {
			nodes: []metav1.PartialObjectMetadata{alike}, args: []string{"--diff-previous"},
			told: "no differences between the current and the previous revision on 1 node\n",
		},
		"nothing to compare with": {
			nodes: all[1:2], args: []string{"--diff-previous"}, code: cmdutil.ExitNotFound,
		},
		"groups of differences":         {args: []string{"--diff-previous", "--by", "kernel"}, code: cmdutil.ExitUsage},
		"differences for a spreadsheet": {args: []string{"--diff-previous", "-o", "csv"}, code: cmdutil.ExitUsage},
		"both comparisons":              {args: []string{"--diff-previous", "--diff", "other"}, code: cmdutil.ExitUsage},
		"a comparison of one revision":  {args: []string{"--previous", "--diff-previous"}, code: cmdutil.ExitUsage},
		"a report":                      {args: []string{"--previous", "-o", "junit"}, code: cmdutil.ExitUsage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case clitest.JobsPath + "/j":
					clitest.Respond(w, clitest.NodeJob("j"))
				case clitest.NodesPath:
					clitest.Respond(
						w,
						metav1.PartialObjectMetadataList{
							TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
							Items:    tt.nodes,
						},
					)
				default:
					clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.String())
				}
			}))
			code := command(t, f, append([]string{"results", "j"}, tt.args...)...)
			if got := squeezed(out.String()); code != tt.code || got != tt.want {
				t.Errorf("exit code %d, want %d\n%s\nwant\n%s", code, tt.code, got, tt.want)
			}
			if errs.String() != tt.told {
				t.Errorf("told %q, want %q", errs.String(), tt.told)
			}
		})
	}
}
