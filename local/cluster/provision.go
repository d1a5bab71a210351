// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/everynode/everynode/local/internal/nodespec"
)

func (n realNodes) newSpec(name string, index int) *nodespec.Spec {
	root := filepath.Dir(n.dir)
	spec := &nodespec.Spec{
		Name: name, Index: index, Dir: n.folder(name), Cluster: n.dir, StateRoot: root,
		Cgroup: n.cgroup() + "/" + name, Bridge: n.bridgeName(),
		HostLink: fmt.Sprintf("%sn%d", n.linkPrefix(), index), PeerLink: fmt.Sprintf("%sp%d", n.linkPrefix(), index),
		Address:  n.nodeAddress(index) + "/24",
		Programs: n.Programs, Images: n.path("images"),
		APIServer: n.apiHostPort(),
		// A service's address must have a route, or a packet to it is refused before kube-proxy's
		// rules see it.
		Routes: []nodespec.Route{{To: serviceCIDR}},
	}
	for other := 1; other <= maxRealNodes; other++ {
		if other != index {
			spec.Routes = append(spec.Routes, nodespec.Route{To: n.podCIDR(other), Via: n.nodeAddress(other)})
		}
	}
	return spec
}

// provision creates the machine of a node from scratch: an empty file system with only its configuration, its
// certificates and a new machine ID.
func (n *realNode) provision() error {
	dir := n.spec.Dir
	if err := emptyMachine(dir); err != nil {
		return err
	}
	upper := filepath.Join(dir, nodespec.UpperDir)
	if err := hideRuntimes(upper); err != nil {
		return err
	}
	if err := linkClient(upper); err != nil {
		return err
	}
	n.spec.Services = n.services()
	if err := n.spec.Save(); err != nil {
		return err
	}
	if err := n.certify(filepath.Join(upper, "etc/kubernetes")); err != nil {
		return err
	}
	if err := n.configure(upper); err != nil {
		return err
	}
	return newSystemUUID(dir)
}

// emptyMachine clears a node's file system, and makes the empty folders that its mounts need.
func emptyMachine(dir string) error {
	for _, name := range []string{nodespec.UpperDir, nodespec.WorkDir, nodespec.RootDir, nodespec.DataDir} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("clearing the node's file system: %w", err)
		}
	}
	folders := []string{
		nodespec.UpperDir, nodespec.WorkDir, nodespec.RootDir,
		nodespec.DataDir + "/containerd", nodespec.DataDir + "/kubelet", nodespec.LogDir,
	}
	for _, name := range folders {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return fmt.Errorf("making the node's file system: %w", err)
		}
	}
	return nil
}

// hideRuntimes makes the folders of a runtime and a kubelet empty in the upper layer of the node. The host may have
// such folders, or an old cluster may have left them, and no node may see them.
func hideRuntimes(upper string) error {
	for _, name := range []string{
		"etc/cni/net.d", "etc/containerd", "etc/kubernetes", "var/lib/cni", "var/lib/containerd", "var/lib/kubelet",
		"var/log/pods", "var/log/containers", "opt/cni/bin",
	} {
		if err := os.MkdirAll(filepath.Join(upper, name), 0o755); err != nil {
			return fmt.Errorf("making the node's file system: %w", err)
		}
		if err := hideHost(filepath.Join(upper, name)); err != nil {
			return err
		}
	}
	return nil
}

// linkClient puts the runtime's client on the usual path, where scripts expect it.
func linkClient(upper string) error {
	if err := os.MkdirAll(filepath.Join(upper, "usr/local/bin"), 0o755); err != nil {
		return fmt.Errorf("making the node's file system: %w", err)
	}
	if err := os.Symlink(nodespec.ProgramsPath+"/ctr", filepath.Join(upper, "usr/local/bin/ctr")); err != nil {
		return fmt.Errorf("making the node's file system: %w", err)
	}
	return nil
}

// configure writes the configuration of the node's daemons.
func (n *realNode) configure(upper string) error {
	files, err := n.files()
	if err != nil {
		return err
	}
	for path, content := range files {
		if err := os.WriteFile(filepath.Join(upper, path), []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing the node's configuration: %w", err)
		}
	}
	return nil
}

// newSystemUUID gives the node's machine the UUID that its firmware would name.
func newSystemUUID(dir string) error {
	uuid := randomHex(16)
	uuid = strings.Join([]string{uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]}, "-")
	if err := os.WriteFile(filepath.Join(dir, nodespec.UUIDFile), []byte(uuid+"\n"), 0o444); err != nil {
		return fmt.Errorf("writing the node's UUID: %w", err)
	}
	return nil
}

// certify gives a node its own identities: the client certificate of system:node:<name>, and the
// certificate its kubelet serves logs with.
func (n *realNode) certify(dir string) error {
	name := n.spec.Name
	address, _, _ := strings.Cut(n.spec.Address, "/")
	for _, cert := range []certificate{
		{file: "kubelet-client", authority: clusterCA, name: "system:node:" + name, groups: []string{"system:nodes"}},
		{
			file: "kubelet", authority: clusterCA, name: "system:node:" + name, groups: []string{"system:nodes"}, server: true,
			addresses: []net.IP{net.ParseIP(address)}, hosts: []string{name},
		},
	} {
		if err := n.cluster.pki().issue(dir, cert); err != nil {
			return err
		}
	}
	ca, err := os.ReadFile(n.cluster.pki().file(clusterCA + ".crt"))
	if err != nil {
		return fmt.Errorf("reading the authority: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o644); err != nil {
		return fmt.Errorf("writing the authority: %w", err)
	}
	kubelet, err := n.cluster.kubeconfig(dir, "kubelet-client")
	if err != nil {
		return err
	}
	proxy, err := n.cluster.kubeconfig(string(n.cluster.pki()), "kube-proxy")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "kubelet.conf"), kubelet, 0o600),
		os.WriteFile(filepath.Join(dir, "kube-proxy.conf"), proxy, 0o600),
	)
}

// services are the node's daemons.
func (n *realNode) services() []nodespec.Service {
	name := n.spec.Name
	address, _, _ := strings.Cut(n.spec.Address, "/")
	kubelet := []string{
		"kubelet", "--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--hostname-override=" + name, "--node-ip=" + address, "--v=1",
	}
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(n.options.Labels)) {
		if !reserved(key) {
			labels = append(labels, key+"="+n.options.Labels[key])
		}
	}
	if len(labels) > 0 {
		kubelet = append(kubelet, "--node-labels="+strings.Join(labels, ","))
	}
	return []nodespec.Service{
		{Name: containerdName, Argv: []string{"containerd", "--config", "/etc/containerd/config.toml"}},
		{Name: kubeletName, Argv: kubelet, NeedsRuntime: true, NeedsAPIServer: true},
		{
			Name: kubeProxyName, Argv: []string{"kube-proxy", "--config=/etc/kubernetes/kube-proxy.yaml"},
			NeedsAPIServer: true,
		},
	}
}

// randomHex returns n random bytes as text.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never returns an error
	return hex.EncodeToString(b)
}
