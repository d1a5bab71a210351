// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/text"
)

func TestArchiveSentence(t *testing.T) {
	tests := map[string]struct {
		in   record.Archive
		want string
	}{
		"an output": {record.Archive{Phase: "task", Location: "s3://a", Stored: true, Bytes: 5}, "s3://a, 5 bytes"},
		"of a check": {
			record.Archive{Phase: "check", Location: "s3://a", Stored: true},
			"s3://a (output of the check after the reboot), 0 bytes",
		},
		"without a middle": {
			record.Archive{Phase: "rollback", Location: "s3://a", Stored: true, Bytes: 5, Dropped: 7},
			"s3://a (output of the rollback), 5 bytes; 7 bytes in the middle of the output were left out",
		},
		"not stored": {
			record.Archive{Phase: "task", Location: "s3://a", Error: "gone"},
			"the output is not archived: gone (it was to be s3://a)",
		},
		"a lost rollback": {
			record.Archive{Phase: "rollback", Location: "s3://a", Error: "gone"},
			"the output of the rollback is not archived: gone (it was to be s3://a)",
		},
		"an unknown phase": {record.Archive{Phase: "other", Location: "s3://a", Stored: true}, "s3://a, 0 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ArchiveSentence(&tt.in); got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
}

func TestExplainShowsTheArchive(t *testing.T) {
	in := plan.Input{Job: job(func(*v1alpha1.NodeJob) {}), Nodes: nodesOf(1, func(_ int, node *plan.Node) {
		ran(node, func(r *record.Record) {
			r.Archives = record.Archives{
				{Phase: "task", Location: "s3://a", Stored: true, Bytes: 5},
				{Phase: "rollback", Location: "s3://b", Error: "gone"},
			}
		})
	})}
	var lines []string
	for _, line := range explained(in).Lines() {
		lines = append(lines, line.Render(text.Options{}))
	}
	got := strings.Join(lines, "\n")
	for _, want := range []string{"\nArchive   s3://a, 5 bytes\n", "\nArchive   the output of the rollback is not archived: gone (it was to be s3://b)\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
}
