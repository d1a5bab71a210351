// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/manager/loop"
)

// refusedOn remembers for which nodes of a NodeGuard the API server rejected pods, because policies can reject the pods
// of some nodes only. It is safe for concurrent use.
type refusedOn struct {
	mu sync.Mutex
	// companions is when the companion of a node was last rejected.
	companions map[client.ObjectKey]map[string]time.Time
	// checks are the rejections of each node's check. Only a few nodes are checked at a time.
	checks map[client.ObjectKey]map[string]*loop.Refusals
}

func newRefusedOn() *refusedOn {
	return &refusedOn{companions: map[client.ObjectKey]map[string]time.Time{}, checks: map[client.ObjectKey]map[string]*loop.Refusals{}}
}

// companion records whether the creation of a companion was rejected.
func (r *refusedOn) companion(g *v1alpha1.NodeGuard, node string, refused bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := client.ObjectKeyFromObject(g)
	switch {
	case !refused:
		delete(r.companions[name], node)
	case r.companions[name] == nil:
		r.companions[name] = map[string]time.Time{node: now}
	default:
		r.companions[name][node] = now
	}
}

// check records the result of the creation of a check, and reports whether it was rejected.
func (r *refusedOn) check(g *v1alpha1.NodeGuard, node string, err error, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := client.ObjectKeyFromObject(g)
	if r.checks[name] == nil {
		r.checks[name] = map[string]*loop.Refusals{}
	}
	known := r.checks[name][node]
	if known == nil {
		known = loop.NewRefusals(checkWords)
	}
	refused, other := known.Judge(g, []error{err}, now)
	switch {
	case refused:
		r.checks[name][node] = known
	case other == nil:
		delete(r.checks[name], node)
	}
	return refused
}

// of returns what the plan reads of both. It forgets nodes that no longer exist.
func (r *refusedOn) of(g *v1alpha1.NodeGuard, nodes []kube.Node) (companions map[string]time.Time, checks map[string]*hold.Why) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := client.ObjectKeyFromObject(g)
	if len(r.companions[name])+len(r.checks[name]) == 0 {
		return nil, nil
	}
	there := make(map[string]bool, len(nodes))
	for i := range nodes {
		there[nodes[i].Name] = true
	}
	maps.DeleteFunc(r.companions[name], func(node string, _ time.Time) bool { return !there[node] })
	maps.DeleteFunc(r.checks[name], func(node string, _ *loop.Refusals) bool { return !there[node] })
	checks = map[string]*hold.Why{}
	for node, known := range r.checks[name] {
		if o := known.Of(g); o != nil {
			checks[node] = o
		}
	}
	return maps.Clone(r.companions[name]), checks
}

func (r *refusedOn) forget(name client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.companions, name)
	delete(r.checks, name)
}
