// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// A task may cut its node off: then its rollback cannot be started from outside. So the runner waits for a confirmation after the
// task, and runs the rollback itself if none comes:
//
//	runner                        kubelet                         manager
//	the task ends
//	file confirming ───────────►  the readiness probe returns
//	                              status of the pod: ready ─────► the kubelet has responded since the task has ended
//	file confirmed  ◄───────────  downward API volume    ◄─────── annotation of the pod
//
// The runner decides, once, by its monotonic clock. The confirmation is no more than evidence.
const (
	// probedName is there when the readiness probe has begun, and confirmingName when the task has ended.
	probedName     = "probed"
	confirmingName = "confirming"

	// confirmPoll is the time between two looks at a file that another process writes.
	confirmPoll = 50 * time.Millisecond

	// exitReverted is the exit code of an attempt whose scripts have succeeded, and that was reverted.
	exitReverted = 1
)

// WaitConfirming is the readiness probe: it returns 0 when the task has ended and waits for the confirmation. Until then it does not
// return, because the kubelet reports each probe that fails as an event.
func WaitConfirming(runDir string) (exitCode int) {
	if err := os.WriteFile(filepath.Join(runDir, probedName), nil, 0o600); err != nil {
		fmt.Fprintf(os.Stderr, "everynode-runner: %v\n", err)
		return exitRunner
	}
	for !exists(filepath.Join(runDir, confirmingName)) {
		time.Sleep(confirmPoll)
	}
	return 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// runConfirmed runs the task and its check, and reverts the node unless it is confirmed after that, however they have ended.
func (a *attempt) runConfirmed(io stdio) (ending, error) {
	if err := a.awaitProbe(); err != nil {
		return ending{}, err
	}
	ended, err := a.runTask(io)
	if !a.begun {
		return ended, err
	}
	// All that the scripts have left running has ended. If the window began earlier, they could use it up.
	why := a.awaitConfirmation()
	if why == "" {
		return ended, err
	}
	if err != nil {
		a.note("%v", err)
	}
	return a.revert(io, ended, why), nil
}

// awaitProbe waits until the kubelet has started the readiness probe. Without it, no node would be confirmed: then the task must not
// start.
func (a *attempt) awaitProbe() error {
	if a.RunDir == "" {
		return &failure{outcome.ReasonBadConfiguration, fmt.Errorf("%s is set, and the flag --%s is not: the runner needs both", contract.EnvConfirm, contract.FlagRunDir)}
	}
	if _, err := os.Stat(a.ConfirmDir); err != nil {
		return &failure{outcome.ReasonBadConfiguration, fmt.Errorf("looking for the volume of the confirmation: %w", err)}
	}
	probed := func() bool { return exists(filepath.Join(a.RunDir, probedName)) }
	for giveUp := time.Now().Add(a.Limits.Probe); !probed(); {
		if a.supervisor.poll(); a.supervisor.stopped() {
			return nil // the task does not start either
		}
		if time.Now().After(giveUp) {
			return &failure{outcome.ReasonBadConfiguration, fmt.Errorf(
				"the kubelet has not started the readiness probe of the pod for %v, so the node could not be confirmed, and the task was not started: "+
					"check that the runner image has %s, or leave spec.confirm out", a.Limits.Probe, contract.RunnerPath)}
		}
		time.Sleep(confirmPoll)
	}
	return nil
}

// awaitConfirmation waits for the confirmation. It returns why the node must be reverted; "" if it is confirmed.
func (a *attempt) awaitConfirmation() (why string) {
	s := &a.supervisor
	if s.poll(); !s.toldAt.IsZero() { // no confirmation reaches a pod that is being deleted
		return "the pod was told to stop before the node was confirmed"
	}
	if err := os.WriteFile(filepath.Join(a.RunDir, confirmingName), nil, 0o600); err != nil {
		return "the wait for the confirmation could not begin: " + err.Error()
	}
	window := time.NewTimer(a.Confirm.Window)
	defer window.Stop()
	look := time.NewTicker(confirmPoll)
	defer look.Stop()
	for !a.confirmed() {
		select {
		case <-look.C:
		case <-window.C:
			return fmt.Sprintf("the node was not confirmed within %v: its kubelet has not reported the end of the task, or it was not Ready", a.Confirm.Window)
		case sig := <-s.signals:
			if sig == unix.SIGTERM || sig == unix.SIGINT {
				s.interrupt(sig)
				return "the pod was told to stop before the node was confirmed"
			}
		}
	}
	return ""
}

// confirmed reports whether the kubelet has written the confirmation.
func (a *attempt) confirmed() bool {
	content, err := os.ReadFile(filepath.Join(a.ConfirmDir, contract.ConfirmFile))
	return err == nil && len(content) > 0 && contract.ConfirmDigest(strings.TrimSpace(string(content))) == a.Confirm.Digest
}

// revert runs the rollback. Nothing but its time limit ends it before it has ended.
func (a *attempt) revert(io stdio, ended ending, why string) ending {
	a.note("%s", why)
	told := a.supervisor.interrupted
	a.supervisor = supervisor{
		limits: a.Limits, children: a.supervisor.children, results: a.results, toldAt: a.supervisor.toldAt,
		deadline: time.After(a.Confirm.RollbackTimeout),
	}
	a.Timeout = a.Confirm.RollbackTimeout
	a.Config.Environ = a.revertEnviron(ended)
	back, err := a.runScript(rollbackPhase, a.Confirm.Rollback, io)
	if err != nil {
		a.note("%v", err)
		back.code = exitRunner
		if interpreter, ok := errors.AsType[*interpreterError](err); ok {
			back.code = interpreter.code
		}
	}
	a.reverted = &back.code
	a.note("the rollback ran on the node itself and ended with exit code %d", back.code)
	reverted := ending{ended.code, outcome.ReasonReverted}
	switch {
	case back.code != 0:
		reverted.reason = outcome.ReasonRevertFailed
	case told != 0: // the task is repeated
		reverted = ending{128 + int(told), outcome.ReasonDisrupted}
	}
	if reverted.code == 0 {
		reverted.code = exitReverted
	}
	return reverted
}

// revertEnviron returns the environment of the rollback, which is that of a rollback in its own pod.
func (a *attempt) revertEnviron(ended ending) []string {
	environ := with(a.Config.Environ, contract.EnvRollbackFor, contract.RollbackForFailure)
	if ended.code != 0 {
		environ = with(environ, contract.EnvFailedExitCode, fmt.Sprint(ended.code))
	}
	if ended.reason != "" {
		environ = with(environ, contract.EnvFailedReason, ended.reason)
	}
	var results map[string]string
	if content, err := readResults(a.results); err == nil {
		results, _, _ = a.parseResults(content) // errors are noted when the outcome is created
	}
	for _, v := range contract.ResultVariables(results) {
		environ = with(environ, v.Name, v.Value)
	}
	return environ
}
