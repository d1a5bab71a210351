// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/local/internal/nodespec"
)

// ExitError is a command in a node that ended with another exit code than 0.
type ExitError struct {
	Argv []string
	Code int
	// Stderr is what the command wrote to its standard error.
	Stderr string
}

func (e *ExitError) Error() string {
	message := fmt.Sprintf("%q ended with exit code %d", e.Argv, e.Code)
	if e.Stderr != "" {
		message += ": " + e.Stderr
	}
	return message
}

// NodeLogs returns the ends of the logs of a real node, to find out why it is not Ready; "" for other nodes.
func (c *Cluster) NodeLogs(name string) string { return c.nodes.logs(name) }

// StopKubelet kills the kubelet of a node and prevents its restart. The pods of the node continue to run. A simulated
// node stops its status updates.
func (c *Cluster) StopKubelet(ctx context.Context, node string) error {
	return c.setKubelet(ctx, node, nodespec.OpStop)
}

// StartKubelet starts a node's kubelet again.
func (c *Cluster) StartKubelet(ctx context.Context, node string) error {
	return c.setKubelet(ctx, node, nodespec.OpStart)
}

func (c *Cluster) setKubelet(ctx context.Context, node, op string) error {
	if c.nodes.has(node) {
		return c.nodes.service(ctx, node, op, kubeletName)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	return silence(ctx, client, node, op == nodespec.OpStop)
}

// KillRuntime kills a node's containerd with SIGKILL. Its supervisor starts it again within a second;
// running containers survive.
func (c *Cluster) KillRuntime(ctx context.Context, node string) error {
	return c.nodes.service(ctx, node, nodespec.OpKill, containerdName)
}

// RebootReady ends all processes on a node, starts it again with a new boot ID, and waits until the API server shows it
// Ready in its new boot.
func (c *Cluster) RebootReady(ctx context.Context, node string) error {
	return c.changeReady(ctx, node, c.reboot, func(now *corev1.NodeSystemInfo) string { return now.BootID })
}

// reboot returns when the new boot has begun.
func (c *Cluster) reboot(ctx context.Context, node string) error {
	if c.nodes.has(node) {
		_, err := c.nodes.ask(ctx, node, nodespec.KeeperSocket, nodespec.Request{Op: nodespec.OpReboot})
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	boot := object{"nodeInfo": object{"bootID": randomHex(16)}}
	if err := patchNode(ctx, client, node, object{"status": boot}, "status"); err != nil {
		return fmt.Errorf("rebooting node %s: %w", node, err)
	}
	return nil
}

// ReimageReady gives a real node an empty file system and a new machine ID under its old name, and waits until the API
// server shows it Ready as its new machine. The Node object stays.
func (c *Cluster) ReimageReady(ctx context.Context, node string) error {
	return c.changeReady(ctx, node, c.nodes.reimage, func(now *corev1.NodeSystemInfo) string { return now.MachineID })
}

// changeReady changes a node, and waits until the API server shows it Ready with another ID. Until then, Ready may be
// from before the change.
func (c *Cluster) changeReady(
	ctx context.Context, name string, change func(context.Context, string) error, id func(*corev1.NodeSystemInfo) string,
) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	old, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading node %s: %w", name, err)
	}
	if err := change(ctx, name); err != nil {
		return err
	}
	return c.waitNodes(ctx, []string{name}, func(node *corev1.Node) string {
		if id(&node.Status.NodeInfo) == id(&old.Status.NodeInfo) {
			return "its status is from before"
		}
		return notReady(node)
	})
}

// InstallCNI gives the network to a node that joined without one.
func (c *Cluster) InstallCNI(ctx context.Context, name string) error {
	node, err := c.nodes.load(name)
	if err != nil {
		return fmt.Errorf("installing the network on node %s: %w", name, err)
	}
	config, err := node.cniConfig()
	if err != nil {
		return err
	}
	node.options.WithoutCNI = false
	if err := node.saveOptions(); err != nil {
		return err
	}
	_, err = c.nodes.ask(ctx, name, nodespec.InitSocket, nodespec.Request{
		Op: nodespec.OpWrite, Path: "/" + cniFile, Data: []byte(config), Mode: 0o644,
	})
	return err
}

// Exec runs a command on a real node, in all of its namespaces, and returns its output. The error is an *ExitError if
// the command ended with an exit code other than 0.
func (c *Cluster) Exec(ctx context.Context, node string, argv ...string) (stdout, stderr string, err error) {
	response, err := c.nodes.ask(ctx, node, nodespec.InitSocket, nodespec.Request{Op: nodespec.OpExec, Argv: argv})
	if err != nil {
		return "", "", err
	}
	stdout, stderr = string(response.Stdout), string(response.Stderr)
	if response.ExitCode != 0 {
		err = &ExitError{Argv: argv, Code: response.ExitCode, Stderr: string(bytes.TrimSpace(response.Stderr))}
	}
	return stdout, stderr, err
}

// Remove removes a node: first its processes and its file system, then its Node object.
func (c *Cluster) Remove(ctx context.Context, name string) error {
	isReal := c.nodes.has(name)
	if isReal {
		node, err := c.nodes.load(name)
		if err != nil {
			return fmt.Errorf("removing node %s: %w", name, err)
		}
		if err := node.destroy(); err != nil {
			return fmt.Errorf("removing node %s: %w", name, err)
		}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	err = client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && (!apierrors.IsNotFound(err) || !isReal) {
		return fmt.Errorf("removing node %s: %w", name, err)
	}
	return nil
}
