// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutants_test shows that the tests of the planners have teeth: each of a list of mistakes is put into a
// planner, and its random histories must find it, or its tables where histories seldom meet the moment.
//
// What was found once is not looked for again as long as the planner, its tests and the list are the same: go test's
// own cache knows the packages that are imported here, and the files that a test opens.
package mutants_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mutant is one mistake: the text in a file of the planner, which is there once, and what is put in its place.
type mutant struct{ file, was, is string }

// planner is a package whose tests must find mistakes.
type planner struct {
	pkg string
	// histories is how many random histories have to find a mistake.
	histories string
	mutants   map[string]mutant
	// byTables are the mistakes that need a moment that histories seldom meet.
	byTables []string
}

// The names of what is broken: by a history, and by another test.
var (
	brokenHistory = regexp.MustCompile(`seed -?\d+: .*`)
	failedTest    = regexp.MustCompile(`--- FAIL: \S+`)
)

func (p planner) test(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, p.pkg)
	open(t, dir)
	for _, name := range p.byTables {
		if _, ok := p.mutants[name]; !ok {
			t.Errorf("no mistake is called %q: bring the list up to date", name)
		}
	}
	for name, m := range p.mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := build(t, root, p.pkg, m)
			args, sign := []string{"-test.run=^TestRandomHistories$", "-histories=" + p.histories}, brokenHistory
			if slices.Contains(p.byTables, name) {
				args, sign = []string{"-test.skip=^TestRandomHistories$", "-test.failfast"}, failedTest
			}
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			found := sign.Find(out)
			switch {
			case err == nil:
				t.Fatal("nothing finds it")
			case found == nil:
				t.Fatalf("something else went wrong: %v\n%s", err, out)
			}
			t.Logf("%s", found)
		})
	}
}

// open reads the files of a package, tests too, so that go test knows that the result depends on them.
func open(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has the files %q, %v", dir, files, err)
	}
	for _, file := range files {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
}

// build compiles the planner's tests with the mistake in place of the text, in an overlay: the file itself is left
// alone.
func build(t *testing.T, root, pkg string, m mutant) string {
	t.Helper()
	file := filepath.Join(root, pkg, m.file)
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.was); n != 1 {
		t.Fatalf("%s has the text %d times, want once: bring the list up to date\n%s", m.file, n, m.was)
	}
	dir := t.TempDir()
	mutated := filepath.Join(dir, m.file)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{
		mutated:                            []byte(strings.Replace(string(source), m.was, m.is, 1)),
		filepath.Join(dir, "overlay.json"): overlay,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "plan.test")
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "test", "-c", "-vet=off",
		"-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./"+pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compiling: %v\n%s", err, out)
	}
	return program
}
