// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutants_test shows that the tests of the planners are effective. It puts each mistake of a list into a
// planner. The random histories of that planner must find it, or its table tests, if histories rarely reach the
// situation.
//
// A mistake that was found is not tested again while the planner, its tests and the list are unchanged: the
// cache of go test knows the packages that are imported here, and the files that a test opens.
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

// mutant is one mistake: a text that occurs once in a file of the planner, or of a package that it uses, and its replacement.
type mutant struct{ file, was, is string }

// planner is a package whose tests must find mistakes.
type planner struct {
	pkg string
	// histories is how many random histories must find a mistake.
	histories string
	mutants   map[string]mutant
	// byTables are the mistakes that need a situation that histories rarely reach.
	byTables []string
}

// The names of what fails: in a history, and in another test.
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
			t.Errorf("there is no mistake %q: update the list", name)
		}
	}
	for name, m := range p.mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := build(t, root, p.pkg, m)
			args, sign := []string{"-test.run=^TestRandomHistories$", "-histories=" + p.histories}, brokenHistory
			if slices.Contains(p.byTables, name) {
				args, sign = []string{"-test.skip=^(TestRandomHistories|TestStories)$", "-test.failfast"}, failedTest
			}
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			found := sign.Find(out)
			switch {
			case err == nil:
				t.Fatal("no test finds the mistake")
			case found == nil:
				t.Fatalf("the tests failed for another reason: %v\n%s", err, out)
			}
			t.Logf("%s", found)
		})
	}
}

// open reads the files of a package, including its tests, so that go test knows that the result depends on them.
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

// build compiles the tests of the planner with the mistake in place of the text, in an overlay. The file itself is not
// changed.
func build(t *testing.T, root, pkg string, m mutant) string {
	t.Helper()
	file := filepath.Join(root, pkg, m.file)
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.was); n != 1 {
		t.Fatalf("%s has the text %d times, want once: update the list\n%s", m.file, n, m.was)
	}
	dir := t.TempDir()
	mutated := filepath.Join(dir, filepath.Base(m.file))
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
	// Without inlining, compiling takes a third less time, which is most of the time of these tests.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "test", "-c", "-vet=off", "-gcflags=-l",
		"-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./"+pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compiling: %v\n%s", err, out)
	}
	return program
}
