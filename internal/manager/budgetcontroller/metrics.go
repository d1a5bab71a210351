// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budgetcontroller

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodebudget/budget"
)

// Metrics are the metrics of NodeDisruptionBudgets. No label contains the name of a node. docs/reference/metrics.md explains each metric.
type Metrics struct {
	nodes   *prometheus.GaugeVec
	allowed *prometheus.GaugeVec
	reason  *prometheus.GaugeVec
	stalled *prometheus.GaugeVec
	// bypassed counts nodes that were taken although a budget was closed.
	bypassed *prometheus.CounterVec
	writes   loop.Writes

	// reasons are the reasons that the budgets have series of.
	reasons map[string]string
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		reasons: map[string]string{},
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_budget_nodes",
			Help: "Nodes that a NodeDisruptionBudget selects, by state: total, and of these exempt, unavailable and waiting. exceeding is how many more are unavailable than the limits allow.",
		}, []string{"nodedisruptionbudget", "state"}),
		allowed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_budget_disruptions_allowed",
			Help: "Disruptions that may begin now, as far as a NodeDisruptionBudget is concerned.",
		}, []string{"nodedisruptionbudget"}),
		reason: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_budget_status_reason",
			Help: "1 for the reason of the conditions of a NodeDisruptionBudget, which says whether disruptions may begin.",
		}, []string{"nodedisruptionbudget", "reason"}),
		stalled: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_budget_stalled",
			Help: "1 while the condition Stalled of a NodeDisruptionBudget is True: it does not work as it should until a person acts. 0 otherwise.",
		}, []string{"nodedisruptionbudget"}),
		bypassed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everynode_budget_bypassed_total",
			Help: "Nodes whose seat was deleted instead of evicted while a NodeDisruptionBudget was closed, and a manager ran.",
		}, []string{"nodedisruptionbudget"}),
		writes: loop.NewWrites("everynode_budget_api_writes_total",
			"Write requests to the API server for NodeDisruptionBudgets, events aside, by verb and resource."),
	}
	registry.MustRegister(m.nodes, m.allowed, m.reason, m.stalled, m.bypassed, m.writes)
	return m
}

// report sets the metrics of all budgets. Those of budgets that are deleted end. No series is missing meanwhile, because an alert would
// resolve.
func (m *Metrics) report(budgets []*v1alpha1.NodeDisruptionBudget, p *budget.Plan) {
	before := m.reasons
	m.reasons = make(map[string]string, len(budgets))
	for i, b := range budgets {
		st := &p.Statuses[i]
		for state, count := range map[string]int32{
			"total": st.Nodes.Total, "exempt": st.Nodes.Exempt, "unavailable": st.Nodes.Unavailable, "waiting": st.Nodes.Waiting,
			"exceeding": st.Nodes.Exceeding,
		} {
			m.nodes.WithLabelValues(b.Name, state).Set(float64(count))
		}
		m.allowed.WithLabelValues(b.Name).Set(float64(st.DisruptionsAllowed))
		stalled := 0.0
		if meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionStalled) {
			stalled = 1
		}
		m.stalled.WithLabelValues(b.Name).Set(stalled)
		m.bypassed.WithLabelValues(b.Name)                                                          // from 0 on
		m.reasons[b.Name] = meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady).Reason // all conditions have the same
		m.reason.WithLabelValues(b.Name, m.reasons[b.Name]).Set(1)
	}
	for name, was := range before {
		is, exists := m.reasons[name]
		if is != was {
			m.reason.DeleteLabelValues(name, was)
		}
		if !exists {
			m.allowed.DeleteLabelValues(name)
			m.stalled.DeleteLabelValues(name)
			m.bypassed.DeleteLabelValues(name)
			m.nodes.DeletePartialMatch(prometheus.Labels{"nodedisruptionbudget": name})
		}
	}
}
