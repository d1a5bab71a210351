// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// Metrics are the metrics of NodeGuards. No label contains the name of a node. docs/reference/metrics.md explains each metric.
type Metrics struct {
	nodes  *prometheus.GaugeVec
	oldest *prometheus.GaugeVec
	held   *prometheus.HistogramVec
	// notServed are the NodeGuards in namespaces that are not allowed.
	notServed *loop.NotServed
	writes    loop.Writes
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	labels := []string{"namespace", "nodeguard"}
	m := &Metrics{
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_guard_nodes",
			Help: "Nodes that a NodeGuard guards, by state: total, and of these waiting, released and unavailable.",
		}, append(labels, "state")),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_guard_oldest_hold_timestamp_seconds",
			Help: "Time of the oldest release request that is held, in seconds since 1970; 0 if no node is held.",
		}, labels),
		held: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "everynode_guard_held_seconds",
			Help:    "Time from the release request of a node to its release, by reason: ConditionMet, DeadlineReached, BreakGlass.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 9),
		}, append(labels, "reason")),
		notServed: loop.NewNotServed("everynode_guards_not_served",
			"NodeGuards for which nothing is done, because their namespaces are not allowed or have too many. At most 100 of them have a status that says so."),
		writes: loop.NewWrites("everynode_guard_api_writes_total",
			"Write requests to the API server for NodeGuards, events aside, by verb and resource."),
	}
	registry.MustRegister(m.nodes, m.oldest, m.held, m.notServed, m.writes)
	return m
}

func (m *Metrics) status(name client.ObjectKey, p *guard.Plan) {
	n := p.Status.Nodes
	for state, count := range map[string]int32{"total": n.Total, "waiting": n.Waiting, "released": n.Released, "unavailable": n.Unavailable} {
		m.nodes.WithLabelValues(name.Namespace, name.Name, state).Set(float64(count))
	}
	var oldest float64
	for i := range p.Status.Waiting {
		if at := float64(p.Status.Waiting[i].Since.Unix()); oldest == 0 || at < oldest {
			oldest = at
		}
	}
	m.oldest.WithLabelValues(name.Namespace, name.Name).Set(oldest)
}

func (m *Metrics) released(name client.ObjectKey, move guard.Move) {
	m.held.WithLabelValues(name.Namespace, name.Name, move.Reason).Observe(max(move.Held.Seconds(), 0))
}

// forget deletes the series of a NodeGuard that no longer exists.
func (m *Metrics) forget(name client.ObjectKey) {
	match := prometheus.Labels{"namespace": name.Namespace, "nodeguard": name.Name}
	m.nodes.DeletePartialMatch(match)
	m.oldest.DeletePartialMatch(match)
	m.held.DeletePartialMatch(match)
}
