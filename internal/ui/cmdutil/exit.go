// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cmdutil has what the commands of kubectl everynode share with the dashboard: clients, errors with exit codes, and reads of
// the objects that several of them need.
package cmdutil

import (
	"errors"
	"fmt"
)

// Exit codes, the same for every command. docs/cli.md has the table.
const (
	// ExitOK means that the command succeeded.
	ExitOK = 0
	// ExitError means an error for which there is no other code.
	ExitError = 1
	// ExitUsage means that the command line is invalid. Nothing was changed.
	ExitUsage = 2
	// ExitNotFound means that the NodeJob, node or step does not exist, or that a selector matches no node.
	ExitNotFound = 3
	// ExitIncomplete means that a conversion has a TODO. Only convert has it, which asks no cluster, so it cannot be ExitNotFound.
	ExitIncomplete = 3
	// ExitForbidden means that the user lacks a permission that the command needs.
	ExitForbidden = 4
	// ExitNotInstalled means that the cluster does not have the NodeJob CRD.
	ExitNotInstalled = 5
	// ExitNoAnswer means that the API server does not respond.
	ExitNoAnswer = 6
	// ExitDeclined means that the user answered no. Nothing was changed.
	ExitDeclined = 7
	// ExitNonCompliant means that nodes are not compliant.
	ExitNonCompliant = 8
	// ExitWaits means that the NodeJob waits for a user, and nothing has failed.
	ExitWaits = 9
	// ExitNodesFailed means that the task failed on a node, or that the NodeJob is Stalled.
	ExitNodesFailed = 10
	// ExitTimedOut means that the command did not finish within the given time.
	ExitTimedOut = 11
	// ExitGone means that the NodeJob was deleted while the command watched it.
	ExitGone = 12
	// ExitDetached means that Ctrl-C ended the command, but not the NodeJob.
	ExitDetached = 130
)

// Error is an error with its own exit code. If Err is nil, the command has already printed all messages.
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

// Failf returns an error with an exit code.
func Failf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Exit returns an error that only carries an exit code, for a command that has already printed all messages.
func Exit(code int) error {
	if code == ExitOK {
		return nil
	}
	return &Error{Code: code}
}

// CodeOf returns the exit code for an error.
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

// IsSilent reports whether an error has no message to print.
func IsSilent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Err == nil
}
