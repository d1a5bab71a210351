// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/manager/loop"
)

// uncachedNodes notes when nodes that the cache does not show were last known to exist. The zero value is ready to use.
type uncachedNodes struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

// warmUpNodes remembers the nodes that the cache does not show, or shows in an older version. Other nodes would be in
// memory twice.
func (r observer) warmUpNodes(ctx context.Context) error {
	cached, err := r.listNodes(ctx)
	if err != nil {
		return err
	}
	shown := make(map[string]*corev1.Node, len(cached))
	for _, node := range cached {
		shown[node.Name] = node
	}
	var nodes corev1.NodeList
	return r.eachPage(ctx, &nodes, func() {
		for i := range nodes.Items {
			if known := shown[nodes.Items[i].Name]; known == nil || loop.Newer(&nodes.Items[i], known) {
				r.written.rememberNode(stripNode(nodes.Items[i].DeepCopy()))
			}
		}
	})
}

// unseenNodes returns the remembered nodes that the cache does not show. The cache of a new leader may lack nodes on
// which the last leader has started tasks. Without them, their pods would be treated as orphans. A node that the cache
// has not shown for doubtAfter may be deleted, so the API server is asked.
func (r observer) unseenNodes(ctx context.Context, cached []*corev1.Node, now time.Time) ([]*corev1.Node, error) {
	remembered := r.written.nodesBut(cached)
	doubtful := r.uncachedNodes.doubtful(remembered, now)
	nodes := make([]*corev1.Node, 0, len(remembered))
	for _, node := range remembered {
		if doubtful[node.Name] {
			var err error
			if node, err = r.liveNode(ctx, node.Name, now); err != nil {
				return nil, err
			}
		}
		if node != nil {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// liveNode reads a node that the cache does not show from the API server. It returns nil if it does not exist.
func (r observer) liveNode(ctx context.Context, name string, now time.Time) (*corev1.Node, error) {
	var live corev1.Node
	err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, &live)
	switch {
	case apierrors.IsNotFound(err):
		r.forgetNode(name)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting node %s: %w", name, err)
	}
	node := stripNode(&live)
	r.written.rememberNode(node)
	r.uncachedNodes.exists(name, now)
	return node, nil
}

// nodesBut returns the remembered nodes that are not among the cached ones.
func (m *writtenObjects) nodesBut(cached []*corev1.Node) []*corev1.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.nodes) == 0 {
		return nil
	}
	shown := make(map[string]bool, len(cached))
	for _, node := range cached {
		shown[node.Name] = true
	}
	var nodes []*corev1.Node
	for name, versions := range m.nodes {
		if !shown[name] {
			nodes = append(nodes, newestOf(versions))
		}
	}
	return nodes
}

// doubtful returns which of the nodes have been unseen for longer than doubtAfter, and forgets all other nodes.
func (u *uncachedNodes) doubtful(nodes []*corev1.Node, now time.Time) map[string]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(nodes) == 0 {
		u.seen = nil
		return nil
	}
	doubtful, seen := map[string]bool{}, make(map[string]time.Time, len(nodes))
	for _, node := range nodes {
		since, known := u.seen[node.Name]
		if !known {
			since = now
		}
		seen[node.Name] = since
		doubtful[node.Name] = now.Sub(since) > doubtAfter
	}
	u.seen = seen
	return doubtful
}

func (u *uncachedNodes) exists(name string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen != nil {
		u.seen[name] = now
	}
}

func (u *uncachedNodes) forget(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.seen, name)
}
