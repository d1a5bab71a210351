// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/outcome"
)

func TestArchiveOf(t *testing.T) {
	const location = "s3://outputs/a.log"
	tests := map[string]struct {
		reported *outcome.Archive
		want     Archive
	}{
		"the runner has stored the output": {
			&outcome.Archive{Stored: true, Bytes: 5, Dropped: 1, SHA256: "ab"},
			Archive{Phase: "task", Location: location, Stored: true, Bytes: 5, Dropped: 1, SHA256: "ab"},
		},
		"the runner has not stored the output": {outcome.NotStored("gone"), Archive{Phase: "task", Location: location, Error: "gone"}},
		"the runner was killed":                {nil, Archive{Phase: "task", Location: location, Error: NotReported}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ArchiveOf("task", location, tt.reported)); diff != "" {
				t.Errorf("archive (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnArchiveReplacesThatOfItsPhase(t *testing.T) {
	before := Archives{{Phase: "task", Location: "a"}, {Phase: "rollback", Location: "b"}}
	got := before.With(Archive{Phase: "rollback", Location: "c"})
	if diff := cmp.Diff(Archives{{Phase: "task", Location: "a"}, {Phase: "rollback", Location: "c"}}, got); diff != "" {
		t.Errorf("archives (-want +got):\n%s", diff)
	}
	if before[1].Location != "b" {
		t.Error("the archives before were changed")
	}
}

func TestArchivesAreBounded(t *testing.T) {
	valid := Archive{Phase: "check", Location: "s3://outputs/a.log", Stored: true}
	tests := map[string]struct {
		in   Archive
		want Archives
	}{
		"a valid one":                        {valid, Archives{valid}},
		"an unknown phase":                   {Archive{Phase: "other", Location: "s3://a"}, nil},
		"no location":                        {Archive{Phase: "task"}, nil},
		"a location with an escape sequence": {Archive{Phase: "task", Location: "s3://a\x1b[2J"}, nil},
		"a location with a space":            {Archive{Phase: "task", Location: "s3://a b"}, nil},
		"a location with a command":          {Archive{Phase: "task", Location: "s3://a;reboot"}, nil},
		"a location with a substitution":     {Archive{Phase: "task", Location: "s3://a$(reboot)"}, nil},
		"a location that is an option":       {Archive{Phase: "task", Location: "--endpoint-url=https://a"}, nil},
		"a location of a server": {
			Archive{Phase: "task", Location: "http://[::1]:80/a_b=c-d.log", Stored: true},
			Archives{{Phase: "task", Location: "http://[::1]:80/a_b=c-d.log", Stored: true}},
		},
		"a location beyond ASCII": {Archive{Phase: "task", Location: "s3://\u0430"}, nil},
		"a location with all kinds of letters": {
			Archive{Phase: "task", Location: "s3://AZaz09", Stored: true},
			Archives{{Phase: "task", Location: "s3://AZaz09", Stored: true}},
		},
		"a location of the maximum length": {
			Archive{Phase: "task", Location: "s3://" + strings.Repeat("a", 1019), Stored: true},
			Archives{{Phase: "task", Location: "s3://" + strings.Repeat("a", 1019), Stored: true}},
		},
		"a location that is too long": {Archive{Phase: "task", Location: "s3://" + strings.Repeat("a", 1020)}, nil},
		"an error with an escape sequence": {
			Archive{Phase: "task", Location: "s3://a", Error: "\x1b"},
			Archives{{Phase: "task", Location: "s3://a", Error: `\x1b`}},
		},
		"a negative size": {
			Archive{Phase: "task", Location: "s3://a", Stored: true, Bytes: -1},
			Archives{{Phase: "task", Location: "s3://a", Stored: true}},
		},
		"an output that is stored and is not": {
			Archive{Phase: "task", Location: "s3://a", Stored: true, Error: "x"},
			Archives{{Phase: "task", Location: "s3://a", Stored: true}},
		},
		"an output that is not stored, no why": {
			Archive{Phase: "task", Location: "s3://a"},
			Archives{{Phase: "task", Location: "s3://a", Error: "it is not known why"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Archives{tt.in}.bounded()); diff != "" {
				t.Errorf("archives (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAtMostThreeArchivesAreKept(t *testing.T) {
	var many Archives
	for range 10 {
		many = append(many, Archive{Phase: "task", Location: "s3://a", Stored: true})
	}
	if got := many.bounded(); len(got) != maxArchives {
		t.Errorf("%d are kept", len(got))
	}
}

func TestArchivesThatCannotBeReadLeaveTheRecordReadable(t *testing.T) {
	for _, archives := range []string{`"none"`, `[{"phase":"task","location":"s3://a","stored":true},7]`} {
		got, err := Decode(
			`{"revision":"r","outcome":"Succeeded","attempts":1,"finishedAt":"2026-03-01T12:00:00Z","archives":` + archives + `,"podUID":"p"}`,
		)
		if err != nil || got.Archives != nil || got.Outcome != Succeeded {
			t.Errorf("%s: read %+v, %v", archives, got, err)
		}
	}
}
