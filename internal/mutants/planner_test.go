// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutants_test shows that the tests of the planners are effective. It puts each mistake of a list into a
// planner. The random histories of that planner must find it, or its table tests, if histories rarely reach the
// situation.
//
// testdata/found.json has the history or the test that found each mistake last, which is tried first. After a change of the histories, many
// must be searched again, which takes 20 minutes: go test ./internal/mutants -timeout 1h -update writes what was found.
//
// A mistake that was found is not tested again while the planner, its tests and the list are unchanged: the
// cache of go test knows the packages that are imported here, and the files that a test opens.
package mutants_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
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
	// byHistories are the mistakes that the histories of another test than TestRandomHistories must find, by the name of that test.
	byHistories map[string][]string
	// bySweep are the mistakes that the sweep of the manager must find, and the scenario of each.
	bySweep map[string]string
	// byWorlds is a mistake for each small world, which the exploration of that world must find.
	byWorlds map[string]string
}

var (
	// worlds lists the mistakes that no random history finds, and the exploration of all small worlds does, each up to 1,000 states:
	//
	//	go test ./internal/mutants -v -timeout 5h -worlds
	worlds = flag.Bool("worlds", false, "find the mistakes that no history finds by exploring small worlds; the others are skipped")
	update = flag.Bool("update", false, "write where each mistake was found to testdata/found.json")
)

// The names of what fails: in a history, and in another test.
var (
	brokenHistory = regexp.MustCompile(`seed -?(\d+): .*`)
	brokenWorld   = regexp.MustCompile(`--- FAIL: TestExplore\w*/\S+`)
	failedTest    = regexp.MustCompile(`--- FAIL: (\w+)`)
)

func (p planner) test(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, p.pkg)
	open(t, dir)
	for _, name := range slices.Concat(append(slices.Collect(maps.Values(p.byHistories)), slices.Collect(maps.Keys(p.bySweep)))...) {
		if _, ok := p.mutants[name]; !ok {
			t.Errorf("there is no mistake %q: update the list", name)
		}
	}
	program := build(t, root, p.pkg, p.mutants)
	for world, name := range p.byWorlds {
		t.Run("world "+world, func(t *testing.T) {
			t.Parallel()
			out, found := run(t, dir, program, name, brokenWorld, "-test.run=^TestExplore/^"+world+"$")
			if found == "" {
				t.Fatalf("the world does not find: %s\n%s", name, out)
			}
			t.Logf("%s: %s", found, name)
		})
	}
	known := readFound(t)
	finds := &finds{by: maps.Clone(known[p.pkg])}
	maps.DeleteFunc(finds.by, func(name, _ string) bool { _, ok := p.mutants[name]; return !ok })
	for name := range p.mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := known[p.pkg][name]
			if last == "" && !*update {
				t.Fatal(
					"testdata/found.json does not say what finds it: go test ./internal/mutants -timeout 1h -run 'TestName/^name$' -update",
				)
			}
			if *worlds && strings.Contains(last, " ") {
				t.Skip("a history finds it: " + last)
			}
			tries := p.tries(name, last)
			if *worlds {
				tries = []try{{[]string{"-test.run=^TestExplore", "-test.failfast", "-states=1000"}, brokenWorld}}
			}
			var outs []string
			for i, try := range tries {
				out, found := run(t, dir, program, name, try.sign, try.args...)
				if outs = append(outs, out); found != "" {
					t.Logf("%s", found)
					if i > 0 && !*update {
						t.Logf("no longer found by %s: update testdata/found.json, because to search takes a minute", last)
					}
					finds.note(name, p.nameOf(name, found))
					return
				}
			}
			if *worlds {
				t.Skip("no world finds the mistake")
			}
			t.Fatalf("no test finds the mistake:\n%s", strings.Join(outs, "\n"))
		})
	}
	if *update {
		t.Cleanup(func() { known[p.pkg] = finds.by; writeFound(t, known) })
	}
}

// foundFile has, for each package and each mistake, what has found it: "TestRandomHistories 14" for a history, or the name of a test.
const foundFile = "testdata/found.json"

func readFound(t *testing.T) (all map[string]map[string]string) {
	t.Helper()
	text, err := os.ReadFile(foundFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func writeFound(t *testing.T, all map[string]map[string]string) {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foundFile, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// finds are what has found the mistakes of a package.
type finds struct {
	mu sync.Mutex
	by map[string]string
}

func (f *finds) note(name, by string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]string{}
	}
	f.by[name] = by
}

// try is a way to find a mistake: the arguments of the test, and the sign of what has failed.
type try struct {
	args []string
	sign *regexp.Regexp
}

// tries are the ways to find a mistake: what has found it last, all histories, and all other tests.
func (p planner) tries(name, last string) (all []try) {
	if scenario := p.bySweep[name]; scenario != "" {
		return []try{{[]string{"-test.run=^TestSweep$/^" + scenario + "$", "-stride=3"}, failedTest}}
	}
	test, seed, isHistory := strings.Cut(last, " ")
	switch {
	case isHistory:
		all = append(all, try{[]string{"-test.run=^" + test + "$", "-from=" + seed, "-histories=1"}, brokenHistory})
	case last != "":
		all = append(all, try{[]string{"-test.run=^" + test + "$"}, failedTest})
	}
	return append(all,
		try{[]string{"-test.run=^" + p.historiesOf(name) + "$", "-histories=" + p.histories}, brokenHistory},
		try{[]string{"-test.skip=^(TestRandomHistories|TestStories|TestExplore.*)$", "-test.failfast"}, failedTest})
}

// nameOf is the entry of a mistake in the file.
func (p planner) nameOf(name, found string) string {
	if m := brokenHistory.FindStringSubmatch(found); m != nil {
		return p.historiesOf(name) + " " + m[1]
	}
	return failedTest.FindStringSubmatch(found)[1]
}

// run runs a test with a mistake, and returns what it has found, by the sign of it.
func run(t *testing.T, dir, program, name string, sign *regexp.Regexp, args ...string) (out, found string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "EVERYNODE_MUTANT="+name)
	text, err := cmd.CombinedOutput()
	if found = string(sign.Find(text)); err != nil && found == "" {
		t.Fatalf("the tests failed for another reason: %v\n%s", err, text)
	}
	if err == nil {
		return string(text), ""
	}
	return string(text), found
}

// historiesOf is the test whose histories must find a mistake.
func (p planner) historiesOf(name string) string {
	for test, names := range p.byHistories {
		if slices.Contains(names, name) {
			return test
		}
	}
	return "TestRandomHistories"
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

// build compiles the tests of the planner with all mistakes, in an overlay. The files themselves are not changed.
func build(t *testing.T, root, pkg string, mutants map[string]mutant) string {
	t.Helper()
	dir := t.TempDir()
	byFile, replaced := map[string]map[string]mutant{}, map[string]string{}
	for name, m := range mutants {
		file := filepath.Join(root, pkg, m.file)
		if byFile[file] == nil {
			byFile[file] = map[string]mutant{}
		}
		byFile[file][name] = m
	}
	write := func(file, content string) {
		replaced[file] = filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(file, root), "/", "_"))
		if err := os.WriteFile(replaced[file], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, here := range byFile {
		name, content := withMutants(t, file, here)
		write(file, content)
		write(
			filepath.Join(filepath.Dir(file), "zz_mutant.go"),
			"package "+name+"\n\nimport \"os\"\n\nvar mutant = os.Getenv(\"EVERYNODE_MUTANT\")\n",
		)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "planner.test")
	cmd := exec.CommandContext(
		t.Context(),
		"go",
		"test",
		"-c",
		"-vet=off",
		"-overlay",
		filepath.Join(dir, "overlay.json"),
		"-o",
		program,
		"./"+pkg,
	)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compiling: %v\n%s", err, out)
	}
	return program
}

// withMutants returns the package of a file, and its text with all mistakes: each function that has any gets a copy for each of
// them, and calls it if $EVERYNODE_MUTANT names that mistake.
func withMutants(t *testing.T, file string, mutants map[string]mutant) (pkg, text string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	copies := map[*ast.FuncDecl][]string{}
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		m := mutants[name]
		if n := strings.Count(string(source), m.was); n != 1 {
			t.Errorf("%s has the text %d times, want once: update the list\n%s", m.file, n, m.was)
			continue
		}
		at := strings.Index(string(source), m.was)
		i := slices.IndexFunc(tree.Decls, func(d ast.Decl) bool {
			f, ok := d.(*ast.FuncDecl)
			return ok && offset(f.Pos()) <= at && at+len(m.was) <= offset(f.End())
		})
		if i < 0 {
			t.Errorf("%s has the text in no function\n%s", m.file, m.was)
			continue
		}
		f := tree.Decls[i].(*ast.FuncDecl)
		copies[f] = append(copies[f], name)
	}
	var out strings.Builder
	last := 0
	for _, d := range tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || copies[f] == nil {
			continue
		}
		part := func(from, to token.Pos) string { return string(source[offset(from):offset(to)]) }
		original, name := part(f.Pos(), f.End()), offset(f.Name.End())-offset(f.Pos())
		named := func(text string, suffix int) string {
			return fmt.Sprintf("\n\n%s_%d%s", text[:name], suffix, text[name:])
		}
		out.Write(source[last:offset(f.Pos())])
		last = offset(f.End())
		out.WriteString(dispatcher(f, part, copies[f]) + named(original, 0))
		for i, mistake := range copies[f] {
			out.WriteString(named(strings.Replace(original, mutants[mistake].was, mutants[mistake].is, 1), i+1))
		}
	}
	out.Write(source[last:])
	return tree.Name.Name, out.String()
}

// dispatcher is a function in place of f, which calls the copy of f with the mistake that $EVERYNODE_MUTANT names.
func dispatcher(f *ast.FuncDecl, part func(from, to token.Pos) string, names []string) string {
	var params, args []string
	for _, field := range f.Type.Params.List {
		for range max(1, len(field.Names)) {
			arg := fmt.Sprintf("p%d", len(args))
			params = append(params, arg+" "+part(field.Type.Pos(), field.Type.End()))
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	head, call, results := "func ", f.Name.Name, ""
	if f.Recv != nil {
		head += "(r " + part(f.Recv.List[0].Type.Pos(), f.Recv.List[0].Type.End()) + ") "
		call = "r." + call
	}
	head += f.Name.Name
	if list := f.Type.TypeParams; list != nil {
		head += part(list.Pos(), list.End())
	}
	if list := f.Type.Results; list != nil {
		results = part(list.Pos(), list.End())
	}
	run := func(suffix int) string {
		text := fmt.Sprintf("%s_%d(%s)", call, suffix, strings.Join(args, ", "))
		if results != "" {
			return "return " + text
		}
		return text
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s(%s) %s {\n\tswitch mutant {\n", head, strings.Join(params, ", "), results)
	for i, name := range names {
		fmt.Fprintf(&b, "\tcase %q:\n\t\t%s\n", name, run(i+1))
	}
	fmt.Fprintf(&b, "\tdefault:\n\t\t%s\n\t}\n}", run(0))
	return b.String()
}
