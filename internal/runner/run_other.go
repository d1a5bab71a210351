// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package runner

import (
	"errors"
	"io"
	"time"
)

// Limits : see the Linux build.
type Limits struct{}

// DefaultLimits returns nothing here.
func DefaultLimits() Limits { return Limits{} }

// Options : see the Linux build.
type Options struct {
	TargetPID      int
	TerminationLog string
	RunDir         string
	Environ        []string
	Stdout, Stderr io.Writer
	Started        time.Time
	Version        string
	Limits         Limits
}

// Run returns an error.
func Run(o Options) (exitCode int) {
	return Refuse(o.TerminationLog, o.Stderr, errors.New("the runner needs Linux"))
}
