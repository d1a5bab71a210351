// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSurvivorsAreListed(t *testing.T) {
	const (
		pkg  = "cmd/everynode-mutants/testdata/decide"
		file = pkg + "/decide.go: "
	)
	*root, *count = "../..", 7
	list := "# a comment\n" +
		file + "Limit: n < 0 → <=\tthe limit of 0 is 1 as well\n" +
		file + "Limit: n < 0 → false\t" + unjudged + "\n" +
		file + "Start: paused → false\tthis expression was removed\n"
	lines, err := testPackage(pkg, reasons(list))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	want := []string{
		file + "Start: paused → false\tno longer exists: remove it from accepted.txt",
		file + "half: up → false\tline 29: no test reaches it",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
