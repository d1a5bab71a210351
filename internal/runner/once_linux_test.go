// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
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

// TestWhetherTheTaskHasStarted : what has not started is not rolled back. A container knows it also of earlier ones, by the run directory.
func TestWhetherTheTaskHasStarted(t *testing.T) {
	t.Parallel()
	mkdir := func(name string) func(string) error {
		return func(dir string) error { return os.Mkdir(filepath.Join(dir, name), 0o700) }
	}
	for name, tt := range map[string]struct {
		env        []string
		before     func(dir string) error
		notStarted bool
	}{
		"it fails":                            {env: []string{"EVERYNODE_SCRIPT=exit 3"}},
		"its shell misses a command":          {env: []string{"EVERYNODE_SCRIPT=no-such-command"}},
		"its check has no interpreter":        {env: []string{"EVERYNODE_SCRIPT=:", "EVERYNODE_CHECK=#!/no/such\n"}},
		"it takes too long":                   {env: []string{"EVERYNODE_SCRIPT=sleep 60", "EVERYNODE_TIMEOUT=1"}},
		"its interpreter is missing":          {env: []string{"EVERYNODE_SCRIPT=#!/no/such\n"}, notStarted: true},
		"its interpreter is no program":       {env: []string{"EVERYNODE_SCRIPT=#!/etc/passwd\n"}, notStarted: true},
		"its command is missing":              {env: []string{`EVERYNODE_COMMAND=["/no/such"]`}, notStarted: true},
		"its command is no program":           {env: []string{`EVERYNODE_COMMAND=["/etc/passwd"]`}, notStarted: true},
		"its script has Windows line endings": {env: []string{"EVERYNODE_SCRIPT=true\r\n"}, notStarted: true},
		"there is no script":                  {notStarted: true},
		"the check before it cannot say":      {env: []string{"EVERYNODE_SCRIPT=:", "EVERYNODE_CHECK=exit 75", "EVERYNODE_CHECK_BEFORE=true"}, notStarted: true},
		"the run directory cannot be locked":  {env: []string{"EVERYNODE_SCRIPT=:"}, before: mkdir(lockName), notStarted: true},
		"an earlier outcome cannot be read":   {env: []string{"EVERYNODE_SCRIPT=:"}, before: mkdir(outcomeName), notStarted: true},
		"an earlier container has started it": {env: []string{"EVERYNODE_SCRIPT=true\r\n"}, before: mkdir(startedName)},
		"the outcome of its start is not known": {
			env: []string{"EVERYNODE_SCRIPT=:"}, before: func(dir string) error { return errors.Join(mkdir(outcomeName)(dir), mkdir(startedName)(dir)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if tt.before != nil {
				if err := tt.before(dir); err != nil {
					t.Fatal(err)
				}
			}
			got := runToEnd(t, append([]string{"TEST_RUN_DIR=" + dir}, tt.env...)...)
			if got.outcome.NotStarted != tt.notStarted || got.code == 0 {
				t.Errorf("exit code %d, not started: %t, want %t: %+v", got.code, got.outcome.NotStarted, tt.notStarted, got.outcome)
			}
		})
	}
}
