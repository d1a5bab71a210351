// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/local/internal/cgroups"
	"github.com/everynode/everynode/local/internal/nodespec"
)

// detached starts a process in a session of its own, so that neither Ctrl-C nor the end of the
// terminal reaches it.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// whyNoRealNodes names what this process lacks to make real nodes, or nothing.
func whyNoRealNodes() string {
	if os.Geteuid() != 0 {
		return "this is not root"
	}
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "/proc is not readable"
	}
	_, rest, _ := strings.Cut(string(data), "CapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	capabilities, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return "the capabilities are not readable"
	}
	for name, bit := range map[string]uint{"CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN} {
		if capabilities&(1<<bit) == 0 {
			return "root here lacks " + name
		}
	}
	return ""
}

func canHaveRealNodes() bool { return whyNoRealNodes() == "" }

// freeSlot finds an address range that nothing on this machine uses. Callers hold the lock of all
// clusters until the bridge with the range's address is there.
func freeSlot() (int, error) {
	used, err := usedNets()
	if err != nil {
		return 0, err
	}
	for slot := range slots {
		free := true
		for _, other := range used {
			candidate := slotNet(slot)
			if other.Contains(candidate.IP) || candidate.Contains(other.IP) {
				free = false
				break
			}
		}
		if free {
			return slot, nil
		}
	}
	return 0, errors.New("finding an address range: all of 10.128.0.0 to 10.223.255.255 is in use on this machine")
}

func slotNet(slot int) *net.IPNet {
	return &net.IPNet{IP: net.IPv4(10, byte(firstSlotOctet+slot), 0, 0).To4(), Mask: net.CIDRMask(16, 32)}
}

func usedNets() ([]*net.IPNet, error) {
	var used []*net.IPNet
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("listing this machine's addresses: %w", err)
	}
	for _, address := range addresses {
		used = append(used, address.IPNet)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("listing this machine's routes: %w", err)
	}
	for _, route := range routes {
		if route.Dst == nil {
			continue
		}
		if ones, _ := route.Dst.Mask.Size(); ones > 0 {
			used = append(used, route.Dst)
		}
	}
	return used, nil
}

// setUpNetwork makes the cluster's bridge.
func (n *network) setUpNetwork() error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = n.bridgeName()
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("making the cluster's bridge: %w", err)
	}
	address, err := netlink.ParseAddr(n.apiAddress() + "/24")
	if err != nil {
		return fmt.Errorf("making the bridge's address: %w", err)
	}
	if err := netlink.AddrAdd(bridge, address); err != nil {
		return fmt.Errorf("setting the bridge's address: %w", err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("setting the bridge up: %w", err)
	}
	return nil
}

// routePods lets this machine, and so the API server, reach the pods of a node.
func (n *network) routePods(index int) error {
	bridge, err := netlink.LinkByName(n.bridgeName())
	if err != nil {
		return fmt.Errorf("finding the cluster's bridge: %w", err)
	}
	_, pods, err := net.ParseCIDR(n.podCIDR(index))
	if err != nil {
		return fmt.Errorf("reading the pods' range: %w", err)
	}
	route := netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: pods, Gw: net.ParseIP(n.nodeAddress(index))}
	if err := netlink.RouteReplace(&route); err != nil {
		return fmt.Errorf("adding the route to a node's pods: %w", err)
	}
	return nil
}

// links are those of the cluster that exist.
func (n *network) links() ([]netlink.Link, error) {
	all, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	var ours []netlink.Link
	for _, link := range all {
		if strings.HasPrefix(link.Attrs().Name, n.linkPrefix()) {
			ours = append(ours, link)
		}
	}
	return ours, nil
}

// removeNetwork removes the cluster's links; routes go with them.
func (n *network) removeNetwork() error {
	links, err := n.links()
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range links {
		var gone netlink.LinkNotFoundError
		err := netlink.LinkDel(link)
		if err != nil && !errors.As(err, &gone) && !errors.Is(err, syscall.ENODEV) {
			errs = append(errs, fmt.Errorf("removing link %s: %w", link.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

// unplug removes a node's link and the route to its pods.
func (n *network) unplug(node *nodespec.Spec) error {
	if bridge, err := netlink.LinkByName(n.bridgeName()); err == nil {
		if _, pods, err := net.ParseCIDR(n.podCIDR(node.Index)); err == nil {
			// It is not there when the join ended early.
			_ = netlink.RouteDel(&netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: pods})
		}
	}
	link, err := netlink.LinkByName(node.HostLink)
	if err != nil {
		return nil //nolint:nilerr // the link went with the node's namespace
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("removing link %s: %w", node.HostLink, err)
	}
	return nil
}

// removeGroup ends all processes of a control group and removes it.
func removeGroup(group string) error {
	if len(cgroups.Existing(group)) == 0 {
		return nil
	}
	return errors.Join(cgroups.Kill(group), cgroups.Remove(group, 10*time.Second))
}

// raiseWatchLimit raises the number of inotify instances, which all nodes share: each takes about a
// dozen, so the usual 128 are used up by the tenth, whose kubelet then ends at once. The limit stays
// raised: it costs nothing, and other clusters may rely on it.
func raiseWatchLimit(progress *progress) {
	const file, enough, raised = "/proc/sys/fs/inotify/max_user_instances", 1024, "8192"
	data, err := os.ReadFile(file)
	if err != nil {
		return
	}
	if now, err := strconv.Atoi(strings.TrimSpace(string(data))); err != nil || now >= enough {
		return
	}
	if err := os.WriteFile(file, []byte(raised), 0o644); err != nil {
		progress.say("fs.inotify.max_user_instances cannot be raised, so there can be a few real nodes only: %v", err)
		return
	}
	progress.say("raised fs.inotify.max_user_instances of this machine to %s", raised)
}

// hideHost makes a folder of a node's upper layer hide what the host has there.
func hideHost(dir string) error {
	if err := unix.Setxattr(dir, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
		return fmt.Errorf("hiding the host's %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// systemLeftovers names links, control groups and mounts of the cluster that are still there.
func (s *state) systemLeftovers() []string {
	var left []string
	links, err := s.links()
	if err != nil {
		left = append(left, "maybe links, which cannot be listed: "+err.Error())
	}
	for _, link := range links {
		left = append(left, "link "+link.Attrs().Name)
	}
	for _, dir := range cgroups.Existing(s.cgroup()) {
		left = append(left, "control group "+dir)
	}
	for _, mount := range mounts(s.dir) {
		left = append(left, "mount "+mount)
	}
	return left
}

// mounts lists mounts below a cluster's folder in this namespace. There should never be one: the
// nodes' mounts are in namespaces of their own.
func mounts(dir string) []string {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			found = append(found, fields[1])
		}
	}
	return found
}

func unmountAll(dir string) error {
	var errs []error
	for _, mount := range slices.Backward(mounts(dir)) {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", mount, err))
		}
	}
	return errors.Join(errs...)
}
