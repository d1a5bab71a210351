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

	// probeAgain is the time between two executions of a probe that fails.
	probeAgain = time.Second
	// maxProbeBytes limits what is shown of the output of a probe.
	maxProbeBytes = 200

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
	if ended, failed := a.probeBefore(io); failed {
		return ended, nil
	}
	if err := a.keep(); err != nil {
		return ending{}, err
	}
	ended, err := a.runTask(io)
	if !a.begun {
		return ended, errors.Join(err, a.decided())
	}
	// All that the scripts have left running has ended. If the window began earlier, they could use it up.
	begun := time.Now()
	why := a.awaitConfirmation(io)
	if why == "" {
		// The decision is on the disk before anyone learns of it.
		failed := a.decided()
		if failed == nil {
			if ended.code == 0 {
				a.note("the node was confirmed after %v", time.Since(begun).Round(time.Second))
			}
			return ended, err
		}
		why = fmt.Sprintf("the node was confirmed, and the decision could not be stored: %v", failed)
	}
	if err != nil {
		a.note("%v", err)
	}
	ended = a.revert(io, ended, why)
	if err := a.decided(); err != nil {
		a.note("the rollback may run once more: %v", err)
	}
	return ended, nil
}

// decided notes that nothing else must revert the node.
func (a *attempt) decided() (err error) {
	if a.kept == nil {
		return nil
	}
	a.host.do(func() {
		if err = a.kept.decided(); err == nil {
			a.kept.remove()
		}
	})
	return err
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

// awaitConfirmation waits for the confirmation, and until each probe has succeeded. It returns why the node must be reverted; "" if it
// is confirmed.
func (a *attempt) awaitConfirmation(io stdio) (why string) {
	const told = "the pod was told to stop before the node was confirmed" // no confirmation reaches a pod that is being deleted
	s := &a.supervisor
	if s.poll(); !s.toldAt.IsZero() {
		return told
	}
	if err := os.WriteFile(filepath.Join(a.RunDir, confirmingName), nil, 0o600); err != nil {
		return "the wait for the confirmation could not begin: " + err.Error()
	}
	end := time.Now().Add(a.Confirm.Window)
	pending, failed := a.Confirm.Probes, ""
	for next := time.Now(); len(pending) > 0 || !a.confirmed(); {
		switch left := time.Until(end); {
		case !s.toldAt.IsZero():
			return told
		case left <= 0:
			return a.notConfirmed(failed)
		case len(pending) == 0 || time.Until(next) > 0:
			s.sleep(confirmPoll)
		default:
			if failed = a.probeWithin(io, pending[0], left, failed); failed == "" {
				pending = pending[1:]
			} else {
				next = time.Now().Add(probeAgain)
			}
		}
	}
	return ""
}

// probeWithin runs a probe for what is left of the window, and returns how it has failed. If the window ends it, how it failed before says
// more.
func (a *attempt) probeWithin(io stdio, p Probe, left time.Duration, before string) (failed string) {
	code, failed := a.probe(io, p, min(p.Timeout, left))
	if code == exitTimedOut && left < p.Timeout && before != "" {
		return before
	}
	return failed
}

// notConfirmed says why the window has passed. failed is how the last probe has failed.
func (a *attempt) notConfirmed(failed string) string {
	why := fmt.Sprintf("the node was not confirmed within %v", a.Confirm.Window)
	if !a.confirmed() {
		why += ": its kubelet has not reported the end of the task, or it was not Ready"
	}
	if failed != "" {
		why += ": " + failed
	}
	return why
}

// sleep waits for a time, or for a signal.
func (s *supervisor) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case sig := <-s.signals:
		s.interrupt(sig)
	}
}

// probeBefore runs the probes before the task, which starts only if all succeed.
func (a *attempt) probeBefore(io stdio) (ended ending, failed bool) {
	for _, p := range a.Confirm.Probes {
		code, why := a.probe(io, p, p.Timeout)
		if a.supervisor.poll(); a.supervisor.stopped() {
			return ending{}, false // the task does not start either
		}
		if why != "" {
			a.note("before the task, %s: the task was not started", why)
			return ending{code, outcome.ReasonProbeFailed}, true
		}
	}
	return ending{}, false
}

// probe runs a probe for at most a time, and returns its exit code and how it has failed; "" if it has succeeded. What it prints is only
// part of that: it can run often.
func (a *attempt) probe(io stdio, p Probe, limit time.Duration) (code int, failed string) {
	printed, err := newMemfd("everynode-probe")
	if err != nil {
		return exitRunner, fmt.Sprintf("probe %s could not run: %v", p.Name, err)
	}
	defer func() { _ = printed.Close() }()
	own := *a
	a.supervisor = supervisor{limits: a.Limits, signals: own.supervisor.signals, children: own.supervisor.children, results: printed, deadline: time.After(limit)}
	a.notes, a.Timeout, a.results = nil, limit, printed // what it writes to EVERYNODE_RESULTS is no result
	ended, err := a.runScript(phase{"probe " + p.Name, outcome.ReasonProbeFailed}, p.Script, stdio{io.in, printed, printed})
	reasons, told := a.notes, a.supervisor
	*a = own
	if told.interrupted != 0 {
		a.supervisor.interrupt(told.interrupted)
	}
	switch {
	case err != nil:
		return exitRunner, fmt.Sprintf("probe %s failed: %v", p.Name, err)
	case ended.code == 0:
		return 0, ""
	case len(reasons) > 0:
		return ended.code, strings.Join(reasons, "; ")
	}
	failed = fmt.Sprintf("probe %s failed with exit code %d", p.Name, ended.code)
	if content, err := readResults(printed); err == nil && len(content) > 0 {
		failed += ": " + outcome.CleanLine(outcome.CleanHead(strings.TrimSpace(a.secrets.text(string(content))), maxProbeBytes))
	}
	return ended.code, failed
}

// confirmed reports whether the kubelet has written the confirmation.
func (a *attempt) confirmed() bool {
	content, err := os.ReadFile(filepath.Join(a.ConfirmDir, contract.ConfirmFile))
	return err == nil && len(content) > 0 && contract.ConfirmDigest(strings.TrimSpace(string(content))) == a.Confirm.Digest
}

// revert runs the rollback.
func (a *attempt) revert(io stdio, ended ending, why string) ending {
	told := a.supervisor.interrupted
	back := a.rollback(io, a.Confirm.Rollback, a.Confirm.RollbackTimeout, a.revertEnviron(ended))
	a.note("%s", why) // last: statuses and events show the last line
	a.reverted = &back.code
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

// rollback runs a rollback on the node itself, and notes how it has ended. Nothing but its time limit ends it before that.
func (a *attempt) rollback(io stdio, s Script, timeout time.Duration, environ []string) ending {
	own, supervised := a.Config, a.supervisor
	defer func() { a.Config, a.supervisor = own, supervised }()
	a.supervisor = supervisor{limits: a.Limits, children: supervised.children, results: a.results, deadline: time.After(timeout)}
	a.Timeout, a.Config.Environ = timeout, environ
	back, err := a.runScript(rollbackPhase, s, io)
	if err != nil {
		a.note("%v", err)
		back.code = exitRunner
		if interpreter, ok := errors.AsType[*interpreterError](err); ok {
			back.code = interpreter.code
		}
	}
	a.note("the rollback ran on the node itself and ended with exit code %d", back.code)
	return back
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
	return withVariables(environ, results)
}

// withVariables returns the environment with the variables of results.
func withVariables(environ []string, results map[string]string) []string {
	for _, v := range contract.ResultVariables(results) {
		environ = with(environ, v.Name, v.Value)
	}
	return environ
}
