// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Everynode-mutants changes each decision of a package, one at a time, and lists the changes that no test of the package, or of the
// packages named after it, finds. All of them are compiled into one test program for each package with tests, so each costs only the
// time of the tests: first all but the random histories, the stories and the explored worlds, then random histories, and then the worlds.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// accepted are the mutants that no test needs to find: a key, a tab, and the reason, in each line.
//
//go:embed accepted.txt
var accepted string

const (
	unjudged = "not yet judged"
	// histories are the tests that are not tables.
	histories = "^Test(RandomHistories|Histories.*|Stories|Explore.*)$"
)

var (
	root  = flag.String("root", ".", "the folder of the repository")
	count = flag.Int("histories", 1500, "how many random histories to play for a mutant that no table finds; none if 0")
	small = flag.Int("states", 1000, "how many states of each small world to explore for a mutant that nothing else finds; none if 0")
	run   = flag.String("run", "", "a regular expression of the mutants to test, which are named as in accepted.txt")
	all   = flag.Bool("all", false, "test also the accepted mutants, and list those that are found now")
)

func main() {
	flag.Parse()
	failed := false
	for _, pkg := range flag.Args() {
		lines, err := testPackage(pkg, reasons(accepted))
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", pkg, err)
			os.Exit(2)
		}
		failed = failed || len(lines) > 0
	}
	if failed {
		fmt.Fprintf(os.Stderr, "Find each of these with a table test. If it is equivalent, add its line to test/cmd/everynode-mutants/accepted.txt, with the reason after the tab.\n")
		os.Exit(1)
	}
}

// reasons returns why mutants are accepted, by key.
func reasons(list string) map[string]string {
	byKey := map[string]string{}
	for line := range strings.Lines(list) {
		if key, reason, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && !strings.HasPrefix(key, "#") {
			byKey[key] = reason
		}
	}
	return byKey
}

// program is the tests of a package, and of others that use it, with all mutants of the package.
type program struct {
	dir     string // of the package
	mutants []mutant
	suites  []*suite // the fastest of each test program first
}

// suite is a part of the tests of a package.
type suite struct {
	dir, path string
	args      []string
	worlds    bool
	limit     time.Duration
	reached   map[string]bool
}

// testPackage tests the mutants of a package with its own tests, and with those of the packages after it, separated by commas. It prints and returns a line for each that survives and is not accepted, and for each
// that should not be in the list of accepted ones.
func testPackage(pkg string, why map[string]string) ([]string, error) {
	only, err := regexp.Compile(*run)
	if err != nil {
		return nil, fmt.Errorf("reading -run: %w", err)
	}
	tmp, err := os.MkdirTemp("", "everynode-mutants")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	pkgs := strings.Split(pkg, ",")
	p, err := build(pkgs, tmp)
	if err != nil {
		return nil, err
	}
	pkg = pkgs[0]
	r := report{why: why, found: make([]int, len(p.suites)+1)}
	var wg sync.WaitGroup
	slots := make(chan struct{}, goruntime.NumCPU())
	for id, m := range p.mutants {
		if _, isAccepted := why[m.key]; isAccepted && !*all || !only.MatchString(m.key) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			by, reached := p.test(id)
			if by < len(p.suites) && p.suites[by].worlds {
				fmt.Fprintf(os.Stderr, "%s: only a small world finds it\n", m.key)
			}
			r.tested(m, by, reached)
		})
	}
	wg.Wait()
	accepted, open := r.accepted(pkg, p.mutants)
	fmt.Fprintf(os.Stderr, "%s: %d mutants; found by each suite, and not at all: %d; accepted: %d, of which %d are %s\n", pkg, len(p.mutants), r.found, accepted, open, unjudged)
	return r.lines, nil
}

// report collects the results of a package.
type report struct {
	why map[string]string

	mu    sync.Mutex
	lines []string
	found []int // by each suite, and not at all
}

func (r *report) line(key, format string, args ...any) {
	r.lines = append(r.lines, key+"\t"+fmt.Sprintf(format, args...))
	fmt.Println(r.lines[len(r.lines)-1])
}

// tested notes which suite has found a mutant.
func (r *report) tested(m mutant, by int, reached bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[by]++
	_, isAccepted := r.why[m.key]
	switch survives := by == len(r.found)-1; {
	case survives && !isAccepted:
		r.line(m.key, "line %d%s", m.line, map[bool]string{false: ": no test reaches it"}[reached])
	case !survives && isAccepted:
		r.line(m.key, "found: remove it from accepted.txt")
	}
}

// accepted returns how many mutants of a package are accepted, and how many of these are not judged. It notes those that no longer exist.
func (r *report) accepted(pkg string, mutants []mutant) (many, open int) {
	for key, reason := range r.why {
		switch {
		case !strings.HasPrefix(key, pkg+"/"):
		case !slices.ContainsFunc(mutants, func(m mutant) bool { return m.key == key }):
			r.line(key, "no longer exists: remove it from accepted.txt")
		default:
			many++
			if reason == unjudged {
				open++
			}
		}
	}
	return many, open
}

// build compiles the tests of a package, and of the others, with all mutants of the first in an overlay.
func build(pkgs []string, tmp string) (*program, error) {
	top, err := filepath.Abs(*root)
	if err != nil {
		return nil, err
	}
	p := &program{dir: filepath.Join(top, pkgs[0])}
	overlay := map[string]string{}
	if err := p.rewrite(pkgs[0], func(base, content string) error {
		overlay[filepath.Join(p.dir, base)] = filepath.Join(tmp, base)
		return os.WriteFile(filepath.Join(tmp, base), []byte(content), 0o600)
	}); err != nil {
		return nil, err
	}
	replaced, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(tmp, "overlay.json"), replaced, 0o600); err != nil {
		return nil, err
	}
	for _, pkg := range pkgs {
		path := filepath.Join(tmp, filepath.Base(pkg)+".test")
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(tmp, "overlay.json"), "-o", path, "./"+pkg)
		cmd.Dir = top
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("compiling: %w\n%s", err, out)
		}
		if err := p.addSuites(filepath.Join(top, pkg), path, tmp); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// rewrite writes the files of the package with their mutants, and the runtime.
func (p *program) rewrite(pkg string, write func(base, content string) error) error {
	files, err := filepath.Glob(filepath.Join(p.dir, "*.go"))
	if err != nil {
		return err
	}
	m, name := mutator{keys: map[string]int{}}, ""
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var mutated string
		if mutated, name, err = m.file(filepath.Join(pkg, filepath.Base(file)), source); err != nil {
			return err
		}
		if err := write(filepath.Base(file), mutated); err != nil {
			return err
		}
	}
	p.mutants = m.mutants
	return write("zz_mutants.go", "package "+name+fmt.Sprintf(runtime, len(m.mutants)))
}

// slowTest finds the tests that take at least 0.05 s.
var slowTest = regexp.MustCompile(`(?m)^--- PASS: (\S+) \((?:[1-9]\d*\.|0\.[1-9]|0\.0[5-9])`)

// addSuites divides the tests of a program into suites, and runs each without a mutant, to know what it reaches and how long it takes.
func (p *program) addSuites(dir, path, tmp string) error {
	suites, err := divide(dir, path)
	if err != nil {
		return err
	}
	for _, su := range suites {
		file, started := filepath.Join(tmp, "reached"), time.Now()
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return err
		}
		if out, err := su.run(context.Background(), "EVERYNODE_REACHED="+file, su.args...); err != nil {
			return fmt.Errorf("testing without a mutant: %w\n%s", err, out)
		}
		su.limit = max(15*time.Second, 10*time.Since(started))
		ids, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for id := range strings.FieldsSeq(string(ids)) {
			su.reached[id] = true
		}
	}
	p.suites = append(p.suites, suites...)
	return nil
}

// divide returns the suites of a program: the fast tables, the slow ones, random histories, and small worlds, as far as it has them.
func divide(dir, path string) (suites []*suite, err error) {
	all := &suite{dir: dir, path: path}
	verbose, err := all.run(context.Background(), "", "-test.skip="+histories, "-test.v")
	if err != nil {
		return nil, fmt.Errorf("testing without a mutant: %w\n%s", err, verbose)
	}
	has, err := all.run(context.Background(), "", "-test.list=^Test(RandomHistories|Explore)$")
	if err != nil {
		return nil, fmt.Errorf("listing the tests: %w\n%s", err, has)
	}
	names := []string{"$"}
	for _, m := range slowTest.FindAllStringSubmatch(verbose, -1) {
		names = append(names, m[1])
	}
	slow := "^(" + strings.Join(names, "|") + ")$"
	add := func(worlds bool, args ...string) {
		suites = append(suites, &suite{dir: dir, path: path, args: args, worlds: worlds, reached: map[string]bool{}})
	}
	add(false, "-test.skip="+slow+"|"+histories, "-test.failfast")
	add(false, "-test.run="+slow, "-test.skip="+histories, "-test.failfast")
	if *count > 0 && strings.Contains(has, "TestRandomHistories") {
		add(false, "-test.run=^TestRandomHistories$", fmt.Sprintf("-histories=%d", *count))
	}
	if *small > 0 && strings.Contains(has, "TestExplore") {
		add(true, "-test.run=^TestExplore", "-test.failfast", fmt.Sprintf("-states=%d", *small))
	}
	return suites, nil
}

// test returns the index of the first suite that finds a mutant, the number of suites if none does, and whether any reaches it. A
// suite that takes too long has found it.
func (p *program) test(id int) (by int, reached bool) {
	for i, su := range p.suites {
		if !su.reached[fmt.Sprint(id)] {
			continue
		}
		reached = true
		ctx, cancel := context.WithTimeout(context.Background(), su.limit)
		_, err := su.run(ctx, fmt.Sprintf("EVERYNODE_MUTANT=%d", id), su.args...)
		cancel()
		if err != nil {
			return i, true
		}
	}
	return len(p.suites), reached
}

func (su *suite) run(ctx context.Context, env string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, su.path, args...)
	cmd.Dir, cmd.Env = su.dir, append(os.Environ(), env, "GOMAXPROCS=1", "GOMEMLIMIT=1GiB")
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
	}
	return string(out), err
}
