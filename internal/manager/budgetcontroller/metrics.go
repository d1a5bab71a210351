// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budgetcontroller

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodebudget/budget"
)

// Metrics are the metrics of NodeDisruptionBudgets. No label contains the name of a node. docs/metrics.md explains each metric.
type Metrics struct {
	nodes   *prometheus.GaugeVec
	allowed *prometheus.GaugeVec
	writes  loop.Writes
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_budget_nodes",
			Help: "Nodes that a NodeDisruptionBudget selects, by state: selected, and of these joining, unavailable and waiting.",
		}, []string{"nodedisruptionbudget", "state"}),
		allowed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_budget_disruptions_allowed",
			Help: "Disruptions that may begin now, as far as a NodeDisruptionBudget is concerned.",
		}, []string{"nodedisruptionbudget"}),
		writes: loop.NewWrites("everynode_budget_api_writes_total",
			"Write requests to the API server for NodeDisruptionBudgets, events aside, by verb and resource."),
	}
	registry.MustRegister(m.nodes, m.allowed, m.writes)
	return m
}

// report sets the metrics of all budgets. Those of budgets that are deleted end.
func (m *Metrics) report(budgets []*v1alpha1.NodeDisruptionBudget, p *budget.Plan) {
	m.nodes.Reset()
	m.allowed.Reset()
	for i, b := range budgets {
		n := p.Statuses[i].Nodes
		for state, count := range map[string]int32{"selected": n.Selected, "joining": n.Joining, "unavailable": n.Unavailable, "waiting": n.Waiting} {
			m.nodes.WithLabelValues(b.Name, state).Set(float64(count))
		}
		m.allowed.WithLabelValues(b.Name).Set(float64(p.Statuses[i].DisruptionsAllowed))
	}
}
