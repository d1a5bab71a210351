// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budgetcontroller

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/budget"
)

// TestMetricsFollowTheBudgets : a changed reason replaces the previous one, and a deleted budget has no series.
func TestMetricsFollowTheBudgets(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	a, b := &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
	}, &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
	}
	stalled := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse}
	status := func(reason string, exceeding int32) v1alpha1.NodeDisruptionBudgetStatus {
		return v1alpha1.NodeDisruptionBudgetStatus{
			DisruptionsAllowed: 2, Nodes: v1alpha1.BudgetCounts{Total: 9, Exceeding: exceeding},
			// A user may have written another condition.
			Conditions: []metav1.Condition{{Type: "Other", Reason: "Forged"}, {Type: v1alpha1.ConditionReady, Reason: reason}, stalled},
		}
	}
	m.bypassed.WithLabelValues("b").Inc()
	m.report(
		[]*v1alpha1.NodeDisruptionBudget{a, b},
		&budget.Plan{Statuses: []v1alpha1.NodeDisruptionBudgetStatus{status("Open", 0), status("Frozen", 0)}},
	)
	stalled.Status = metav1.ConditionTrue
	m.report(
		[]*v1alpha1.NodeDisruptionBudget{a},
		&budget.Plan{Statuses: []v1alpha1.NodeDisruptionBudgetStatus{status("MaxUnavailableReached", 1)}},
	)
	want := `
# HELP everynode_budget_bypassed_total Nodes whose seat was deleted instead of evicted while a NodeDisruptionBudget was closed, and a manager ran.
# TYPE everynode_budget_bypassed_total counter
everynode_budget_bypassed_total{nodedisruptionbudget="a"} 0
# HELP everynode_budget_disruptions_allowed Disruptions that may begin now, as far as a NodeDisruptionBudget is concerned.
# TYPE everynode_budget_disruptions_allowed gauge
everynode_budget_disruptions_allowed{nodedisruptionbudget="a"} 2
# HELP everynode_budget_nodes Nodes that a NodeDisruptionBudget selects, by state: total, and of these exempt, unavailable and waiting. exceeding is how many more are unavailable than the limits allow.
# TYPE everynode_budget_nodes gauge
everynode_budget_nodes{nodedisruptionbudget="a",state="exceeding"} 1
everynode_budget_nodes{nodedisruptionbudget="a",state="exempt"} 0
everynode_budget_nodes{nodedisruptionbudget="a",state="total"} 9
everynode_budget_nodes{nodedisruptionbudget="a",state="unavailable"} 0
everynode_budget_nodes{nodedisruptionbudget="a",state="waiting"} 0
# HELP everynode_budget_stalled 1 while the condition Stalled of a NodeDisruptionBudget is True: it does not work as it should until a person acts. 0 otherwise.
# TYPE everynode_budget_stalled gauge
everynode_budget_stalled{nodedisruptionbudget="a"} 1
# HELP everynode_budget_status_reason 1 for the reason of the conditions of a NodeDisruptionBudget, which says whether disruptions may begin.
# TYPE everynode_budget_status_reason gauge
everynode_budget_status_reason{nodedisruptionbudget="a",reason="MaxUnavailableReached"} 1
`
	if err := testutil.GatherAndCompare(
		registry,
		strings.NewReader(want),
		"everynode_budget_bypassed_total",
		"everynode_budget_nodes",
		"everynode_budget_disruptions_allowed",
		"everynode_budget_stalled",
		"everynode_budget_status_reason",
	); err != nil {
		t.Error(err)
	}
}
