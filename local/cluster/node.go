// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/local/internal/filelock"
	"github.com/everynode/everynode/local/internal/nodespec"
	"github.com/everynode/everynode/local/internal/procs"
	"github.com/everynode/everynode/local/internal/wholefile"
)

// realNode is a node of namespaces; its folder is <cluster>/nodes/<name>.
type realNode struct {
	cluster *state
	spec    *nodespec.Spec
	options NodeOptions
}

// realNodes are the real nodes of a cluster.
type realNodes struct{ *state }

const optionsFile = "options.json"

func (n realNodes) folder(name string) string { return n.path("nodes", name) }

// has reports whether the node with this name is a real one.
func (n realNodes) has(name string) bool {
	_, err := os.Stat(filepath.Join(n.folder(name), nodespec.SpecFile))
	return err == nil && name != ""
}

func (n realNodes) load(name string) (*realNode, error) {
	if !n.has(name) {
		return nil, fmt.Errorf("cluster %q has no real node %q", n.Name, name)
	}
	spec, err := nodespec.Load(n.folder(name))
	if err != nil {
		return nil, err
	}
	node := &realNode{cluster: n.state, spec: spec}
	data, err := os.ReadFile(filepath.Join(spec.Dir, optionsFile))
	if err != nil {
		return nil, fmt.Errorf("reading the options of node %s: %w", name, err)
	}
	if err := json.Unmarshal(data, &node.options); err != nil {
		return nil, fmt.Errorf("reading the options of node %s: %w", name, err)
	}
	return node, nil
}

func (n *realNode) saveOptions() error {
	data, err := json.MarshalIndent(n.options, "", "  ")
	if err != nil {
		return fmt.Errorf("recording node %s: %w", n.spec.Name, err)
	}
	if err := wholefile.Write(filepath.Join(n.spec.Dir, optionsFile), data); err != nil {
		return fmt.Errorf("recording node %s: %w", n.spec.Name, err)
	}
	return nil
}

// build creates the machine of an allocated node and starts it. If this fails, it removes the machine.
func (n *realNode) build(ctx context.Context) error {
	err := n.provision()
	if err == nil {
		err = n.cluster.routePods(n.spec.Index)
	}
	if err == nil {
		err = n.switchOn(ctx)
	}
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("starting node %s: %w", n.spec.Name, err), n.destroy())
}

// start starts real nodes at the same time, numbered in order: the first one has the first address.
func (n realNodes) start(ctx context.Context, options ...NodeOptions) error {
	nodes := make([]*realNode, len(options))
	for i, option := range options {
		node, err := n.allocate(ctx, option)
		if err != nil {
			return fmt.Errorf("starting node %s: %w", option.Name, err)
		}
		nodes[i] = node
	}
	return forEach(len(nodes), func(i int) error { return nodes[i].build(ctx) })
}

// allocate assigns a number, and thereby addresses, to a new node, and records it.
func (n realNodes) allocate(ctx context.Context, options NodeOptions) (*realNode, error) {
	unlock, err := filelock.Lock(ctx, n.path(".lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if n.has(options.Name) {
		return nil, errors.New("there is a node of that name")
	}
	taken := map[int]bool{}
	dirs, err := os.ReadDir(n.path("nodes"))
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for _, dir := range dirs {
		spec, err := nodespec.Load(n.folder(dir.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		taken[spec.Index] = true
	}
	for index := 1; index <= maxRealNodes; index++ {
		if taken[index] {
			continue
		}
		node := &realNode{cluster: n.state, spec: n.newSpec(options.Name, index), options: options}
		if err := os.MkdirAll(filepath.Join(node.spec.Dir, nodespec.LogDir), 0o755); err != nil {
			return nil, fmt.Errorf("making the node's folder: %w", err)
		}
		if err := node.saveOptions(); err != nil {
			return nil, err
		}
		return node, node.spec.Save()
	}
	return nil, fmt.Errorf("a cluster has at most %d real nodes", maxRealNodes)
}

// switchOn starts the node's keeper and waits until the node's process 1 answers.
func (n *realNode) switchOn(ctx context.Context) error {
	log := filepath.Join(n.spec.Dir, nodespec.LogDir, "keeper.log")
	record, err := n.cluster.spawn(log, filepath.Join(n.cluster.Helpers, "everynode-node"), "keep", n.spec.Dir)
	if err != nil {
		return err
	}
	ctx, cancel := within(ctx, startLimit)
	defer cancel()
	nodes := realNodes{n.cluster}
	return poll(ctx, func() (string, error) {
		if !record.Alive() {
			return "", errors.New("its keeper ended; " + logTail(log))
		}
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if _, err := nodes.ask(once, n.spec.Name, nodespec.InitSocket, nodespec.Request{Op: nodespec.OpPing}); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
}

// switchOff ends a node like a power cut: first its keeper, which would otherwise start it again.
func (n *realNode) switchOff() error {
	for _, file := range []string{nodespec.KeeperRecord, nodespec.InitRecord} {
		record, err := procs.Load(filepath.Join(n.spec.Dir, file))
		if err != nil {
			return err
		}
		if err := record.Stop(0); err != nil {
			return err
		}
	}
	return errors.Join(removeGroup(n.spec.Cgroup), n.cluster.unplug(n.spec))
}

// destroy switches a node off and removes its folder.
func (n *realNode) destroy() error {
	if err := n.switchOff(); err != nil {
		return err
	}
	if err := os.RemoveAll(n.spec.Dir); err != nil {
		return fmt.Errorf("removing the node's folder: %w", err)
	}
	return nil
}

// service starts, stops or kills a daemon of a node.
func (n realNodes) service(ctx context.Context, node, op, service string) error {
	_, err := n.ask(ctx, node, nodespec.InitSocket, nodespec.Request{Op: op, Service: service})
	return err
}

// reimage gives a node another machine, and returns when it runs.
func (n realNodes) reimage(ctx context.Context, name string) error {
	node, err := n.load(name)
	if err == nil {
		err = node.switchOff()
	}
	if err == nil {
		err = node.provision()
	}
	if err == nil {
		err = node.switchOn(ctx)
	}
	if err == nil {
		err = n.routePods(node.spec.Index) // the route went with the earlier machine
	}
	if err != nil {
		return fmt.Errorf("re-imaging node %s: %w", name, err)
	}
	return nil
}

// switchOff switches all nodes off.
func (n realNodes) switchOff() error {
	names, err := n.names()
	return errors.Join(err, forEach(len(names), func(i int) error {
		node, err := n.load(names[i])
		if err != nil {
			return err
		}
		return node.switchOff()
	}))
}

// ask sends a request to a node's keeper or init.
func (n realNodes) ask(ctx context.Context, node, socket string, request nodespec.Request) (*nodespec.Response, error) {
	if !n.has(node) {
		return nil, fmt.Errorf("cluster %q has no real node %q", n.Name, node)
	}
	response, err := nodespec.Call(ctx, n.folder(node), socket, request)
	if err != nil {
		return response, fmt.Errorf("node %s: %w", node, err)
	}
	return response, nil
}

// names lists the real nodes.
func (n realNodes) names() ([]string, error) {
	dirs, err := os.ReadDir(n.path("nodes"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var names []string
	for _, dir := range dirs {
		if !strings.HasPrefix(dir.Name(), ".") && n.has(dir.Name()) {
			names = append(names, dir.Name())
		}
	}
	return names, nil
}

func (n realNodes) importImages(ctx context.Context) error {
	nodes, err := n.names()
	if err != nil {
		return err
	}
	return forEach(len(nodes), func(i int) error {
		_, err := n.ask(ctx, nodes[i], nodespec.InitSocket, nodespec.Request{Op: nodespec.OpImport})
		return err
	})
}

// failure returns an error if the keeper of a real node has ended, because waiting is useless then.
func (n realNodes) failure(name string) error {
	if !n.has(name) {
		return nil
	}
	record, err := procs.Load(filepath.Join(n.folder(name), nodespec.KeeperRecord))
	if err != nil || record.PID == 0 || record.Alive() {
		return err
	}
	return fmt.Errorf("the keeper of node %s ended", name)
}

// logs returns the ends of the logs of a real node; "" for other nodes.
func (n realNodes) logs(name string) string {
	if !n.has(name) {
		return ""
	}
	var ends strings.Builder
	for _, log := range []string{"keeper.log", "containerd.log", "kubelet.log"} {
		fmt.Fprintf(&ends, "\n%s: %s", name, logTail(filepath.Join(n.folder(name), nodespec.LogDir, log)))
	}
	return ends.String()
}
