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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/local/binaries"
	"github.com/everynode/everynode/local/internal/filelock"
	"github.com/everynode/everynode/local/internal/nodespec"
	"github.com/everynode/everynode/local/internal/procs"
	"github.com/everynode/everynode/local/internal/wholefile"
	"github.com/everynode/everynode/local/prereq"
)

// realNode is a node of namespaces; its folder is <cluster>/nodes/<name>.
type realNode struct {
	spec    *nodespec.Spec
	options NodeOptions
}

const optionsFile = "options.json"

func (c *Cluster) nodeDir(name string) string { return c.state.path("nodes", name) }

// isReal reports whether the node with this name is a real one.
func (c *Cluster) isReal(name string) bool {
	_, err := os.Stat(filepath.Join(c.nodeDir(name), nodespec.SpecFile))
	return err == nil && name != ""
}

func (c *Cluster) loadNode(name string) (*realNode, error) {
	if !c.isReal(name) {
		return nil, fmt.Errorf("cluster %q has no real node %q", c.state.Name, name)
	}
	spec, err := nodespec.Load(c.nodeDir(name))
	if err != nil {
		return nil, err
	}
	node := &realNode{spec: spec}
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

// Join adds a node and returns when it has registered, before it is Ready. A real node in a cluster
// that cannot have one is simulated instead, which is said in the progress.
func (c *Cluster) Join(ctx context.Context, options NodeOptions) error {
	if !c.state.Real && !options.Simulated {
		c.progress.say("node %s is simulated: %s", options.Name, whyNoRealNodes())
		options.Simulated, options.WithoutCNI = true, false
	}
	if err := options.validate(); err != nil {
		return fmt.Errorf("joining a node: %w", err)
	}
	if options.Simulated {
		if err := c.joinOneSimulated(ctx, options); err != nil {
			return fmt.Errorf("joining node %s: %w", options.Name, err)
		}
		return nil
	}
	if err := c.startNode(ctx, options); err != nil {
		return err
	}
	if err := c.finishNode(ctx, options); err != nil {
		return errors.Join(err, c.Remove(context.WithoutCancel(ctx), options.Name))
	}
	return nil
}

// JoinReady adds a node and returns when it is Ready.
func (c *Cluster) JoinReady(ctx context.Context, options NodeOptions) error {
	if err := c.Join(ctx, options); err != nil {
		return err
	}
	ctx, cancel := within(ctx, startLimit)
	defer cancel()
	return c.WaitReady(ctx, options.Name)
}

// prepareRealNodes checks the requirements of real nodes, which may be missing in a cluster that started without them.
func (c *Cluster) prepareRealNodes(ctx context.Context) error {
	c.mu.Lock()
	prepared := c.prepared
	c.mu.Unlock()
	if !prepared {
		if err := prereq.Ensure(ctx, &c.progress, Prerequisites(ctx)); err != nil {
			return err
		}
		if _, err := binaries.Ensure(ctx, &c.progress, c.state.Kubernetes, binaries.RealNode()...); err != nil {
			return err
		}
	}
	raiseWatchLimit(&c.progress)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prepared = true
	return c.makePauseImage()
}

// startNode makes a real node and switches it on.
func (c *Cluster) startNode(ctx context.Context, options NodeOptions) error {
	if err := c.prepareRealNodes(ctx); err != nil {
		return fmt.Errorf("starting node %s: %w", options.Name, err)
	}
	node, err := c.allocate(ctx, options)
	if err != nil {
		return fmt.Errorf("starting node %s: %w", options.Name, err)
	}
	return c.build(ctx, node)
}

// build creates the machine of an allocated node and starts it. If this fails, it removes the machine.
func (c *Cluster) build(ctx context.Context, node *realNode) error {
	err := c.provision(node)
	if err == nil {
		err = c.state.routePods(node.spec.Index)
	}
	if err == nil {
		err = c.switchOn(ctx, node)
	}
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("starting node %s: %w", node.spec.Name, err), c.destroy(node))
}

// allocate assigns a number, and thereby addresses, to a new node, and records it.
func (c *Cluster) allocate(ctx context.Context, options NodeOptions) (*realNode, error) {
	unlock, err := filelock.Lock(ctx, c.state.path(".lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c.isReal(options.Name) {
		return nil, errors.New("there is a node of that name")
	}
	taken := map[int]bool{}
	dirs, err := os.ReadDir(c.state.path("nodes"))
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for _, dir := range dirs {
		spec, err := nodespec.Load(c.nodeDir(dir.Name()))
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
		node := &realNode{spec: c.newSpec(options.Name, index), options: options}
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
func (c *Cluster) switchOn(ctx context.Context, node *realNode) error {
	log := filepath.Join(node.spec.Dir, nodespec.LogDir, "keeper.log")
	record, err := c.spawn(log, filepath.Join(c.state.Helpers, "everynode-node"), "keep", node.spec.Dir)
	if err != nil {
		return err
	}
	ctx, cancel := within(ctx, startLimit)
	defer cancel()
	err = poll(ctx, func() (string, error) {
		if !record.Alive() {
			return "", errors.New("its keeper ended; " + logTail(log))
		}
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if _, err := c.ask(once, node.spec.Name, nodespec.InitSocket, nodespec.Request{Op: nodespec.OpPing}); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
	return err
}

// ask sends a request to a node's keeper or init.
func (c *Cluster) ask(ctx context.Context, node, socket string, request nodespec.Request) (*nodespec.Response, error) {
	if !c.isReal(node) {
		return nil, fmt.Errorf("cluster %q has no real node %q", c.state.Name, node)
	}
	response, err := nodespec.Call(ctx, c.nodeDir(node), socket, request)
	if err != nil {
		return response, fmt.Errorf("node %s: %w", node, err)
	}
	return response, nil
}

// finishNode waits until a real node has registered and sets what only an administrator may set.
func (c *Cluster) finishNode(ctx context.Context, options NodeOptions) error {
	limited, cancel := within(ctx, startLimit)
	defer cancel()
	err := c.waitNodes(limited, []string{options.Name}, func(*corev1.Node) string { return "" })
	if err != nil {
		return fmt.Errorf("joining node %s: %w", options.Name, err)
	}
	labels := map[string]string{}
	for key, value := range options.Labels {
		if reserved(key) {
			labels[key] = value
		}
	}
	if len(labels)+len(options.Annotations) == 0 {
		return nil
	}
	return c.patchMetadata(ctx, options.Name, map[string]any{"labels": labels, "annotations": options.Annotations})
}

// reserved reports whether a kubelet may not set a label on its own node (NodeRestriction admission).
func reserved(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") ||
		domain == "k8s.io" || strings.HasSuffix(domain, ".k8s.io"))
}

func (c *Cluster) patchMetadata(ctx context.Context, name string, metadata map[string]any) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("changing node %s: %w", name, err)
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("changing node %s: %w", name, err)
	}
	return nil
}

// nodeFailure returns an error if the keeper of a real node has ended, because waiting is useless then.
func (c *Cluster) nodeFailure(name string) error {
	if !c.isReal(name) {
		return nil
	}
	record, err := procs.Load(filepath.Join(c.nodeDir(name), nodespec.KeeperRecord))
	if err != nil || record.PID == 0 || record.Alive() {
		return err
	}
	return fmt.Errorf("the keeper of node %s ended", name)
}

// NodeLogs returns the ends of the logs of a real node, to find out why it is not Ready; "" for other nodes.
func (c *Cluster) NodeLogs(name string) string {
	if !c.isReal(name) {
		return ""
	}
	var ends strings.Builder
	for _, log := range []string{"keeper.log", "containerd.log", "kubelet.log"} {
		fmt.Fprintf(&ends, "\n%s: %s", name, logTail(filepath.Join(c.nodeDir(name), nodespec.LogDir, log)))
	}
	return ends.String()
}

// withNodeLogs adds the ends of a real node's logs to an error.
func (c *Cluster) withNodeLogs(err error, name string) error {
	if logs := c.NodeLogs(name); logs != "" {
		return fmt.Errorf("%w%s", err, logs)
	}
	return err
}
