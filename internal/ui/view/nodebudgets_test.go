// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// selecting are budgets that limit a node.
func selecting(budgets ...v1alpha1.NodeDisruptionBudget) []budget.Selecting {
	var all []*v1alpha1.NodeDisruptionBudget
	for i := range budgets {
		budgets[i].Spec.Selector = nil
		all = append(all, &budgets[i])
	}
	return budget.SelectingNode(all, &budget.Node{Created: before(time.Hour)}, now)
}

func TestBudgetsOfANodeInASentence(t *testing.T) {
	ready := v1alpha1.ConditionReady
	production := func(change func(*v1alpha1.NodeDisruptionBudget)) v1alpha1.NodeDisruptionBudget {
		return ndb("production", ready, v1alpha1.ReasonMaxUnavailableReached, "", func(b *v1alpha1.NodeDisruptionBudget) {
			busy(b)
			b.Spec.Windows, b.Spec.ExceptDates, b.Status.Window, b.Status.Nodes.Unavailable = nil, nil, nil, 2
			change(b)
		})
	}
	same := func(*v1alpha1.NodeDisruptionBudget) {}
	open := func(b *v1alpha1.NodeDisruptionBudget) { b.Status.DisruptionsAllowed = 2 }
	zones := ndb("zones", ready, v1alpha1.ReasonBudgetOpen, "", func(b *v1alpha1.NodeDisruptionBudget) { b.Status.DisruptionsAllowed = 1 })
	windowed := func(name, schedule string, seconds int32) v1alpha1.NodeDisruptionBudget {
		return ndb(name, ready, v1alpha1.ReasonWindowClosed, "", func(b *v1alpha1.NodeDisruptionBudget) {
			b.Spec.Windows = []v1alpha1.BudgetWindow{{Schedule: schedule, DurationSeconds: seconds}}
		})
	}
	night := windowed("night", "0 2 * * *", 3600)
	frozen := ndb("freeze", ready, v1alpha1.ReasonFrozen, frozenMessage, freeze)
	seat := &budget.Seat{Name: "seat-1", Group: "g", Ready: true}
	cordoned := func(n *plan.Node) { n.Unschedulable = true }
	for name, tt := range map[string]struct {
		node string
		seat *budget.Seat
		// seen is true if seats can be read.
		seen      bool
		change    func(*plan.Node)
		selecting []budget.Selecting
		want      string
	}{
		"no budget": {node: "node-1", want: "No NodeDisruptionBudget selects node-1."},
		"available": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(production(open), zones),
			want: "NodeDisruptionBudgets production and zones limit node-1: it is available; 1 disruption may begin.",
		},
		"available, with an open window": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(production(func(b *v1alpha1.NodeDisruptionBudget) {
				b.Status.DisruptionsAllowed = 2
				b.Spec.Windows = []v1alpha1.BudgetWindow{{Schedule: "0 14 * * *", DurationSeconds: 3600}}
				b.Status.Window = &v1alpha1.BudgetWindowStatus{ClosesAt: metav1.NewTime(now.Add(30 * time.Minute))}
			})),
			want: "NodeDisruptionBudget production limits node-1: it is available; 2 disruptions may begin until 13:00:00 UTC (in 30m).",
		},
		"waits for other nodes": {
			node: "node-12", seat: seat, seen: true, selecting: selecting(production(same)),
			want: "NodeDisruptionBudget production limits node-12: it has waited for 2m (tainted by Karpenter\x1b[2J); NodeDisruptionBudget production " +
				"allows 4 unavailable nodes, and 4 are; next, one of these must be available again: node-7 (NodeJob node-setup/no-thp, for 25m), " +
				"node-9 (cordoned, for 4m); in an emergency, release it: kubectl -n everynode-system delete pod seat-1.",
		},
		"cordoned a moment ago": {
			node: "node-1", change: cordoned, selecting: selecting(frozen),
			want: "NodeDisruptionBudget freeze limits node-1: it has waited for 0s (cordoned); " + frozenMessage + "; it opens in 90m, at 14:00:00 UTC.",
		},
		"a window and a freeze: the one that opens last": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(frozen, night),
			want: "NodeDisruptionBudgets freeze and night limit node-1: it is available; NodeDisruptionBudget night is closed until its next window " +
				"opens at 2026-07-02T02:00:00Z; it opens in 13h, at 2026-07-02 02:00:00 UTC.",
		},
		"the second Tuesday as two budgets": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(windowed("days", "0 0 8-14 * *", 86400), windowed("tuesdays", "0 2 * * TUE", 3600)),
			want: "NodeDisruptionBudgets days and tuesdays limit node-1: it is available; NodeDisruptionBudget days is closed until its next window " +
				"opens at 2026-07-08T00:00:00Z; it opens in 6d11h, at 2026-07-08 00:00:00 UTC; all of them are open at the same time in 12d, at " +
				"2026-07-14 02:00:00 UTC.",
		},
		"a freeze that outlasts the window": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(night, ndb("freeze", ready, v1alpha1.ReasonFrozen, frozenMessage,
				func(b *v1alpha1.NodeDisruptionBudget) {
					freeze(b)
					b.Spec.ExpiresAt = &metav1.Time{Time: now.Add(20 * time.Hour)}
				})),
			want: "NodeDisruptionBudgets night and freeze limit node-1: it is available; " + frozenMessage + "; it opens in 20h, at 2026-07-02 08:30:00 UTC; " +
				"all of them are open at the same time in 37h, at 2026-07-03 02:00:00 UTC.",
		},
		"another window that only reports": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(night, func() v1alpha1.NodeDisruptionBudget {
				b := windowed("audited", "30 2 * * TUE", 3600)
				b.Spec.Enforcement = v1alpha1.BudgetReport
				return b
			}()),
			want: "NodeDisruptionBudget night limits node-1: it is available; NodeDisruptionBudget night is closed until its next window " +
				"opens at 2026-07-02T02:00:00Z; it opens in 13h, at 2026-07-02 02:00:00 UTC.",
		},
		"another window that ends with its budget": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(night, func() v1alpha1.NodeDisruptionBudget {
				b := windowed("days", "0 0 8-14 * *", 86400)
				b.Spec.ExpiresAt = &metav1.Time{Time: now.Add(48 * time.Hour)}
				return b
			}()),
			want: "NodeDisruptionBudgets night and days limit node-1: it is available; NodeDisruptionBudget days is closed until its next window " +
				"opens at 2026-07-08T00:00:00Z; it opens in 2d, at 2026-07-03 12:30:00 UTC; all of them are open at the same time in 2d13h, at " +
				"2026-07-04 02:00:00 UTC.",
		},
		"windows that are never open at the same time": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(night, windowed("evening", "0 20 * * *", 3600)),
			want: "NodeDisruptionBudgets night and evening limit node-1: it is available; NodeDisruptionBudget night is closed until its next window " +
				"opens at 2026-07-02T02:00:00Z; it opens in 13h, at 2026-07-02 02:00:00 UTC.",
		},
		"unavailable by its status": {
			node: "node-7", selecting: selecting(production(same)),
			want: "NodeDisruptionBudget production limits node-7: it counts as unavailable for 25m (NodeJob node-setup/no-thp); it counts as available " +
				"again when it is Ready and uncordoned, no NodeJob disrupts it, and its seat is back.",
		},
		"the seat counts more than the status": {
			node: "node-7", seat: seat, seen: true, selecting: selecting(production(open)),
			want: "NodeDisruptionBudget production limits node-7: it is available; 2 disruptions may begin.",
		},
		"unavailable by its seat": {
			node: "node-1", seen: true, selecting: selecting(production(open)),
			want: "NodeDisruptionBudget production limits node-1: it counts as unavailable (it has no seat); it counts as available again when it is " +
				"Ready and uncordoned, no NodeJob disrupts it, and its seat is back.",
		},
		"unavailable by its Node": {
			node: "node-1", change: func(n *plan.Node) { n.Ready = corev1.ConditionUnknown }, selecting: selecting(production(open)),
			want: "NodeDisruptionBudget production limits node-1: it counts as unavailable (not Ready); it counts as available again when it is " +
				"Ready and uncordoned, no NodeJob disrupts it, and its seat is back.",
		},
		"a status that names only some nodes": {
			node: "node-1", selecting: selecting(production(func(b *v1alpha1.NodeDisruptionBudget) {
				b.Status.DisruptionsAllowed, b.Status.Nodes.Unavailable = 1, 12
			})),
			want: "NodeDisruptionBudget production limits node-1: whether it counts as unavailable cannot be seen, because the status names only " +
				"some of the nodes; 1 disruption may begin.",
		},
		"a status of an earlier spec": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(production(func(b *v1alpha1.NodeDisruptionBudget) {
				b.Status.DisruptionsAllowed, b.Status.ObservedGeneration = 1, 2
				b.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "status", Time: &metav1.Time{Time: before(time.Hour)}}}
			})),
			want: "NodeDisruptionBudget production limits node-1: it is available; 1 disruption may begin; as of before the last change of " +
				"NodeDisruptionBudget production, which the manager has not observed yet (status of 2026-07-01T11:30:00Z).",
		},
		"never observed": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(production(func(b *v1alpha1.NodeDisruptionBudget) {
				b.Status = v1alpha1.NodeDisruptionBudgetStatus{ObservedGeneration: -1}
			})),
			want: "NodeDisruptionBudget production limits node-1: it is available; the manager has not observed NodeDisruptionBudget production yet.",
		},
		"pace": {
			node: "node-1", seat: seat, seen: true,
			selecting: selecting(ndb("slow", ready, v1alpha1.ReasonPaceNotReached, "NodeDisruptionBudget slow allows the next disruption at 12:35", same)),
			want:      "NodeDisruptionBudget slow limits node-1: it is available; NodeDisruptionBudget slow allows the next disruption at 12:35.",
		},
		"audit": {
			node: "node-1", selecting: selecting(ndb("audited", ready, v1alpha1.ReasonFrozen, "", func(b *v1alpha1.NodeDisruptionBudget) {
				freeze(b)
				b.Spec.Enforcement = v1alpha1.BudgetReport
			})),
			want: "NodeDisruptionBudget audited selects node-1, and only reports (enforcement: Report).",
		},
		"audit beside a budget that limits": {
			node: "node-1", seat: seat, seen: true,
			selecting: selecting(ndb("audited", ready, v1alpha1.ReasonFrozen, "", func(b *v1alpha1.NodeDisruptionBudget) {
				freeze(b)
				b.Spec.Enforcement = v1alpha1.BudgetReport
			}), zones),
			want: "NodeDisruptionBudget zones limits node-1: it is available; 1 disruption may begin.",
		},
		"joining": {
			node: "node-1", selecting: budget.SelectingNode([]*v1alpha1.NodeDisruptionBudget{&zones}, &budget.Node{Created: before(4 * time.Minute)}, now),
			want: "NodeDisruptionBudget zones selects node-1, and does not limit it until 12:36:00 UTC (in 6m), because less than 10 minutes have passed since it was created: " +
				"set joiningNodes: Included to limit it now.",
		},
		"joining, and limited by another budget": {
			node: "node-1", seat: seat, seen: true, selecting: append(selecting(production(open)),
				budget.SelectingNode([]*v1alpha1.NodeDisruptionBudget{&zones}, &budget.Node{Created: before(4 * time.Minute)}, now)...),
			want: "NodeDisruptionBudget production limits node-1: it is available; 2 disruptions may begin. NodeDisruptionBudget zones selects node-1, and " +
				"does not limit it until 12:36:00 UTC (in 6m), because less than 10 minutes have passed since it was created: set joiningNodes: Included " +
				"to limit it now.",
		},
		"many budgets": {
			node: "node-1", seat: seat, seen: true, selecting: selecting(zones, zones, zones, zones, zones),
			want: "NodeDisruptionBudgets zones, zones, zones and 2 more limit node-1: it is available; 1 disruption may begin.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &plan.Node{Name: tt.node, Ready: corev1.ConditionTrue, Created: before(time.Hour)}
			if tt.change != nil {
				tt.change(node)
			}
			b := NodeBudgets{
				Node:          node,
				Selecting:     tt.selecting,
				Seat:          tt.seat,
				SeatUnknown:   !tt.seen,
				SeatNamespace: "everynode-system",
				Now:           now,
			}
			if got := b.Sentence(); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
	waits := NodeBudgets{
		Node: &plan.Node{Name: "node-12", Ready: corev1.ConditionTrue}, Selecting: selecting(production(same), frozen), Seat: seat,
		SeatNamespace: "everynode-system", Now: now,
	}
	drawn(t, "node-budgets", waits.Lines)
}
