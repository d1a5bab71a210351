// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cluster

import (
	"errors"
	"syscall"
)

// Elsewhere than on Linux there are simulated nodes only, so none of these is ever reached.
var errLinuxOnly = errors.New("real nodes need Linux")

func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func whyNoRealNodes() string { return "this is not Linux" }

func canHaveRealNodes() bool { return false }

func freeSlot() (int, error) { return 0, errLinuxOnly }

func (c *Cluster) setUpNetwork() error { return errLinuxOnly }

func (c *Cluster) routePods(int) error { return errLinuxOnly }

func (c *Cluster) raiseWatchLimit() {}

func (c *Cluster) removeNetwork() error { return nil }

func (c *Cluster) unplug(*realNode) error { return nil }

func removeGroup(string) error { return nil }

func hideHost(string) error { return errLinuxOnly }

func (c *Cluster) systemLeftovers() []string { return nil }

func (c *Cluster) unmountAll() error { return nil }
