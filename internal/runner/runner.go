// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runner runs a script on a node, from inside a container: the entry point of a task's pod.
//
//	container                              node (mount, uts, ipc, net namespaces of process 1)
//	┌─────────────────────────────┐        ┌──────────────────────────────────────┐
//	│ runner                      │        │ interpreter /proc/<runner>/fd/<n>    │
//	│   supervisor ── signals ────┼──────► │   process group, all descendants     │
//	│   pumps      ◄── output ────┼─────── │                                      │
//	│   memfd      ◄── results ───┼─────── │   $EVERYNODE_RESULTS                 │
//	│   termination log           │        └──────────────────────────────────────┘
//	└─────────────────────────────┘
//
// It also reboots the node, in a pod that has no script: reboot_linux.go.
//
// The contract with the controller is in config.go, the one with users in docs/runner.md, what comes
// out in package outcome. Only Linux has what it needs; elsewhere the package builds and refuses.
package runner

import (
	"fmt"
	"io"
	"os"

	"github.com/everynode/everynode/internal/outcome"
)

// exitRunner is the exit code for trouble of the runner's own, as it is env's and docker's.
const exitRunner = 125

// exitTimedOut is the exit code for a time limit, as it is that of timeout(1).
const exitTimedOut = 124

// DefaultTerminationLog is where the kubelet takes a container's termination message from, unless
// the pod says otherwise.
const DefaultTerminationLog = "/dev/termination-log"

// Refuse reports a configuration that cannot be run, for mistakes found before Run.
func Refuse(terminationLog string, stderr io.Writer, err error) (exitCode int) {
	o := outcome.Outcome{ExitCode: exitRunner, Reason: outcome.ReasonBadConfiguration, Message: err.Error()}
	log, openErr := openLog(terminationLog)
	if openErr != nil {
		fmt.Fprintf(stderr, "everynode-runner: %v\n", openErr)
	}
	fmt.Fprintf(stderr, "everynode-runner: %s: %v\n", o.Reason, err)
	if err := writeLog(log, o); err != nil {
		fmt.Fprintf(stderr, "everynode-runner: %v\n", err)
	}
	return o.ExitCode
}

// openLog opens the termination log, which has to happen before the node's file system is entered.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the termination log: %w", err)
	}
	return f, nil
}

// writeLog writes the outcome. Without a log the exit code is all that is left.
func writeLog(f *os.File, o outcome.Outcome) error {
	if f == nil {
		return nil
	}
	if _, err := f.Write(o.Encode()); err != nil {
		return fmt.Errorf("writing the termination log: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("closing the termination log: %w", err)
	}
	return nil
}
