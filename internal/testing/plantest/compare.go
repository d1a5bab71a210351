// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plantest

import (
	"os"
	"path/filepath"
	"testing"
)

// CompareStory fails the test if a story differs from its file. If update is true, it writes the file first. pkg is the
// folder of the test's package, for the command that regenerates the file.
func CompareStory(t *testing.T, path, got string, update bool, pkg string) {
	t.Helper()
	if update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := Diff(string(want), got); diff != "" {
		t.Errorf("%s differs from what the planner does (- file, + planner).\n"+
			"If the change is intended: go test ./%s -run TestStories -update\n%s", path, pkg, diff)
	}
}
