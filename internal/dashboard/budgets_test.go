// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// usedBudget is a budget that a node uses and for which another one waits.
func usedBudget(name string, now time.Time) *v1alpha1.NodeDisruptionBudget {
	one := intstr.FromInt32(1)
	b := &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec: v1alpha1.NodeDisruptionBudgetSpec{
			AppliesTo:    v1alpha1.AppliesToDisruptions,
			Limits:       []v1alpha1.BudgetLimit{{MaxUnavailable: &one}},
			JoiningNodes: v1alpha1.JoiningNodesIncluded,
		},
		Status: v1alpha1.NodeDisruptionBudgetStatus{
			ObservedGeneration: 1, Nodes: v1alpha1.BudgetCounts{Total: 3, Seats: 1, Unavailable: 1, Waiting: 2},
			Unavailable: []v1alpha1.UnavailableNode{{Node: "a", Since: metav1.NewTime(now.Add(-25 * time.Minute)), By: "NodeJob ns/j"}},
			Waiting: []v1alpha1.WaitingNode{
				{
					Node:    "b",
					Since:   metav1.NewTime(now.Add(-2 * time.Minute)),
					By:      "tainted by \x1b[2J",
					Reason:  v1alpha1.ReasonMaxUnavailableReached,
					Message: "NodeDisruptionBudget production allows 1",
				},
			},
		},
	}
	b.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMaxUnavailableReached, Message: "1 node of 3",
	}}
	return b
}

func TestTheViewOfBudgets(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	o := &observed{}
	o.Now, o.Budgets = now, []*v1alpha1.NodeDisruptionBudget{usedBudget("production", now)}
	v := o.newBudgetsView()
	plain := func(label, said string) row { return row{Label: label, Spans: []span{{said, "plain"}}} }
	want := budgetsView{Budgets: []budgetView{
		{
			Name:        "production",
			State:       "Max unavailable reached",
			Tone:        "warn",
			Nodes:       "3",
			Allowed:     "0",
			Unavailable: "1",
			Waiting:     "2",
			Rows: []row{
				plain("Status", "1 node of 3"),
				plain("Nodes", "3 selected, 1 unavailable, 2 waiting; 0 disruptions may begin"),
				plain("Selects", "all nodes"),
				plain("Applies", "Disruptions: drains, and NodeJobs that cordon, drain or reboot"),
				plain("Limits", "maxUnavailable 1"),
				plain("Joining", "Included: it also applies to nodes that were created less than 10 minutes ago"),
			},
			Uses: []budgetUseView{
				{Node: "a", State: "unavailable", Tone: "active", Since: "25m", By: "NodeJob ns/j"},
				{
					Node:  "b",
					State: "waiting",
					Tone:  "warn",
					Since: "2m",
					By:    `tainted by \x1b[2J`,
					Why:   "NodeDisruptionBudget production allows 1",
				},
			},
			NotListed: []string{"and 1 more waiting"},
		},
	}}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Errorf("view (-want +got):\n%s", diff)
	}
	if got, want := string(o.values()["budgets"]), `{"count":1,"waiting":2}`; got != want {
		t.Errorf("the state is %s, want %s", got, want)
	}
}

func TestTheViewOfBudgetsIsBounded(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	o := &observed{}
	o.Now = now
	for i := range maxBudgets + 7 {
		o.Budgets = append(o.Budgets, usedBudget(fmt.Sprint("budget-", i), now))
	}
	if v := o.newBudgetsView(); len(v.Budgets) != maxBudgets || v.More != 7 {
		t.Errorf("%d budgets and %d more, want %d and 7", len(v.Budgets), v.More, maxBudgets)
	}
}

func TestTheViewOfANodeHasItsBudgets(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	o := &observed{}
	o.Now, o.Nodes = now, []plan.Node{{Name: "b", Ready: corev1.ConditionTrue}}
	if v := o.node(0, nil); len(v.Budgets) != 0 {
		t.Errorf("in a cluster without budgets: %v", v.Budgets)
	}
	o.Budgets = []*v1alpha1.NodeDisruptionBudget{usedBudget("production", now)}
	v := o.node(0, nil)
	const want = `NodeDisruptionBudget production limits b: it has waited for 2m (tainted by \x1b[2J); NodeDisruptionBudget production allows 1`
	if len(v.Budgets) != 1 || !strings.HasPrefix(v.Budgets[0].Spans[0].Text, want) {
		t.Errorf("got %v, want %s", v.Budgets, want)
	}
}
