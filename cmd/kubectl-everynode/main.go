// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-everynode is a kubectl plugin, also usable by itself: kubectl finds it as "kubectl everynode".
//
// A pipe that is closed early, as by head, ends it without a word: that is what the Go runtime does with SIGPIPE on
// stdout and stderr.
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
	// What libraries log is not for the user of a command: what matters comes back as an error.
	klog.SetLogger(logr.Discard())
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(cli.Run(context.Background(), streams, os.Args[1:]))
}
