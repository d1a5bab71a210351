// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// ending is how a script ended, in the terms of an outcome.
type ending struct {
	code   int
	reason string
}

// phase is one of the scripts of an attempt.
type phase struct {
	name         string // for notes
	failedReason string
}

var (
	taskPhase  = phase{"the script", outcome.ReasonTaskFailed}
	checkPhase = phase{"the check", outcome.ReasonCheckFailed}
	// beforePhase is the same script as checkPhase.
	beforePhase = phase{"the check before the task", outcome.ReasonCheckError}
	// rollbackPhase runs without a confirmation.
	rollbackPhase = phase{"the rollback", outcome.ReasonRevertFailed}
)

// runScripts runs the scripts of the attempt.
func (a *attempt) runScripts(io stdio) (ending, error) {
	if ended, failed := a.settle(io); failed {
		return ended, nil
	}
	if a.CheckBefore {
		if ended, needed := a.checkBefore(io); !needed {
			return ended, nil
		}
	}
	if a.Confirm != nil {
		return a.runConfirmed(io)
	}
	return a.runTask(io)
}

// runTask runs the task and, if it succeeded, its check.
func (a *attempt) runTask(io stdio) (ending, error) {
	ended, err := a.runScript(taskPhase, a.Task, io)
	if err != nil || ended.code != 0 || a.Check == nil {
		return ended, err
	}
	if a.rebootComesFirst() {
		a.note("the check runs after the reboot")
		return ended, nil
	}
	return a.runScript(checkPhase, *a.Check, io)
}

// checkBefore runs the check before the task, and reports whether the task is needed. If not, the attempt has ended: the check
// answered yes, was disrupted, or has itself failed.
func (a *attempt) checkBefore(io stdio) (ended ending, needed bool) {
	ended, err := a.runScript(beforePhase, *a.Check, io)
	switch {
	case err != nil:
		a.note("%v", err)
		ended = ending{exitRunner, outcome.ReasonCheckError}
	case ended.code == contract.CheckYes && ended.reason == "":
		return ending{contract.CheckYes, outcome.ReasonAlreadyDone}, false
	case contract.AnswersNo(ended.code) && ended.reason == outcome.ReasonCheckError:
		return ended, true
	case ended.reason == outcome.ReasonDisrupted:
		return ended, false
	}
	ended.reason = outcome.ReasonCheckError // also after a timeout
	return ended, false
}

// rebootComesFirst reports whether the check has to wait for a reboot, in another pod. Unreadable results are reported
// when the outcome is created.
func (a *attempt) rebootComesFirst() bool {
	if a.Reboot != contract.RebootIfRequested {
		return a.Reboot == contract.RebootAlways
	}
	content, err := readResults(a.results)
	if err != nil {
		return false
	}
	results, _, _ := outcome.ParseResults(content)
	return outcome.RebootRequested(results)
}

// runScript runs one script and ends all processes that it leaves behind.
func (a *attempt) runScript(p phase, s Script, io stdio) (ending, error) {
	if a.supervisor.poll(); a.supervisor.stopped() {
		return a.stopped(p, 0, "before %s started"), nil
	}
	text, err := newScriptFile(s.Text)
	if err != nil {
		return ending{}, err
	}
	defer func() { _ = text.Close() }()
	a.last = lastScript{phase: p, script: s, printed: a.printed()}
	pid, err := a.host.start(s, a.Config.Environ, io, sharedFiles{text, a.results, a.files})
	if err != nil {
		return ending{}, err
	}
	a.begun = a.begun || p == taskPhase
	status, ended := a.supervisor.wait(pid)
	result := a.ending(p, status)
	if !ended {
		a.note("process %d of %s could not be killed and is still there", pid, p.name)
	}
	killed, left, err := a.supervisor.sweep()
	switch {
	case err != nil:
		a.note("%v", err)
	case left > 0:
		a.note("processes that %s left running could not be killed: %d", p.name, left)
	case killed > 0:
		a.note("processes that %s left running were killed: %d", p.name, killed)
	}
	return result, nil
}

// ending converts a wait status. The reason that the attempt was stopped takes precedence: a script that exits with 0
// after SIGTERM has not completed its work.
func (a *attempt) ending(p phase, status unix.WaitStatus) ending {
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	switch {
	case a.supervisor.stopped():
		return a.stopped(p, code, "while %s ran")
	case code == 0:
		return ending{}
	case status.Signaled():
		a.note("%s was killed by %s", p.name, signalName(status.Signal()))
		if p == taskPhase || p == beforePhase {
			return ending{code, outcome.ReasonSignaled}
		}
	}
	if status.Exited() {
		a.last.exitCode = code
	}
	return ending{code, p.failedReason}
}

// stopped returns the ending of an attempt that was told to stop, or timed out.
func (a *attempt) stopped(p phase, code int, when string) ending {
	if a.supervisor.timedOut {
		a.note("the time limit of %v passed "+when, a.Timeout, p.name)
		return ending{exitTimedOut, outcome.ReasonTimedOut}
	}
	if code == 0 {
		code = 128 + int(a.supervisor.interrupted)
	}
	a.note("the runner received %s "+when, signalName(a.supervisor.interrupted), p.name)
	return ending{code, outcome.ReasonDisrupted}
}
