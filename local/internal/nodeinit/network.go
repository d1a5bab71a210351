// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodeinit

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/everynode/everynode/local/internal/nodespec"
)

// configureNetwork sets up the links in the node's network namespace. There is no default route on
// purpose: nothing a node does reaches beyond its cluster, and what tries fails at once.
func configureNetwork(spec *nodespec.Spec) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding the loopback link: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("setting the loopback link up: %w", err)
	}
	link, err := netlink.LinkByName(spec.PeerLink)
	if err != nil {
		return fmt.Errorf("finding the node's link: %w", err)
	}
	if err := connect(link, spec.Address); err != nil {
		return err
	}
	if err := addRoutes(link, spec.Routes); err != nil {
		return err
	}
	// The bridge plugin does so too, but only with the first pod: packets for a service's address
	// that come from outside the node would be lost until then.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("switching forwarding on: %w", err)
	}
	return nil
}

// connect gives the node's link the name that a machine's first one has, and the node's address.
func connect(link netlink.Link, address string) error {
	if err := netlink.LinkSetName(link, "eth0"); err != nil {
		return fmt.Errorf("naming the node's link: %w", err)
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("reading the node's address: %w", err)
	}
	if err := netlink.AddrAdd(link, parsed); err != nil {
		return fmt.Errorf("setting the node's address: %w", err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting the node's link up: %w", err)
	}
	return nil
}

// addRoutes adds the routes to the other nodes' pods and to services; the link must be up.
func addRoutes(link netlink.Link, routes []nodespec.Route) error {
	for _, r := range routes {
		_, to, err := net.ParseCIDR(r.To)
		if err != nil {
			return fmt.Errorf("reading a route: %w", err)
		}
		route := netlink.Route{LinkIndex: link.Attrs().Index, Dst: to}
		if r.Via == "" {
			route.Scope = netlink.SCOPE_LINK
		} else {
			route.Gw = net.ParseIP(r.Via)
		}
		if err := netlink.RouteReplace(&route); err != nil {
			return fmt.Errorf("adding the route to %s: %w", r.To, err)
		}
	}
	return nil
}
