// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// ConfiguredLabel is the label that the pods of the DaemonSet pattern set on their node.
	ConfiguredLabel = "bench.everynode.dev/configured"
	// DaemonSetName is also the value of the label "app" on its pods.
	DaemonSetName = "configure-node"
	// TaskSeconds is the duration of a task for all subjects.
	TaskSeconds = 1
)

// Labeler does what a pod of the DaemonSet pattern does itself after its script: it labels its node. Simulated nodes
// run no scripts, so this program does it for all of them, with one request each. A pod with kubectl would need
// several. Only these requests are part of the cost of the pattern.
type Labeler struct{ client kubernetes.Interface }

// NewLabeler returns one that is ready to run.
func NewLabeler(config *rest.Config) (*Labeler, error) {
	client, err := clients(config, "everynode-bench-labeler")
	if err != nil {
		return nil, err
	}
	return &Labeler{client}, nil
}

// Run begins when it is told to by a line, and ends with its input.
func (l *Labeler) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := begin(in, out); err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, in); cancel() }()
	seen := map[types.UID]bool{}
	err := follow(ctx, l.client.CoreV1().RESTClient(), "pods", "app="+DaemonSetName, "status.phase=Running", func(o runtime.Object) bool {
		pod := o.(*corev1.Pod)
		if !seen[pod.UID] {
			seen[pod.UID] = true
			time.AfterFunc(TaskSeconds*time.Second, func() { l.label(ctx, pod.Spec.NodeName) })
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return nil
}

func (l *Labeler) label(ctx context.Context, node string) {
	patch := []byte(`{"metadata":{"labels":{"` + ConfiguredLabel + `":"1"}}}`)
	err := l.client.CoreV1().RESTClient().Patch(types.MergePatchType).Resource("nodes").Name(node).
		SetHeader("Accept", metadata).Body(patch).Do(ctx).Error()
	if err != nil && ctx.Err() == nil {
		panic(err) // a node without the label would be waited for forever
	}
}
