// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
)

// onceTask notes each of its runs, and waits until the test lets it end.
const onceTask = `echo run >> $DIR/runs; echo began; while [ ! -e $DIR/go ]; do sleep 0.05; done; echo found=it >> $EVERYNODE_RESULTS; exit 9`

func TestSecondContainerReportsOutcomeOfFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	environ := []string{"TEST_RUN_DIR=" + dir, "DIR=" + dir, "EVERYNODE_SCRIPT=" + onceTask}
	first := startRunner(t, 0, testLimits(), environ...)
	first.stdout.waitFor(t, "began")
	second := startRunner(t, 0, testLimits(), environ...)
	// The first one ends only now, so the second has to wait for it.
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	third := startRunner(t, 0, testLimits(), environ...)
	for name, r := range map[string]*running{"first": first, "second": second, "third": third} {
		if got := r.wait(); got.code != 9 || got.outcome.Results["found"] != "it" || got.outcome.Reason != outcome.ReasonTaskFailed {
			t.Errorf("the %s container ended with %d and %+v", name, got.code, got.outcome)
		}
	}
	wantRuns(t, dir, "run\n")
}

func TestKilledTaskIsInterruptedNotRepeated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	environ := []string{"TEST_RUN_DIR=" + dir, "DIR=" + dir, "EVERYNODE_SCRIPT=" + onceTask}
	first := startRunner(t, 0, testLimits(), environ...)
	first.stdout.waitFor(t, "began")
	first.signal(unix.SIGKILL)
	_ = first.cmd.Wait() // killed: the error says so
	// Its script is an orphan that no runner supervises; a container runtime would end it.
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := startRunner(t, 0, testLimits(), environ...).wait(); got.code != 143 || got.outcome.Reason != outcome.ReasonDisrupted {
		t.Errorf("the second container ended with %d and %+v", got.code, got.outcome)
	}
	wantRuns(t, dir, "run\n")
}

func TestSecondContainerWaitsUntilTimeLimitOrSignal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	environ := []string{"TEST_RUN_DIR=" + dir, "DIR=" + dir, "EVERYNODE_SCRIPT=" + onceTask}
	first := startRunner(t, 0, testLimits(), environ...)
	first.stdout.waitFor(t, "began")
	limited := startRunner(t, 0, testLimits(), append(environ, "EVERYNODE_TIMEOUT=1")...)
	if got := limited.wait(); got.code != 124 || got.outcome.Reason != outcome.ReasonTimedOut {
		t.Errorf("the limited container ended with %d and %+v", got.code, got.outcome)
	}
	stopped := startRunner(t, 0, testLimits(), environ...)
	stopped.waitForOpen(filepath.Join(dir, lockName)) // it listens to signals by then
	stopped.signal(unix.SIGTERM)
	if got := stopped.wait(); got.code != 143 || got.outcome.Reason != outcome.ReasonDisrupted {
		t.Errorf("the stopped container ended with %d and %+v", got.code, got.outcome)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first.wait()
	wantRuns(t, dir, "run\n")
}

// waitForOpen waits until the runner has a file open.
func (r *running) waitForOpen(path string) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.cmd.Process.Pid))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, fd := range fds {
			if target, err := os.Readlink(fd); err == nil && target == path {
				return
			}
		}
	}
	r.t.Fatalf("the runner never opened %s", path)
}

func wantRuns(t *testing.T, dir, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil || string(got) != want {
		t.Errorf("the task ran %q (%v), want %q", got, err, want)
	}
}
