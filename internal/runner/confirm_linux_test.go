// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

const confirmation = "the word of the manager"

// confirming is a runner that waits for a confirmation, and what a kubelet does for it.
type confirming struct {
	*running
	run, volume, reverted string
}

// prepareConfirm makes a runner with a window of some seconds. The readiness probe has begun.
func prepareConfirm(t *testing.T, seconds int, environ ...string) *confirming {
	t.Helper()
	c := &confirming{run: t.TempDir(), volume: t.TempDir()}
	c.reverted = filepath.Join(c.run, "reverted")
	c.write(t, filepath.Join(c.run, probedName), "")
	c.running = prepareRunner(t, 0, testLimits(), append([]string{
		"TEST_RUN_DIR=" + c.run, "TEST_CONFIRM_DIR=" + c.volume,
		fmt.Sprintf(`EVERYNODE_CONFIRM={"sha256":%q,"seconds":%d,"rollbackSeconds":5}`, contract.ConfirmDigest(confirmation), seconds),
		"EVERYNODE_ROLLBACK=echo undone; echo $EVERYNODE_FAILED_EXIT_CODE $EVERYNODE_RESULT_WAS >> " + c.reverted,
		"EVERYNODE_SCRIPT=echo was=before >> $EVERYNODE_RESULTS",
	}, environ...)...)
	return c
}

func (c *confirming) write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// confirm writes what the kubelet writes.
func (c *confirming) confirm(text string) {
	c.t.Helper()
	c.write(c.t, filepath.Join(c.volume, contract.ConfirmFile), text)
}

// awaitWindow waits until the task waits for the confirmation.
func (c *confirming) awaitWindow() {
	c.t.Helper()
	await(c.t, "the task waits for a confirmation", func() bool { return exists(filepath.Join(c.run, confirmingName)) })
}

// want checks the outcome, and what the rollback has noted; "" if it must not have run.
func (c *confirming) want(code int, reason, note string, said ...string) {
	c.t.Helper()
	got := c.wait()
	o := got.outcome
	if got.code != code || o.Reason != reason {
		c.t.Errorf("exit code %d, reason %q, message %q; want %d, %q", got.code, o.Reason, o.Message, code, reason)
	}
	for _, text := range said {
		if !strings.Contains(o.Message, text) {
			c.t.Errorf("the message %q does not contain %q", o.Message, text)
		}
	}
	// The last line is what statuses and events show.
	if last := o.Message[strings.LastIndexByte(o.Message, '\n')+1:]; reason == outcome.ReasonReverted &&
		strings.HasPrefix(last, "the rollback") {
		c.t.Errorf("the last line does not say why the node was reverted: %q", o.Message)
	}
	noted, _ := os.ReadFile(c.reverted)
	if strings.TrimSpace(string(noted)) != note {
		c.t.Errorf("the rollback noted %q, want %q", noted, note)
	}
	if reason == outcome.ReasonProbeFailed && !o.NotStarted || o.NotStarted && (reason == "" || o.RollbackExitCode != nil) {
		c.t.Errorf("the task has not started, says the outcome: %t", o.NotStarted)
	}
	if (o.RollbackExitCode != nil) != (strings.Contains(strings.Join(said, " "), "rollback ran")) {
		c.t.Errorf("the exit code of the rollback is %v", o.RollbackExitCode)
	}
}

func TestConfirmedInTime(t *testing.T) {
	t.Parallel()
	c := prepareConfirm(t, 60)
	c.start()
	c.awaitWindow()
	c.confirm(confirmation)
	c.want(0, "", "", "the node was confirmed after ")
}

func TestAFailedTaskIsConfirmedAsWell(t *testing.T) {
	t.Parallel()
	c := prepareConfirm(t, 60, "EVERYNODE_CHECK=exit 3")
	c.start()
	c.awaitWindow()
	c.confirm(confirmation)
	c.want(3, outcome.ReasonCheckFailed, "")
}

func TestNotConfirmedInTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before string // what the kubelet has written before
		env    []string
		code   int
		reason string
		note   string
		said   string
	}{
		"a success is reverted": {code: 1, reason: outcome.ReasonReverted, note: "before", said: "the node was not confirmed within 1s"},
		"a confirmation of another pod does not count": {
			before: "another word", code: 1, reason: outcome.ReasonReverted, note: "before",
			said: "undone",
		},
		"a failure is reverted, with its exit code": {
			env: []string{"EVERYNODE_SCRIPT=echo was=there >> $EVERYNODE_RESULTS; exit 7"}, code: 7,
			reason: outcome.ReasonReverted, note: "7 there", said: "exit code 0",
		},
		"a task that takes too long is reverted": {
			env: []string{"EVERYNODE_TIMEOUT=1", "EVERYNODE_SCRIPT=sleep 100"}, code: 124, reason: outcome.ReasonReverted, note: "124",
			said: "the time limit of 1s passed while the script ran",
		},
		"a rollback that fails": {
			env: []string{"EVERYNODE_ROLLBACK=echo cannot; exit 4"}, code: 1, reason: outcome.ReasonRevertFailed,
			said: "ended with exit code 4",
		},
		"a rollback without its interpreter": {
			env: []string{`EVERYNODE_ROLLBACK_INTERPRETER=["/no/such"]`}, code: 1, reason: outcome.ReasonRevertFailed,
			said: `interpreter "/no/such" not found on the node`,
		},
		"a rollback that takes too long": {
			env: []string{"EVERYNODE_ROLLBACK=sleep 100"}, code: 1, reason: outcome.ReasonRevertFailed,
			said: "the time limit of 5s passed while the rollback ran",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := prepareConfirm(t, 1, tt.env...)
			if tt.before != "" {
				c.confirm(tt.before)
			}
			c.start()
			c.want(tt.code, tt.reason, tt.note, tt.said, "the rollback ran on the node itself")
		})
	}
}

// probing makes the attempt run a probe.
func probing(seconds, limit int, script string) string {
	return "EVERYNODE_CONFIRM=" + contract.JSON(contract.Confirm{
		SHA256: contract.ConfirmDigest(confirmation), Seconds: int64(seconds), RollbackSeconds: 5,
		Probes: []contract.Probe{{Name: "always", Script: "true", Seconds: 10}, {Name: "registry", Script: script, Seconds: int64(limit)}},
	})
}

func TestProbes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		probe  string
		limit  int
		env    []string
		code   int
		reason string
		note   string
		said   []string
	}{
		"before the task": {
			probe: "echo no route to $TEST_SECRET >&2; exit 7", limit: 10, code: 7, reason: outcome.ReasonProbeFailed,
			env:  []string{"TEST_SECRET=hunter22", `EVERYNODE_MASK=["TEST_SECRET"]`},
			said: []string{"before the task, probe registry failed with exit code 7: no route to ***: the task was not started"},
		},
		"it takes too long before the task": {
			probe: "sleep 100", limit: 1, code: 124, reason: outcome.ReasonProbeFailed,
			said: []string{"the time limit of 1s passed while probe registry ran: the task was not started"},
		},
		"after the task": {
			probe: "! test -e $TEST_CUT", limit: 10, code: 1, reason: outcome.ReasonReverted, note: "before",
			env:  []string{"EVERYNODE_SCRIPT=echo was=before >> $EVERYNODE_RESULTS; : > $TEST_CUT"},
			said: []string{"the node was not confirmed within 2s: probe registry failed with exit code 1", "the rollback ran on the node itself"},
		},
		"the window ends it when it runs again": {
			probe: "! test -e $TEST_CUT || { ! test -e $TEST_CUT.told || sleep 100; : > $TEST_CUT.told; echo lo is down; exit 5; }", limit: 10,
			code: 1, reason: outcome.ReasonReverted, note: "before",
			env:  []string{"EVERYNODE_SCRIPT=echo was=before >> $EVERYNODE_RESULTS; : > $TEST_CUT"},
			said: []string{"the node was not confirmed within 2s: probe registry failed with exit code 5: lo is down", "the rollback ran on the node itself"},
		},
		"it succeeds later": {
			probe: "! test -e $TEST_CUT || { rm $TEST_CUT; exit 1; }", limit: 10,
			env: []string{"EVERYNODE_SCRIPT=: > $TEST_CUT"},
		},
		"what it prints, and its results, are not those of the task": {
			probe: "echo noise; echo is=result >> $EVERYNODE_RESULTS", limit: 10, env: []string{"EVERYNODE_SCRIPT=echo task"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := prepareConfirm(t, 2, append(tt.env, probing(2, tt.limit, tt.probe))...)
			c.cmd.Env = append(c.cmd.Env, "TEST_CUT="+filepath.Join(c.run, "cut"))
			c.confirm(confirmation)
			c.start()
			c.want(tt.code, tt.reason, tt.note, tt.said...)
			if printed := c.stdout.String(); strings.Contains(printed, "noise") {
				t.Errorf("printed %q", printed)
			}
		})
	}
}

// TestToldToStopWhileAProbeRuns : the probe ends, and the node reverts.
func TestToldToStopWhileAProbeRuns(t *testing.T) {
	t.Parallel()
	c := prepareConfirm(t, 600)
	cut := filepath.Join(c.run, "cut")
	c.cmd.Env = append(c.cmd.Env, probing(600, 300, "! test -e "+cut+" || { : > "+cut+".probed; exec sleep 1000; }"),
		"EVERYNODE_SCRIPT=echo was=before >> $EVERYNODE_RESULTS; : > "+cut)
	c.start()
	await(t, "the probe runs after the task", func() bool { return exists(cut + ".probed") })
	if err := c.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.want(143, outcome.ReasonDisrupted, "before", "the pod was told to stop", "the rollback ran on the node itself")
}

func TestToldToStopBeforeTheConfirmation(t *testing.T) {
	t.Parallel()
	c := prepareConfirm(t, 600)
	c.start()
	c.awaitWindow()
	if err := c.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.want(143, outcome.ReasonDisrupted, "before", "the pod was told to stop", "the rollback ran on the node itself")
}

// TestNothingStopsARevert : a kubelet that is back must not end the rollback half-way.
func TestNothingStopsARevert(t *testing.T) {
	t.Parallel()
	c := prepareConfirm(t, 1, "EVERYNODE_ROLLBACK=trap 'exit 9' TERM; echo begun; sleep 1; echo over")
	c.start()
	c.stdout.waitFor(t, "begun")
	if err := c.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.confirm(confirmation) // too late: the runner has decided
	c.want(1, outcome.ReasonReverted, "", "over", "the rollback ran on the node itself and ended with exit code 0")
}

func TestATaskThatHasNotStartedIsNotReverted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		env    []string
		remove string
		reason string
	}{
		"without its interpreter":     {env: []string{`EVERYNODE_INTERPRETER=["/no/such"]`}, reason: outcome.ReasonInterpreterNotFound},
		"without the readiness probe": {remove: probedName, reason: outcome.ReasonBadConfiguration},
		"without a run directory":     {env: []string{"TEST_RUN_DIR="}, reason: outcome.ReasonBadConfiguration},
		"without a volume":            {env: []string{"TEST_CONFIRM_DIR=/no/such"}, reason: outcome.ReasonBadConfiguration},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := prepareConfirm(t, 1, tt.env...)
			if tt.remove != "" {
				if err := os.Remove(filepath.Join(c.run, tt.remove)); err != nil {
					t.Fatal(err)
				}
			}
			c.start()
			got := c.wait()
			if got.outcome.Reason != tt.reason || got.outcome.RollbackExitCode != nil ||
				got.outcome.NotStarted != (name != "without a run directory") {
				t.Errorf("the outcome is %+v, want %q", got.outcome, tt.reason)
			}
		})
	}
}

func TestTheReadinessProbeReturnsWhenTheTaskWaits(t *testing.T) {
	t.Parallel()
	dir, returned := t.TempDir(), make(chan int, 1)
	go func() { returned <- WaitConfirming(dir) }()
	await(t, "the probe begins", func() bool { return exists(filepath.Join(dir, probedName)) })
	select {
	case code := <-returned:
		t.Fatalf("it has returned %d before the task waits", code)
	default:
	}
	if err := os.WriteFile(filepath.Join(dir, confirmingName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := <-returned; code != 0 {
		t.Errorf("exit code %d", code)
	}
	if code := WaitConfirming("/no/such"); code == 0 {
		t.Error("without a run directory, the node would be confirmed before the task has run")
	}
}
