// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shards runs the tests of a package in several processes at the same time. Tests that share a cluster run one
// after the other if they change what has no namespace, and wait more than they compute. With a cluster for each process,
// they use the machine better.
package shards

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// night is whether the tests of [Suite.Night] run too.
var night = flag.Bool("night", false, "run also the tests that only make test-night runs")

// Flag defines the flag -shards in a package of tests.
func Flag(what string) *int {
	return flag.Int("shards", 1, "run the tests in this number of processes at the same time, each with its own "+what)
}

// shard is one process with a part of the tests.
type shard struct {
	number int
	tests  []string
	env    []string
	output bytes.Buffer
	err    error
}

// Suite is what Run must know of the tests of a package.
type Suite struct {
	// Env returns environment variables of a process, by its number from 0. Without it, a process has those of this one.
	Env func(shard int) []string
	// Slow are the tests that take much longer than others, and their seconds.
	Slow map[string]int
	// Night are the tests that run only with -night, or if -run selects them, each with the tests that show most of it in each run.
	Night map[string]string
}

// Run runs the tests that -run selects in at most n processes of this program, and returns the exit code. There is a line for each
// process that ends, and with -v for each test. Then follow the outputs of the processes, those that failed last, and a summary of the
// failed tests, because a CI system may show only the end of a long output.
func Run(n int, suite Suite) (code int) {
	tests, below, err := suite.tests()
	if err == nil && len(tests) == 0 {
		err = errors.New("-run selects none")
	}
	if err != nil {
		fmt.Println("listing the tests:", err)
		return 1
	}
	parts := divide(tests, n, suite.Slow)
	start := time.Now()
	var running sync.WaitGroup
	for _, s := range parts {
		if suite.Env != nil {
			s.env = suite.Env(s.number)
		}
		running.Go(func() {
			s.run(below)
			fmt.Printf("shard %d of %d, with %d tests, has ended after %.0f s: %s\n", s.number+1, len(parts), len(s.tests), time.Since(start).Seconds(), s.outcome())
		})
	}
	running.Wait()
	slices.SortStableFunc(parts, func(a, b *shard) int { return strings.Compare(b.outcome(), a.outcome()) }) // passed, failed
	for _, s := range parts {
		fmt.Println(strings.TrimSpace(s.output.String()))
		if s.err != nil {
			code = 1
		}
	}
	for _, s := range parts {
		fmt.Print(failures(s.output.String()))
	}
	return code
}

// summaryLines is the number of lines of each failed test in the summary. The first messages tell most.
const summaryLines = 40

// failures returns the failed tests in an output of go test, each with its first lines.
func failures(output string) string {
	failed, lines := logged(output)
	var summary strings.Builder
	for _, name := range failed {
		summary.WriteString("\nfailed: " + name + "\n" + strings.Join(lines[name], ""))
	}
	return summary.String()
}

// logged are the tests that have failed, and the first lines that each test has logged.
func logged(output string) (failed []string, lines map[string][]string) {
	lines = map[string][]string{}
	current := ""
	for line := range strings.Lines(output) {
		kind, name, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case strings.HasPrefix(line, "=== "): // such as "=== CONT  TestA/part"
			fields := strings.Fields(line)
			current = fields[len(fields)-1]
		case strings.HasPrefix(kind, "--- "):
			current, _, _ = strings.Cut(name, " (")
			if kind == "--- FAIL" && !slices.Contains(failed, current) {
				failed = append(failed, current)
			}
		case strings.HasPrefix(line, " ") && len(lines[current]) < summaryLines: // what a test logs is indented
			lines[current] = append(lines[current], line)
		}
	}
	return failed, lines
}

// usual is how many seconds a test takes that is not slow.
const usual = 4

// divide deals the tests out, the slow ones first, each to the shard that has the fewest seconds. Neighbors, which are of one file and
// often alike, go to different shards.
func divide(tests []string, n int, slow map[string]int) []*shard {
	parts := make([]*shard, min(n, len(tests)))
	for i := range parts {
		parts[i] = &shard{number: i}
	}
	seconds := func(test string) int { return cmp.Or(slow[test], usual) }
	load := make([]int, len(parts))
	for _, test := range slices.SortedStableFunc(slices.Values(tests), func(a, b string) int { return seconds(b) - seconds(a) }) {
		least := slices.Index(load, slices.Min(load))
		parts[least].tests = append(parts[least].tests, test)
		load[least] += seconds(test)
	}
	return parts
}

// tests returns the tests that run, and the part of the pattern of -run that selects subtests.
func (s *Suite) tests() (tests []string, below string, err error) {
	all, err := list()
	if err != nil {
		return nil, "", err
	}
	if err := s.check(all); err != nil {
		return nil, "", err
	}
	pattern, below, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	if pattern == "" && !*night {
		if len(s.Night) > 0 {
			fmt.Printf("tests that run only with -night (make test-night): %d\n", len(s.Night))
		}
		return slices.DeleteFunc(all, func(name string) bool { return s.Night[name] != "" }), below, nil
	}
	selected, err := regexp.Compile(pattern)
	if err != nil {
		return nil, "", fmt.Errorf("-run: %w", err)
	}
	return slices.DeleteFunc(all, func(name string) bool { return !selected.MatchString(name) }), below, nil
}

// check returns an error if the tables name tests that do not exist, or no test of each run beside one of the night.
func (s *Suite) check(all []string) error {
	for name := range s.Slow {
		if !slices.Contains(all, name) {
			return fmt.Errorf("there is no test %s: remove it from the slow ones", name)
		}
	}
	for name, others := range s.Night {
		for other := range strings.SplitSeq(others, ", ") {
			switch {
			case !slices.Contains(all, name):
				return fmt.Errorf("there is no test %s: remove it from those of the night", name)
			case !slices.Contains(all, other) || s.Night[other] != "":
				return fmt.Errorf("beside %s of the night, each run should have %s, which is none of its tests", name, other)
			}
		}
	}
	return nil
}

// list returns all tests of this program.
func list() (tests []string, err error) {
	out, err := exec.Command(os.Args[0], "-test.list=.").Output()
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") {
			tests = append(tests, name)
		}
	}
	return tests, err
}

// pattern is the regular expression that selects the tests.
func (s *shard) pattern(below string) string {
	pattern := "^(" + strings.Join(s.tests, "|") + ")$"
	if below != "" {
		pattern += "/" + below
	}
	return pattern
}

// run executes the tests with the flags of this process.
func (s *shard) run(below string) {
	args := []string{"-test.run=" + s.pattern(below)}
	flag.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"shards", "test.run", "test.testlogfile"}, f.Name) {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), s.env...)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	var copied sync.WaitGroup
	copied.Go(func() { s.copy(out) })
	s.err = cmd.Run()
	_ = in.Close() // never fails
	copied.Wait()
}

// copy keeps the output, and prints the lines that end a test, and what a test that fails and its parts have logged.
func (s *shard) copy(from io.Reader) {
	reader := bufio.NewReader(from)
	for {
		line, err := reader.ReadString('\n')
		s.output.WriteString(line)
		if strings.HasPrefix(line, "--- ") {
			fmt.Print(line)
		}
		if name, failed := strings.CutPrefix(line, "--- FAIL: "); failed {
			name, _, _ = strings.Cut(name, " (")
			_, lines := logged(s.output.String())
			for _, logger := range slices.Sorted(maps.Keys(lines)) {
				if logger == name || strings.HasPrefix(logger, name+"/") {
					fmt.Print(strings.Join(lines[logger], ""))
				}
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *shard) outcome() string {
	if s.err != nil {
		return "failed"
	}
	return "passed"
}
