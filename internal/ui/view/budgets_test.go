// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/text"
)

// ndb is a budget that the manager has observed, with a condition that is True.
func ndb(name, kind, reason, message string, change func(*v1alpha1.NodeDisruptionBudget)) v1alpha1.NodeDisruptionBudget {
	b := v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3, CreationTimestamp: at(12 * 24 * time.Hour)},
		Spec:       v1alpha1.NodeDisruptionBudgetSpec{AppliesTo: v1alpha1.AppliesToDisruptions},
		Status:     v1alpha1.NodeDisruptionBudgetStatus{ObservedGeneration: 3},
	}
	b.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}}
	change(&b)
	return b
}

func limit(maxUnavailable, key string) v1alpha1.BudgetLimit {
	v := intstr.Parse(maxUnavailable)
	return v1alpha1.BudgetLimit{MaxUnavailable: &v, TopologyKey: key}
}

// busy is a budget with nodes that use it and nodes that wait.
func busy(b *v1alpha1.NodeDisruptionBudget) {
	between := int32(300)
	b.Annotations = map[string]string{v1alpha1.ChangedByAnnotation: "alice"}
	b.Spec = v1alpha1.NodeDisruptionBudgetSpec{
		Selector:  &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "production"}},
		AppliesTo: v1alpha1.AppliesToAllTasks,
		Limits:    []v1alpha1.BudgetLimit{limit("10%", ""), limit("1", "topology.kubernetes.io/zone")},
		Windows: []v1alpha1.BudgetWindow{
			{Schedule: "0 2 * * SUN", DurationSeconds: 10800},
			{Schedule: "0 14 * * *", DurationSeconds: 3600},
		},
		ExceptDates: []string{
			"2026-12-24/2027-01-02",
		},
		TimeZone:     "Europe/Berlin",
		PaceSeconds:  &between,
		JoiningNodes: v1alpha1.JoiningNodesIncluded,
		Description:  "our customers are asleep",
		ExpiresAt:    &metav1.Time{Time: now.Add(30 * 24 * time.Hour)},
	}
	b.Status.Nodes = v1alpha1.BudgetCounts{Total: 40, Exempt: 1, Seats: 36, Unavailable: 4, Waiting: 2}
	b.Status.Requirements = []v1alpha1.BudgetRequirementStatus{
		{Name: "no-critical-alerts", State: v1alpha1.RequirementMet, Since: at(time.Hour)},
		{Name: "ceph", State: v1alpha1.RequirementNotMet, Since: at(time.Minute), Message: "the expression is false\x1b[2J"},
		{Name: "storage", State: v1alpha1.RequirementUnknown, Since: at(time.Second), Message: "CephCluster rook/main does not exist"},
	}
	b.Status.Unavailable = []v1alpha1.UnavailableNode{
		{Node: "node-7", Since: at(25 * time.Minute), By: "NodeJob node-setup/no-thp"},
		{Node: "node-9", Since: at(4 * time.Minute), By: "cordoned"},
	}
	b.Status.Waiting = []v1alpha1.WaitingNode{
		{
			Node: "node-12", Since: at(2 * time.Minute), By: "tainted by Karpenter\x1b[2J", Reason: v1alpha1.ReasonMaxUnavailableReached,
			Message: "NodeDisruptionBudget production allows 4 unavailable nodes, and 4 are",
		},
		{Node: "node-13", Since: at(time.Minute), By: "NodeJob node-setup/no-thp", Reason: v1alpha1.ReasonWaitingForBudget},
	}
	b.Status.Window = &v1alpha1.BudgetWindowStatus{OpensAt: at(30 * time.Minute), ClosesAt: metav1.NewTime(now.Add(30 * time.Minute))}
}

// freeze is a freeze of alice that ends in 90 minutes.
func freeze(b *v1alpha1.NodeDisruptionBudget) {
	b.Annotations = map[string]string{v1alpha1.ChangedByAnnotation: "alice"}
	b.Spec.AppliesTo, b.Spec.Limits, b.Spec.Description = v1alpha1.AppliesToAllTasks, []v1alpha1.BudgetLimit{limit("0", "")}, "INC-42"
	b.Spec.ExpiresAt = &metav1.Time{Time: now.Add(90 * time.Minute)}
	b.Status.Nodes = v1alpha1.BudgetCounts{Total: 43, Seats: 43}
}

const frozenMessage = "NodeDisruptionBudget freeze allows no disruption (maxUnavailable 0): INC-42"

func TestBudgetsAsPeopleSeeThem(t *testing.T) {
	ready, full := v1alpha1.ConditionReady, v1alpha1.ReasonMaxUnavailableReached
	items := []v1alpha1.NodeDisruptionBudget{
		ndb("audited", ready, v1alpha1.ReasonBudgetOpen, "", func(b *v1alpha1.NodeDisruptionBudget) {
			b.Spec.Enforcement, b.Status.DisruptionsAllowed = v1alpha1.BudgetReport, 2
		}),
		ndb("freeze", ready, v1alpha1.ReasonFrozen, frozenMessage, freeze),
		ndb("gone", ready, v1alpha1.ReasonBudgetOpen, "", func(b *v1alpha1.NodeDisruptionBudget) {
			b.Spec.ExpiresAt = &metav1.Time{Time: before(time.Hour)}
		}),
		ndb("new", ready, v1alpha1.ReasonBudgetOpen, "", func(b *v1alpha1.NodeDisruptionBudget) { b.Status.ObservedGeneration = 2 }),
		ndb("newer", ready, v1alpha1.ReasonBudgetOpen, "", func(b *v1alpha1.NodeDisruptionBudget) { b.Status.ObservedGeneration = -1 }),
		ndb("night", ready, v1alpha1.ReasonWindowClosed, "", func(b *v1alpha1.NodeDisruptionBudget) {
			b.Spec.Windows = []v1alpha1.BudgetWindow{{}}
			b.Status.Window = &v1alpha1.BudgetWindowStatus{OpensAt: metav1.NewTime(now.Add(10 * time.Hour))}
		}),
		ndb("production", ready, full, "4 nodes of 40 are not available, and 0 disruptions may begin", busy),
		ndb("wrong", v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidSpec, "", func(*v1alpha1.NodeDisruptionBudget) {}),
	}
	drawn(t, "budgets", func(width int) []text.Line { return Budgets{Items: items, Now: now, Width: width}.Lines() })
	for i, name := range map[int]string{1: "freeze", 3: "new", 4: "newer", 6: "production"} {
		drawn(t, "budget-"+name, func(width int) []text.Line { return Budget{Budget: &items[i], Now: now, Width: width}.Lines() })
	}
}

func TestFreezes(t *testing.T) {
	of := func(change func(*v1alpha1.NodeDisruptionBudget)) *v1alpha1.NodeDisruptionBudget {
		b := ndb("freeze", v1alpha1.ConditionReady, v1alpha1.ReasonFrozen, frozenMessage, freeze)
		change(&b)
		return &b
	}
	same := of(func(*v1alpha1.NodeDisruptionBudget) {})
	for name, tt := range map[string]struct {
		freeze Freeze
		want   string
	}{
		"some nodes": {
			Freeze{Budget: same, Nodes: 12},
			"Frozen until 14:00:00 UTC (in 90m) by alice: INC-42 (NodeDisruptionBudget freeze): nothing starts on 12 nodes",
		},
		"a node": {
			Freeze{Budget: same, Nodes: 1, Node: "node-1"},
			"Frozen until 14:00:00 UTC (in 90m) by alice: INC-42 (NodeDisruptionBudget freeze): nothing starts on node-1",
		},
		"disruptions only, by an unknown user, without an end": {
			Freeze{Nodes: 1, Budget: of(func(b *v1alpha1.NodeDisruptionBudget) {
				b.Annotations, b.Spec.ExpiresAt, b.Spec.Description, b.Spec.AppliesTo = nil, nil, "", v1alpha1.AppliesToDisruptions
			})},
			"Frozen without an end (NodeDisruptionBudget freeze): no disruption begins on 1 node",
		},
		"an unknown number of nodes": {
			Freeze{Budget: same},
			"Frozen until 14:00:00 UTC (in 90m) by alice: INC-42 (NodeDisruptionBudget freeze): nothing starts on the nodes that it selects",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.freeze.Sentence(now); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	f := Freeze{Budget: same, Nodes: 12}
	drawn(t, "freezes", func(width int) []text.Line { return Freezes([]Freeze{f, f, f, f, f}, now, width) })
	drawn(t, "status-frozen", func(width int) []text.Line {
		return Status{Now: now, Width: width, Freezes: []Freeze{f}, Job: job(func(*v1alpha1.NodeJob) {})}.Lines()
	})
}
