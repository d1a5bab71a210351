// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/local/internal/nodespec"
	"github.com/everynode/everynode/local/internal/procs"
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

// StopKubelet kills the kubelet of a node and prevents its restart. The pods of the node continue to run. A simulated
// node stops its status updates.
func (c *Cluster) StopKubelet(ctx context.Context, node string) error {
	if !c.isReal(node) {
		return c.simulateSilence(ctx, node, true)
	}
	return c.service(ctx, node, nodespec.OpStop, kubeletName)
}

// StartKubelet starts a node's kubelet again.
func (c *Cluster) StartKubelet(ctx context.Context, node string) error {
	if !c.isReal(node) {
		return c.simulateSilence(ctx, node, false)
	}
	return c.service(ctx, node, nodespec.OpStart, kubeletName)
}

// KillRuntime kills a node's containerd with SIGKILL. Its supervisor starts it again within a second;
// running containers survive.
func (c *Cluster) KillRuntime(ctx context.Context, node string) error {
	return c.service(ctx, node, nodespec.OpKill, containerdName)
}

func (c *Cluster) service(ctx context.Context, node, op, service string) error {
	_, err := c.ask(ctx, node, nodespec.InitSocket, nodespec.Request{Op: op, Service: service})
	return err
}

// Reboot ends all processes on a node and starts it again with a new boot ID. It returns when the new boot has begun,
// not when the node is Ready: for a while, the API server may have the status from the old boot. RebootReady waits.
func (c *Cluster) Reboot(ctx context.Context, node string) error {
	if !c.isReal(node) {
		return c.simulateReboot(ctx, node)
	}
	_, err := c.ask(ctx, node, nodespec.KeeperSocket, nodespec.Request{Op: nodespec.OpReboot})
	return err
}

func (c *Cluster) simulateReboot(ctx context.Context, node string) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(object{"status": object{"nodeInfo": object{"bootID": randomHex(16)}}})
	if err != nil {
		return fmt.Errorf("rebooting node %s: %w", node, err)
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("rebooting node %s: %w", node, err)
	}
	return nil
}

// Reimage gives a real node an empty file system and a new machine ID under its old name. The Node object stays.
// Reimage returns when the new machine runs.
func (c *Cluster) Reimage(ctx context.Context, name string) error {
	node, err := c.loadNode(name)
	if err != nil {
		return fmt.Errorf("re-imaging node %s: %w", name, err)
	}
	if err := c.switchOff(node); err != nil {
		return fmt.Errorf("re-imaging node %s: %w", name, err)
	}
	if err := c.provision(node); err != nil {
		return fmt.Errorf("re-imaging node %s: %w", name, err)
	}
	if err := c.switchOn(ctx, node); err != nil {
		return fmt.Errorf("re-imaging node %s: %w", name, err)
	}
	return nil
}

// InstallCNI gives the network to a node that joined without one.
func (c *Cluster) InstallCNI(ctx context.Context, name string) error {
	node, err := c.loadNode(name)
	if err != nil {
		return fmt.Errorf("installing the network on node %s: %w", name, err)
	}
	config, err := c.cniConfig(node.spec.Index)
	if err != nil {
		return err
	}
	node.options.WithoutCNI = false
	if err := node.saveOptions(); err != nil {
		return err
	}
	_, err = c.ask(ctx, name, nodespec.InitSocket, nodespec.Request{
		Op: nodespec.OpWrite, Path: "/" + cniFile, Data: []byte(config), Mode: 0o644,
	})
	return err
}

// Exec runs a command on a real node, in all of its namespaces, and returns its output. The error is an *ExitError if
// the command ended with an exit code other than 0.
func (c *Cluster) Exec(ctx context.Context, node string, argv ...string) (stdout, stderr string, err error) {
	response, err := c.ask(ctx, node, nodespec.InitSocket, nodespec.Request{Op: nodespec.OpExec, Argv: argv})
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
	isReal := c.isReal(name)
	if isReal {
		node, err := c.loadNode(name)
		if err != nil {
			return fmt.Errorf("removing node %s: %w", name, err)
		}
		if err := c.destroy(node); err != nil {
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

// switchOff ends a node like a power cut: first its keeper, which would otherwise start it again.
func (c *Cluster) switchOff(node *realNode) error {
	for _, file := range []string{nodespec.KeeperRecord, nodespec.InitRecord} {
		record, err := procs.Load(filepath.Join(node.spec.Dir, file))
		if err != nil {
			return err
		}
		if err := record.Stop(0); err != nil {
			return err
		}
	}
	return errors.Join(removeGroup(node.spec.Cgroup), c.state.unplug(node.spec))
}

// RebootReady reboots a node and waits until the API server shows it Ready in its new boot.
func (c *Cluster) RebootReady(ctx context.Context, node string) error {
	old, err := c.nodeInfo(ctx, node)
	if err != nil {
		return err
	}
	if err := c.Reboot(ctx, node); err != nil {
		return err
	}
	return c.waitChanged(ctx, node, func(now *corev1.NodeSystemInfo) bool { return now.BootID != old.BootID })
}

// ReimageReady re-images a node and waits until the API server shows it Ready as its new machine.
func (c *Cluster) ReimageReady(ctx context.Context, node string) error {
	old, err := c.nodeInfo(ctx, node)
	if err != nil {
		return err
	}
	if err := c.Reimage(ctx, node); err != nil {
		return err
	}
	return c.waitChanged(ctx, node, func(now *corev1.NodeSystemInfo) bool { return now.MachineID != old.MachineID })
}

func (c *Cluster) nodeInfo(ctx context.Context, name string) (*corev1.NodeSystemInfo, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return &node.Status.NodeInfo, nil
}

// waitChanged waits until a node is Ready and its system information has changed. Until then, Ready may be from before
// the change.
func (c *Cluster) waitChanged(ctx context.Context, name string, changed func(*corev1.NodeSystemInfo) bool) error {
	return c.waitNodes(ctx, []string{name}, func(node *corev1.Node) string {
		if !changed(&node.Status.NodeInfo) {
			return "its status is from before"
		}
		return notReady(node)
	})
}
