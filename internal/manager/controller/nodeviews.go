// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/observe"
)

// nodeViews caches what observe.Node has read of the nodes. Most of them are unchanged in the next pass.
//
// Labels, annotations and taints are not cached, so that older versions of a node can be freed.
type nodeViews struct {
	mu sync.Mutex
	of map[string]plan.Node
}

func newNodeViews() nodeViews { return nodeViews{of: map[string]plan.Node{}} }

// read is observe.Node with a cache.
func (v *nodeViews) read(node *corev1.Node) plan.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	view, known := v.of[node.Name]
	if !known || view.UID != node.UID || view.ResourceVersion != node.ResourceVersion || node.ResourceVersion == "" {
		view = observe.Node(node)
		view.Labels, view.Annotations, view.Taints = nil, nil, nil
		v.of[node.Name] = view
	}
	view.Labels, view.Annotations, view.Taints = node.Labels, node.Annotations, node.Spec.Taints
	return view
}

// forget deletes what was stored for a node.
func (v *nodeViews) forget(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.of, name)
}
