// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-everynode is a kubectl plugin that can also be used standalone: kubectl finds it as "kubectl
// everynode".
//
// If a pipe is closed early, for example by head, the command ends silently: that is how the Go runtime handles SIGPIPE
// on stdout and stderr.
package main

import (
	"context"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/cli"
)

func main() {
	// Logs of libraries are not for the user of a command: relevant problems are returned as errors.
	klog.SetLogger(logr.Discard())
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(cli.Run(context.Background(), streams, os.Args[1:]))
}
