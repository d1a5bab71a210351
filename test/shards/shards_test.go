// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"flag"
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
		os.Exit(Run(*shards, func(int) []string { return []string{variable + "=yes"} }))
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
	out, err := runSelf(t, "-test.run=^TestExample")
	if err == nil || !strings.HasSuffix(strings.TrimSpace(out), "FAIL") || !strings.Contains(out, "this part is bad") {
		t.Errorf("%v:\n%s", err, out)
	}
	if !strings.Contains(out, "PASS") {
		t.Errorf("the other shard did not pass:\n%s", out)
	}
}

func TestShardsWithoutTestsFail(t *testing.T) {
	out, err := runSelf(t, "-test.run=^TestNothing$")
	if err == nil || !strings.Contains(out, "-run selects none") {
		t.Errorf("%v:\n%s", err, out)
	}
}
