// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package prereq

import (
	"context"
	"io"
	"strings"
	"testing"
)

func never(context.Context) bool  { return false }
func always(context.Context) bool { return true }

func TestAllMissingProgramsAreReportedAtOnce(t *testing.T) {
	needs := []Requirement{
		{"the program one", "package-one", never},
		{"the program two", "package-two", always},
		{"the program three", "package-three", never},
	}
	missing := Missing(t.Context(), needs)
	if len(missing) != 2 {
		t.Fatalf("missing %+v", missing)
	}
	got := explain(missing, "it cannot be installed").Error()
	for _, want := range []string{"the program one", "apt-get install package-one package-three"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "package-two") {
		t.Errorf("%q names installed programs", got)
	}
}

func TestNothingIsInstalledIfNothingIsMissing(t *testing.T) {
	var progress strings.Builder
	if err := Ensure(t.Context(), &progress, []Requirement{{"a program", "package", always}}); err != nil || progress.Len() > 0 {
		t.Errorf("%v, %q", err, progress.String())
	}
	if err := Ensure(t.Context(), io.Discard, nil); err != nil {
		t.Error(err)
	}
}
