// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

func TestBudgets(t *testing.T) {
	sunday := time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC)
	inPool := &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	limits := func(n int32) []v1alpha1.BudgetLimit {
		return []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(n))}}
	}
	windows := []v1alpha1.BudgetWindow{{Schedule: "0 2 * * SUN", DurationSeconds: 3600}}
	node := plan.Node{Name: "n", UID: "n-uid", Labels: map[string]string{"pool": "a"}, Created: sunday.Add(-24 * time.Hour)}
	stance := hold.Stance{Seat: "seat", SeatUID: "seat-uid", Message: "no"}
	frozen := &hold.Why{
		By:      "b",
		Reason:  v1alpha1.ReasonFrozen,
		Message: "NodeDisruptionBudget b allows no disruption (maxUnavailable 0)",
		Until:   sunday.Add(time.Hour),
	}
	tests := map[string]struct {
		spec    v1alpha1.NodeDisruptionBudgetSpec
		node    func(*plan.Node)
		stances Stances
		want    *plan.NodeBudget
		changes time.Time
	}{
		"a budget that allows disruptions": {
			spec:    v1alpha1.NodeDisruptionBudgetSpec{Selector: inPool, Limits: limits(1)},
			stances: Stances{Of: map[types.UID]hold.Stance{"n-uid": stance}, Known: true},
			want: &plan.NodeBudget{
				Effect: hold.Effect{Limited: true},
				Stance: hold.Stance{Seat: "seat", SeatUID: "seat-uid", Message: "no"},
			},
		},
		"a node that the NodeJob has claimed": {
			spec: v1alpha1.NodeDisruptionBudgetSpec{Limits: limits(1)},
			stances: Stances{
				Of: map[types.UID]hold.Stance{
					"n-uid": {Allowed: true},
				},
				Known:   true,
				Claimed: map[types.UID]bool{"n-uid": true, "m-uid": true},
			},
			want: &plan.NodeBudget{Effect: hold.Effect{Limited: true}, Stance: hold.Stance{Allowed: true}, Claimed: true},
		},
		"nodes that the NodeJob holds use up the limit": {
			spec:    v1alpha1.NodeDisruptionBudgetSpec{Limits: limits(1)},
			stances: Stances{Of: map[types.UID]hold.Stance{"n-uid": {Message: "no", HeldBy: "NodeJob ns/job"}}, Known: true},
			want: &plan.NodeBudget{
				Effect: hold.Effect{Limited: true}, Stance: hold.Stance{Message: "no", HeldBy: "NodeJob ns/job"}, UsedUpByJob: true,
			},
		},
		"nodes that another NodeJob holds use up the limit": {
			spec:    v1alpha1.NodeDisruptionBudgetSpec{Limits: limits(1)},
			stances: Stances{Of: map[types.UID]hold.Stance{"n-uid": {Message: "no", HeldBy: "NodeJob ns/other"}}, Known: true},
			want:    &plan.NodeBudget{Effect: hold.Effect{Limited: true}, Stance: hold.Stance{Message: "no", HeldBy: "NodeJob ns/other"}},
		},
		"before the first plan of the budgets": {
			spec: v1alpha1.NodeDisruptionBudgetSpec{
				Limits: limits(1),
			},
			want: &plan.NodeBudget{Effect: hold.Effect{Limited: true}, Unknown: true},
		},
		"a node that the budgets have not seen": {
			spec:    v1alpha1.NodeDisruptionBudgetSpec{Limits: limits(1)},
			stances: Stances{Of: map[types.UID]hold.Stance{"m-uid": stance}, Known: true},
			want:    &plan.NodeBudget{Effect: hold.Effect{Limited: true}, Unknown: true},
		},
		"an open window": {
			spec:    v1alpha1.NodeDisruptionBudgetSpec{Windows: windows},
			stances: Stances{Of: map[types.UID]hold.Stance{"n-uid": {Allowed: true}}, Known: true},
			want: &plan.NodeBudget{
				Effect: hold.Effect{
					Limited: true, ClosesAt: sunday.Add(30 * time.Minute), ClosesBy: "b", Longest: time.Hour, LongestOf: "b",
				},
				Stance: hold.Stance{Allowed: true},
			},
			changes: sunday.Add(30 * time.Minute),
		},
		"a freeze of all tasks": {
			spec: v1alpha1.NodeDisruptionBudgetSpec{
				Limits: limits(0), AppliesTo: v1alpha1.AppliesToAllTasks, ExpiresAt: new(metav1.NewTime(sunday.Add(time.Hour))),
			},
			stances: Stances{Of: map[types.UID]hold.Stance{"n-uid": stance}, Known: true},
			want: &plan.NodeBudget{
				Effect: hold.Effect{Limited: true, Closed: frozen, TasksClosed: frozen},
				Stance: hold.Stance{Seat: "seat", SeatUID: "seat-uid", Message: "no"},
			},
			changes: sunday.Add(time.Hour),
		},
		"a budget that only reports": {
			spec: v1alpha1.NodeDisruptionBudgetSpec{Limits: limits(0), Enforcement: v1alpha1.BudgetReport},
		},
		"a node that the budget does not select": {
			spec: v1alpha1.NodeDisruptionBudgetSpec{Selector: inPool, Limits: limits(0)}, node: func(n *plan.Node) { n.Labels = nil },
		},
		"a node that joins": {
			spec: v1alpha1.NodeDisruptionBudgetSpec{Limits: limits(0)},
			node: func(n *plan.Node) { n.Created = sunday.Add(-time.Minute) },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{
				Nodes: []plan.Node{node},
				Now:   sunday,
				Job:   &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}},
			}
			if tt.node != nil {
				tt.node(&in.Nodes[0])
			}
			b := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: tt.spec}
			Budgets(&in, budget.EffectsOf([]*v1alpha1.NodeDisruptionBudget{b}, nil, 0, sunday), tt.stances)
			var want map[types.UID]plan.NodeBudget
			if tt.want != nil {
				want = map[types.UID]plan.NodeBudget{"n-uid": *tt.want}
			}
			if diff := cmp.Diff(want, in.Budgets); diff != "" {
				t.Errorf("budgets (-want +got):\n%s", diff)
			}
			if !in.BudgetsChangeAt.Equal(tt.changes) {
				t.Errorf("they change at %v, want %v", in.BudgetsChangeAt, tt.changes)
			}
		})
	}
}

// TestToldStances : a client that sees no seats reads from the status which nodes wait, and why.
func TestToldStances(t *testing.T) {
	b := &v1alpha1.NodeDisruptionBudget{Status: v1alpha1.NodeDisruptionBudgetStatus{Waiting: []v1alpha1.WaitingNode{
		{Node: "waits", Reason: v1alpha1.ReasonMaxUnavailableReached, Message: "the limit is reached"},
		{Node: "may-go", Reason: v1alpha1.ReasonBudgetOpen, Message: "1 disruption may begin now"},
	}}}
	got := ToldStances([]*v1alpha1.NodeDisruptionBudget{b}, []plan.Node{
		{Name: "waits", UID: "1"}, {Name: "may-go", UID: "2"}, {Name: "other", UID: "3"},
	})
	want := map[types.UID]hold.Stance{"1": {Message: "the limit is reached"}, "2": {Allowed: true}, "3": {Allowed: true}}
	if diff := cmp.Diff(want, got.Of); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
