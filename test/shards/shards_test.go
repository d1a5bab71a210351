// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

var shards = Flag("environment")

// variable tells a shard that it is one.
const variable = "EVERYNODE_SHARD"

func TestMain(m *testing.M) {
	flag.Parse()
	if *shards > 1 {
		os.Exit(Run(*shards, Suite{
			Env:   func(int) []string { return []string{variable + "=yes"} },
			Night: map[string]string{"TestExampleOfTheNight": "TestExampleThatPasses"},
		}))
	}
	os.Exit(m.Run())
}

// runSelf runs this program with two shards, and returns its output.
func runSelf(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(os.Args[0], append(args, "-shards=2")...).CombinedOutput()
	return string(out), err
}

// The examples are run by the other tests, in shards. In this process they pass.

func TestExampleThatPasses(*testing.T) {}

func TestExampleOfTheNight(*testing.T) {}

func TestExampleWithParts(t *testing.T) {
	t.Run("good", func(*testing.T) {})
	t.Run("bad", func(t *testing.T) {
		if os.Getenv(variable) != "" {
			t.Error("this part is bad")
		}
	})
}

func TestShardsPass(t *testing.T) {
	out, err := runSelf(t, "-test.v", "-test.run=^TestExample(ThatPasses|WithParts)$/^good$")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, want := range []string{"shard 1 of 2, with 1 tests, has ended", "shard 2 of 2", "--- PASS: TestExampleThatPasses", "--- PASS: TestExampleWithParts/good"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "bad") {
		t.Errorf("a part ran that -run does not select:\n%s", out)
	}
}

func TestAFailedShardFailsAllAndIsPrintedLast(t *testing.T) {
	for _, verbose := range []string{"-test.v=false", "-test.v"} {
		out, err := runSelf(t, verbose, "-test.run=^TestExample")
		outputs, summary, summarized := strings.Cut(out, "\nfailed: ")
		if err == nil || !strings.HasSuffix(strings.TrimSpace(outputs), "FAIL") || !strings.Contains(outputs, "this part is bad") {
			t.Errorf("%v:\n%s", err, out)
		}
		if live := out[:strings.LastIndex(out, "has ended")]; verbose == "-test.v" && !strings.Contains(live, "this part is bad") {
			t.Errorf("what has failed is not printed at once:\n%s", out)
		}
		if !strings.Contains(outputs, "PASS") {
			t.Errorf("the other shard did not pass:\n%s", out)
		}
		if _, part, _ := strings.Cut(
			summary,
			"failed: TestExampleWithParts/bad\n",
		); !summarized ||
			strings.Count(part, "this part is bad") != 1 {
			t.Errorf("with %s, the summary is:\n%s", verbose, summary)
		}
	}
}

func TestASummaryHasTheFirstLines(t *testing.T) {
	var output strings.Builder
	output.WriteString(
		"starting\n=== RUN   TestA\n=== PAUSE TestA\n=== RUN   TestB\n    b.go:1: fine\n--- PASS: TestB (0.10s)\n=== CONT  TestA\n",
	)
	for i := range 2 * summaryLines {
		fmt.Fprintf(&output, "    a.go:%d: bad\n", i)
	}
	output.WriteString("--- FAIL: TestA (0.20s)\nFAIL\n")
	got := failures(output.String())
	if !strings.HasPrefix(got, "\nfailed: TestA\n    a.go:0: bad\n    a.go:1: bad\n") || strings.Count(got, "\n") != summaryLines+2 {
		t.Errorf("the summary is:\n%s", got)
	}
	if got := failures("=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n"); got != "" {
		t.Errorf("without a failure, the summary is:\n%s", got)
	}
}

func TestShardsWithoutTestsFail(t *testing.T) {
	out, err := runSelf(t, "-test.run=^TestNothing$")
	if err == nil || !strings.Contains(out, "-run selects none") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestTheTablesNameTestsThatRun(t *testing.T) {
	all := []string{"A", "B", "C"}
	for want, suite := range map[string]Suite{
		"": {Slow: map[string]int{"A": 9}, Night: map[string]string{"A": "B", "C": "B"}},
		"there is no test D: remove it from the slow ones":                                   {Slow: map[string]int{"D": 9}},
		"there is no test D: remove it from those of the night":                              {Night: map[string]string{"D": "A"}},
		"beside A of the night, each run should have C, which is none of its tests":          {Night: map[string]string{"A": "B, C", "C": "B"}},
		"beside A of the night, each run should have D, which is none of its tests":          {Night: map[string]string{"A": "D"}},
		"beside A of the night, each run should have a sentence, which is none of its tests": {Night: map[string]string{"A": "a sentence"}},
	} {
		if got := suite.check(all); (got == nil) != (want == "") || (got != nil && got.Error() != want) {
			t.Errorf("got %v, want %q", got, want)
		}
	}
}

func TestATestOfTheNightRunsIfItIsSelected(t *testing.T) {
	out, err := runSelf(t, "-test.v", "-test.run=^TestExampleOfTheNight$")
	if err != nil || !strings.Contains(out, "--- PASS: TestExampleOfTheNight") {
		t.Errorf("%v:\n%s", err, out)
	}
	// The list of all tests, without -run, which would start this test again.
	const left = "tests that run only with -night"
	if out, err := runSelf(t, "-test.skip=."); err != nil || !strings.Contains(out, left+" (make test-night): 1\n") {
		t.Errorf("%v:\n%s", err, out)
	}
	if out, err := runSelf(t, "-test.skip=.", "-night"); err != nil || strings.Contains(out, left) {
		t.Errorf("with -night: %v:\n%s", err, out)
	}
}

func TestDivide(t *testing.T) {
	tests := []string{"A", "B", "C", "D", "E"}
	for name, tt := range map[string]struct {
		n    int
		slow map[string]int
		want string
	}{
		"neighbors are in different shards":       {2, nil, "[A C E] [B D]"},
		"a long test has a shard with few others": {2, map[string]int{"C": 3 * usual}, "[C E] [A B D]"},
		"the long tests are in different shards":  {3, map[string]int{"C": 5 * usual, "D": 4 * usual}, "[C] [D] [A B E]"},
		"a long test that is not selected":        {2, map[string]int{"F": 9}, "[A C E] [B D]"},
		"one shard has all tests":                 {1, map[string]int{"C": 9}, "[C A B D E]"},
		"there are never more shards than tests":  {9, map[string]int{"B": 9}, "[B] [A] [C] [D] [E]"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range divide(tests, tt.n, tt.slow) {
				got = append(got, fmt.Sprint(s.tests))
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("the shards have %s, want %s", got, tt.want)
			}
		})
	}
}
