// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runner runs a script on a node from inside a container. It is the entry point of a task's pod.
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
// The contract with the controller is in config.go, the one with users in docs/runner.md, and the output format in
// package outcome. The runner works only on Linux. On other systems the package builds, but Run fails.
package runner

import (
	"fmt"
	"io"
	"os"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// exitRunner is the exit code for errors of the runner itself, as for env and docker.
const exitRunner = 125

// exitTimedOut is the exit code after a timeout, as for timeout(1).
const exitTimedOut = 124

// DefaultTerminationLog is where the kubelet reads a container's termination message, unless the pod specifies another
// path.
const DefaultTerminationLog = "/dev/termination-log"

// Refuse reports an invalid configuration that is detected before Run.
func Refuse(terminationLog string, stderr io.Writer, err error) (exitCode int) {
	o := outcome.Outcome{ExitCode: exitRunner, Reason: outcome.ReasonBadConfiguration, Message: err.Error()}
	fmt.Fprintf(stderr, "everynode-runner: %s: %v\n", o.Reason, err)
	return end(o, terminationLog, stderr)
}

// Pulled reports that the images of the pod are on the node.
func Pulled(terminationLog string, stderr io.Writer) (exitCode int) {
	return end(outcome.Outcome{ExitCode: contract.CheckNo, Reason: outcome.ReasonImagesPulled}, terminationLog, stderr)
}

// end writes the outcome of a runner that has run nothing.
func end(o outcome.Outcome, terminationLog string, stderr io.Writer) (exitCode int) {
	log, openErr := openLog(terminationLog)
	if openErr != nil {
		fmt.Fprintf(stderr, "everynode-runner: %v\n", openErr)
	}
	if err := writeLog(log, o); err != nil {
		fmt.Fprintf(stderr, "everynode-runner: %v\n", err)
	}
	return o.ExitCode
}

// openLog opens the termination log. This must happen before the runner enters the node's file system.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the termination log: %w", err)
	}
	return f, nil
}

// writeLog writes the outcome. Without a log, only the exit code remains.
func writeLog(f *os.File, o outcome.Outcome) error {
	if f == nil {
		return nil
	}
	if err := storeLog(f, o); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("closing the termination log: %w", err)
	}
	return nil
}

// storeLog writes the outcome, or replaces one that was written before.
func storeLog(f *os.File, o outcome.Outcome) error {
	if f == nil {
		return nil
	}
	b := o.Encode()
	_, seekErr := f.Seek(0, io.SeekStart) // a pipe has no other outcome that would have to be replaced
	_, err := f.Write(b)
	if err == nil && seekErr == nil {
		err = f.Truncate(int64(len(b)))
	}
	if err != nil {
		return fmt.Errorf("writing the termination log: %w", err)
	}
	return nil
}
