// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-runner runs a NodeJob's script on the node. It is the entry point of the task's pod and is
// configured by the pod's environment: docs/runner.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/everynode/everynode/internal/runner"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/version"
)

func main() { os.Exit(run(time.Now(), os.Args[1:])) }

func run(started time.Time, args []string) (exitCode int) {
	flags := flag.NewFlagSet("everynode-runner", flag.ContinueOnError)
	target := flags.Int("target-pid", 1, "the `process` whose namespaces scripts run in; 0 for the runner's own")
	log := flags.String("termination-log", runner.DefaultTerminationLog, "the `file` that takes the outcome")
	runDir := flags.String(contract.FlagRunDir, "", "the `folder` by which the pod's containers know that the task has run; empty for none")
	wait := flags.Bool(contract.FlagWait, false, "do nothing until SIGTERM or SIGINT: the companion of a NodeGuard that brings none")
	confirming := flags.Bool(contract.FlagConfirming, false, "wait until the task of the pod has ended, and waits for a confirmation: the readiness probe of its pod")
	pulled := flags.Bool(contract.FlagPulled, false, "end at once: the images of the pod are on the node")
	keep := flags.String(contract.FlagKeep, "", "revert the node by what is in this `folder`, unless a runner that ends has decided that; used by the runner")
	cgroupOf := flags.Int(contract.FlagCgroupOf, 0, "with --keep: the `process` whose control group to join; 0 for none")
	showVersion := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return runner.Refuse(*log, os.Stderr, fmt.Errorf("reading the flags: %w", err))
	}
	switch {
	case *showVersion:
		fmt.Println(version.String())
		return 0
	case flags.NArg() > 0:
		return runner.Refuse(*log, os.Stderr, fmt.Errorf("unexpected argument %q: everything is in the environment", flags.Arg(0)))
	case *wait:
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
		<-signals
		return 0
	case *pulled:
		return runner.Pulled(*log, os.Stderr)
	case *confirming:
		return runner.WaitConfirming(*runDir)
	case *keep != "":
		return runner.Keep(runner.KeepOptions{Dir: *keep, CgroupOf: *cgroupOf, Stdout: os.Stdout, Stderr: os.Stderr, Limits: runner.DefaultLimits()})
	case *target < 0:
		return runner.Refuse(*log, os.Stderr, fmt.Errorf("--target-pid is %d, below 0", *target))
	}
	return runner.Run(runner.Options{
		TargetPID:      *target,
		TerminationLog: *log,
		RunDir:         *runDir,
		ConfirmDir:     contract.ConfirmDir,
		KeepDir:        contract.KeepDir,
		Uploader:       uploader(),
		SpoolDir:       "/", // the writable layer of the container, which the kubelet limits and deletes with the pod
		Environ:        os.Environ(),
		Stdout:         os.Stdout,
		Stderr:         os.Stderr,
		Started:        started,
		Version:        version.String(),
		Limits:         runner.DefaultLimits(),
	})
}

// uploader returns the path of everynode-upload, which is in the folder of this program.
func uploader() string {
	own, err := os.Executable()
	if err != nil {
		return contract.UploadProgram
	}
	return filepath.Join(filepath.Dir(own), contract.UploadProgram)
}
