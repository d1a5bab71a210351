// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cluster

import (
	"errors"
	"syscall"

	"github.com/everynode/everynode/local/internal/nodespec"
)

// Elsewhere than on Linux there are simulated nodes only, so none of these is ever reached.
var errLinuxOnly = errors.New("real nodes need Linux")

func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func whyNoRealNodes() string { return "this is not Linux" }

func canHaveRealNodes() bool { return false }

func freeSlot() (int, error) { return 0, errLinuxOnly }

func (*network) setUpNetwork() error { return errLinuxOnly }

func (*network) routePods(int) error { return errLinuxOnly }

func raiseWatchLimit(*progress) {}

func (*network) removeNetwork() error { return nil }

func (*network) unplug(*nodespec.Spec) error { return nil }

func removeGroup(string) error { return nil }

func hideHost(string) error { return errLinuxOnly }

func (*state) systemLeftovers() []string { return nil }

func unmountAll(string) error { return nil }
