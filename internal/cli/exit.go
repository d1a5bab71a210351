// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
)

// Exit codes, the same for every verb. docs/cli.md has the table.
const (
	// ExitOK : what was asked for is so.
	ExitOK = 0
	// ExitError : something went wrong that no other code tells.
	ExitError = 1
	// ExitUsage : the command line makes no sense; nothing was done.
	ExitUsage = 2
	// ExitNotFound : there is no such NodeJob, node or step, or a selector matches no node.
	ExitNotFound = 3
	// ExitForbidden : the user may not do what the verb needs.
	ExitForbidden = 4
	// ExitNotInstalled : the cluster does not know NodeJobs.
	ExitNotInstalled = 5
	// ExitNoAnswer : the API server does not answer.
	ExitNoAnswer = 6
	// ExitDeclined : somebody was asked and said no; nothing was done.
	ExitDeclined = 7
	// ExitNodesFailed : the task has failed on a node, or the NodeJob cannot go on.
	ExitNodesFailed = 10
	// ExitTimedOut : it was not over within the time that was given.
	ExitTimedOut = 11
	// ExitGone : the NodeJob was deleted while it was looked at.
	ExitGone = 12
	// ExitDetached : Ctrl-C ended the command, not the NodeJob.
	ExitDetached = 130
)

// Error is an error with an exit code of its own. One without Err has said all there is to say.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Failf is an error with an exit code.
func Failf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Exit ends a command with a code when everything has been said.
func Exit(code int) error {
	if code == ExitOK {
		return nil
	}
	return &Error{Code: code}
}

// CodeOf is the exit code that an error asks for.
func CodeOf(err error) int {
	var e *Error
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &e):
		return e.Code
	}
	return ExitError
}

// silent is true for an error that has nothing to say.
func silent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Err == nil
}
