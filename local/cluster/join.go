// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/local/binaries"
	"github.com/everynode/everynode/local/image"
	"github.com/everynode/everynode/local/prereq"
)

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
		return c.joinSimulated(ctx, options)
	}
	if err := c.prepareRealNodes(ctx); err != nil {
		return fmt.Errorf("starting node %s: %w", options.Name, err)
	}
	if err := c.nodes.start(ctx, options); err != nil {
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
	// The image holds each pod's namespaces.
	img, err := image.FromBinary(filepath.Join(c.state.Helpers, "everynode-pause"), image.Options{Path: "/pause"})
	if err != nil {
		return err
	}
	return c.state.images().add(pauseImage, img)
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
	client, err := c.client()
	if err != nil {
		return err
	}
	metadata := object{"labels": labels, "annotations": options.Annotations}
	if err := patchNode(ctx, client, options.Name, object{"metadata": metadata}); err != nil {
		return fmt.Errorf("changing node %s: %w", options.Name, err)
	}
	return nil
}

// reserved reports whether a kubelet may not set a label on its own node (NodeRestriction admission).
func reserved(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") ||
		domain == "k8s.io" || strings.HasSuffix(domain, ".k8s.io"))
}

// patchNode changes fields of a Node, or of a subresource.
func patchNode(ctx context.Context, client kubernetes.Interface, name string, fields object, subresources ...string) error {
	patch, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	return err
}
