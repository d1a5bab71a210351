// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/everynode/everynode/local/internal/nodespec"
)

// plug makes the node's pair of links: one end at the cluster's bridge, the other in the namespace
// of the process. An end of an earlier boot is removed: the kernel frees it some time after the
// node's last process, which may be later than this.
func plug(spec *nodespec.Spec, pid int) error {
	if old, err := netlink.LinkByName(spec.HostLink); err == nil {
		// The kernel may have been faster.
		if err := netlink.LinkDel(old); err != nil && !errors.Is(err, syscall.ENODEV) {
			return fmt.Errorf("removing the link of the last boot: %w", err)
		}
	}
	bridge, err := netlink.LinkByName(spec.Bridge)
	if err != nil {
		return fmt.Errorf("finding the cluster's bridge %s: %w", spec.Bridge, err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = spec.HostLink
	attributes.MasterIndex = bridge.Attrs().Index
	pair := &netlink.Veth{LinkAttrs: attributes, PeerName: spec.PeerLink, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("making the node's link: %w", err)
	}
	if err := netlink.LinkSetUp(pair); err != nil {
		return fmt.Errorf("setting the node's link up: %w", err)
	}
	return nil
}
