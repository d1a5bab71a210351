// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
)

func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	const script = `for s in HUP QUIT USR1 USR2; do trap "echo got $s" $s; done; trap 'exit 7' TERM; echo ready; while :; do sleep 60 & wait $!; done`
	r := startRunner(t, 0, testLimits(), "EVERYNODE_SCRIPT="+script)
	r.stdout.waitFor(t, "ready")
	for name, sig := range map[string]syscall.Signal{"HUP": unix.SIGHUP, "QUIT": unix.SIGQUIT, "USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2} {
		r.signal(sig)
		r.stdout.waitFor(t, "got "+name)
	}
	r.signal(unix.SIGTERM)
	if got := r.wait(); got.code != 7 || got.outcome.Reason != outcome.ReasonDisrupted {
		t.Errorf("ended with %d %q, want 7 and %s", got.code, got.outcome.Reason, outcome.ReasonDisrupted)
	}
}

func (r *running) signal(sig os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script   string
		signal   syscall.Signal
		wantCode int
		wantSaid string
	}{
		"a script that ends with success on SIGTERM is still interrupted": {
			`trap 'exit 0' TERM; echo ready; sleep 60 & wait`,
			unix.SIGTERM,
			143,
			"the runner received SIGTERM while the script ran",
		},
		"a script that ends with success on SIGINT is still interrupted": {
			`trap 'exit 0' INT; echo ready; sleep 60 & wait`,
			unix.SIGINT,
			130,
			"SIGINT",
		},
		"a script without a trap is ended by the signal": {`echo ready; sleep 60`, unix.SIGTERM, 143, "SIGTERM"},
		"a script that ignores it is killed after the grace period": {
			`trap '' TERM; echo ready; while :; do sleep 60; done`,
			unix.SIGTERM,
			137,
			"SIGTERM",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRunner(t, 0, testLimits(), "EVERYNODE_SCRIPT="+tt.script, "EVERYNODE_CHECK=echo the check ran")
			r.stdout.waitFor(t, "ready")
			r.signal(tt.signal)
			got := r.wait()
			if got.code != tt.wantCode || got.outcome.Reason != outcome.ReasonDisrupted ||
				!strings.Contains(got.outcome.Message, tt.wantSaid) {
				t.Errorf("ended with %d %q, message %q; want %d", got.code, got.outcome.Reason, got.outcome.Message, tt.wantCode)
			}
			if strings.Contains(got.stdout, "the check ran") {
				t.Error("the check of an interrupted task ran")
			}
		})
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	const stubborn = `trap "" TERM HUP INT; while :; do sleep 60; done`
	tests := map[string]string{
		"a child in the background":           `sleep 60 & echo made`,
		"a child that ignores signals":        `sh -c '` + stubborn + `' & echo made`,
		"a child in another session":          `setsid sh -c '` + stubborn + `' & echo made`,
		"a daemon that has forked twice":      `(setsid sh -c '(` + stubborn + `) & (` + stubborn + `) &' &) ; sleep 0.1; echo made`,
		"a child in another process group":    `exec perl -e 'if (!fork) { setpgrp; sleep 60 } print "made\n"'`,
		"a stopped child":                     `sleep 60 & kill -STOP $!; echo made`,
		"children without an open output":     `setsid sleep 60 >/dev/null 2>&1 </dev/null & echo made`,
		"a hundred children":                  `i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done; echo made`,
		"children that leave children behind": `sh -c 'sh -c "sh -c \"sleep 60\" & sleep 60" & sleep 60' & sleep 0.1; echo made`,
	}
	for name, script := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runToEnd(t, "EVERYNODE_SCRIPT="+script) // wait asks for survivors
			if got.code != 0 || !strings.Contains(got.stdout, "made") {
				t.Errorf("ended with %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
			}
			if !strings.Contains(got.outcome.Message, "left running were killed: ") ||
				!strings.Contains(got.stderr, "left running were killed: ") {
				t.Errorf("message %q, stderr %q: neither may be silent about it", got.outcome.Message, got.stderr)
			}
		})
	}
}

func TestTimeLimitEndsProcessTree(t *testing.T) {
	t.Parallel()
	got := runToEnd(
		t,
		"EVERYNODE_TIMEOUT=1",
		`EVERYNODE_SCRIPT=trap '' TERM; setsid sh -c 'trap "" TERM; sleep 60' & sh -c 'trap "" TERM; sleep 60' & wait; wait`,
	)
	if got.code != 124 || got.outcome.Reason != outcome.ReasonTimedOut {
		t.Errorf("ended with %d %q", got.code, got.outcome.Reason)
	}
}

func TestProcessesOfTheTaskAreGoneBeforeTheCheck(t *testing.T) {
	t.Parallel()
	got := runToEnd(
		t,
		`EVERYNODE_SCRIPT=sleep 60 & echo "pid=$!" >> "$EVERYNODE_RESULTS"`,
		`EVERYNODE_CHECK=. "$EVERYNODE_RESULTS"; ! kill -0 $pid 2>/dev/null`,
	)
	if got.code != 0 {
		t.Errorf("ended with %d %q: the check found the task's child", got.code, got.outcome.Reason)
	}
}

func TestChildMayEndDuringGracePeriod(t *testing.T) {
	t.Parallel()
	limits := testLimits()
	limits.Linger = patience
	got := startRunner(t, 0, limits, `EVERYNODE_SCRIPT=(sleep 0.1; echo late) & echo early`).wait()
	if got.stdout != "early\nlate\n" || got.stderr != "" {
		t.Errorf("stdout %q, stderr %q", got.stdout, got.stderr)
	}
}

func TestScriptEndsWithItsRunner(t *testing.T) {
	t.Parallel()
	r := startRunner(t, 0, testLimits(), "EVERYNODE_SCRIPT=echo ready; exec sleep 60")
	r.stdout.waitFor(t, "ready")
	r.signal(unix.SIGKILL)
	_ = r.cmd.Wait()
	for end := time.Now().Add(patience); len(r.survivors()) > 0; {
		if time.Now().After(end) {
			t.Fatalf("alive: %v", r.survivors())
		}
	}
}

func TestSignalBeforeStartPreventsScript(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 2)
	signals <- unix.SIGUSR1
	signals <- unix.SIGTERM
	a := &attempt{supervisor: supervisor{signals: signals}}
	got, err := a.runScript(taskPhase, Script{}, stdio{})
	if err != nil || got != (ending{143, outcome.ReasonDisrupted}) {
		t.Errorf("ended with %+v, %v", got, err)
	}
}
