// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxReported limits how many objects that are not served get a status. Each costs a write, and any user with rights in a
// namespace can create many.
const maxReported = 100

// NotServed are the objects of one kind for which nothing is done, because their namespaces are not allowed. The metric counts
// all of them. It is safe for concurrent use.
type NotServed struct {
	prometheus.Gauge
	mu sync.Mutex
	// known are the objects, and whether they get a status.
	known    map[client.ObjectKey]bool
	reported int
}

// NewNotServed returns the metric with that name.
func NewNotServed(name, help string) *NotServed {
	return &NotServed{Gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}), known: map[client.ObjectKey]bool{}}
}

// Add counts an object, and reports whether it gets a status.
func (n *NotServed) Add(name client.ObjectKey) (report bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if was, ok := n.known[name]; ok && (was || n.reported >= maxReported) {
		return was
	}
	report = n.reported < maxReported
	if report {
		n.reported++
	}
	n.known[name] = report
	n.Set(float64(len(n.known)))
	return report
}

// Remove forgets an object that is served, or no longer exists.
func (n *NotServed) Remove(name client.ObjectKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known[name] {
		n.reported--
	}
	delete(n.known, name)
	n.Set(float64(len(n.known)))
}
