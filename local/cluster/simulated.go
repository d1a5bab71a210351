// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/local/binaries"
)

// joinWorkers bounds the requests in flight when many simulated nodes join.
const joinWorkers = 16

// joinSimulated adds simulated nodes.
func (c *Cluster) joinSimulated(ctx context.Context, nodes ...NodeOptions) error {
	var next atomic.Int64
	return forEach(min(joinWorkers, len(nodes)), func(int) error {
		for i := next.Add(1) - 1; i < int64(len(nodes)); i = next.Add(1) - 1 {
			if err := c.createSimulated(ctx, nodes[i]); err != nil {
				return fmt.Errorf("joining node %s: %w", nodes[i].Name, err)
			}
		}
		return nil
	})
}

func (c *Cluster) createSimulated(ctx context.Context, options NodeOptions) error {
	if err := c.control.startSimulator(ctx, &c.progress); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: options.Name,
		Labels: map[string]string{
			corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", "type": "kwok",
		},
		Annotations: map[string]string{simulatedSelector: "fake"},
	}}
	// A label's value has at most 63 characters, a node's name 253.
	if len(options.Name) <= 63 {
		node.Labels[corev1.LabelHostname] = options.Name
	}
	maps.Copy(node.Labels, options.Labels)
	maps.Copy(node.Annotations, options.Annotations)
	node.Spec.Taints = options.Taints
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the node: %w", err)
	}
	return nil
}

// startSimulator starts kwok with the first simulated node, not before: it costs memory, and a minute to build.
func (p *controlPlane) startSimulator(ctx context.Context, progress io.Writer) error {
	p.simulator.Lock()
	defer p.simulator.Unlock()
	if _, err := os.Stat(filepath.Join(p.Programs, kwokName)); err != nil {
		programs, err := binaries.Ensure(ctx, progress, p.Kubernetes, binaries.SimulatedNode()...)
		if err != nil {
			return err
		}
		if programs != p.Programs {
			return fmt.Errorf("cluster %s was started with other programs, without %s: start it again to add simulated nodes", p.Name, kwokName)
		}
	}
	return p.start(kwokName)
}

// silence stops or resumes the status updates of a simulated node, as if its kubelet was stopped. kwok reports
// for a node only while it holds the lease of the node, and does not take an unexpired lease of another holder. (After
// kwok has taken over a node, removing its annotation has no effect.) The lease is renewed once more: Kubernetes 1.37 declares no
// node Unknown while a lease has changed without that, because it takes its own cache for outdated.
func silence(ctx context.Context, client kubernetes.Interface, name string, silent bool) error {
	lease := object{"holderIdentity": nil}
	if silent {
		const thirtyYears = 1_000_000_000
		lease = object{"holderIdentity": "everynode-local:silenced", "leaseDurationSeconds": thirtyYears, "renewTime": metav1.NowMicro()}
	}
	patch, err := json.Marshal(object{"spec": lease})
	if err != nil {
		return fmt.Errorf("changing the lease of node %s: %w", name, err)
	}
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if _, err := leases.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("changing the lease of node %s: %w", name, err)
	}
	return nil
}
