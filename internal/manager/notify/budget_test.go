// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// freeze is a budget that the manager has not observed yet.
func freeze() *v1alpha1.NodeDisruptionBudget {
	expires := metav1.NewTime(noon.Add(4 * time.Hour))
	return &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Name: "freeze", UID: "uid", Generation: 1, Annotations: map[string]string{v1alpha1.ChangedByAnnotation: "jane@example.com"},
		},
		Spec: v1alpha1.NodeDisruptionBudgetSpec{
			Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(0))}}, AppliesTo: v1alpha1.AppliesToAllTasks,
			ExpiresAt: &expires, Description: "INC-42\x1b[31m",
		},
		Status: v1alpha1.NodeDisruptionBudgetStatus{ObservedGeneration: -1},
	}
}

// budgetStatus has one of the conditions True.
func budgetStatus(kind, reason string, exceeding int32) v1alpha1.NodeDisruptionBudgetStatus {
	st := v1alpha1.NodeDisruptionBudgetStatus{ObservedGeneration: 1, Nodes: v1alpha1.BudgetCounts{Unavailable: 3, Exceeding: exceeding}}
	for _, of := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		status := metav1.ConditionFalse
		if of == kind {
			status = metav1.ConditionTrue
		}
		st.Conditions = append(st.Conditions, metav1.Condition{Type: of, Status: status, Reason: reason, Message: "the message"})
	}
	st.Unavailable = []v1alpha1.UnavailableNode{{Node: "node-1", By: "not Ready"}}
	return st
}

// TestNotificationsOfNodeDisruptionBudgets writes a sequence of statuses, each by a manager that knows only the previous one.
func TestNotificationsOfNodeDisruptionBudgets(t *testing.T) {
	const (
		ready, reconciling, stalled = v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled

		frozen = "Frozen: no disruption of nodes and no attempt of a NodeJob begins, until 2026-07-01T16:00:00Z, by jane@example.com: INC-42\\x1b[31m"
		thawed = "Thawed: the freeze has ended: disruptions of its nodes may begin, as far as other NodeDisruptionBudgets allow them"
		over   = "Exceeded: 3 nodes are not available, which are 1 more than the limits allow: node-1 (not Ready). To see why: kubectl everynode budgets"
	)
	limited := freeze()
	limited.Spec.Limits[0].MaxUnavailable = new(intstr.FromInt32(2))
	audit := freeze()
	audit.Spec.Enforcement = v1alpha1.BudgetReport
	observed := freeze()
	observed.Status = budgetStatus(ready, v1alpha1.ReasonFrozen, 0)
	type pass struct {
		status v1alpha1.NodeDisruptionBudgetStatus
		want   []string
	}
	for name, tt := range map[string]struct {
		budget *v1alpha1.NodeDisruptionBudget
		passes []pass
	}{
		"a freeze, until it expires": {freeze(), []pass{
			{budgetStatus(reconciling, v1alpha1.ReasonSeatsNotReady, 0), []string{frozen}},
			{budgetStatus(ready, v1alpha1.ReasonFrozen, 0), nil},
			{budgetStatus(ready, v1alpha1.ReasonExpired, 0), []string{thawed}},
			{budgetStatus(ready, v1alpha1.ReasonExpired, 0), nil},
		}},
		"a freeze that only reports":                   {audit, []pass{{budgetStatus(ready, v1alpha1.ReasonFrozen, 0), nil}}},
		"a freeze from before the manager had a URL":   {observed, []pass{{budgetStatus(ready, v1alpha1.ReasonFrozen, 0), nil}}},
		"seats that start exceed a limit, and are not": {limited, []pass{{budgetStatus(reconciling, v1alpha1.ReasonSeatsNotReady, 1), nil}}},
		"nodes beyond a limit, twice": {limited, []pass{
			{budgetStatus(ready, v1alpha1.ReasonMaxUnavailableReached, 1), []string{over}},
			{budgetStatus(reconciling, v1alpha1.ReasonSeatsNotReady, 2), nil},
			{budgetStatus(ready, v1alpha1.ReasonMaxUnavailableReached, 1), nil},
			{budgetStatus(ready, v1alpha1.ReasonMaxUnavailableReached, 0), nil},
			{budgetStatus(ready, v1alpha1.ReasonMaxUnavailableReached, 1), []string{over}},
		}},
		"a spec that cannot be used, until it is corrected": {limited, []pass{
			{budgetStatus(stalled, v1alpha1.ReasonInvalidSpec, 0), []string{"Stalled: the message"}},
			{budgetStatus(stalled, v1alpha1.ReasonInvalidSpec, 0), nil},
			{budgetStatus(ready, v1alpha1.ReasonBudgetOpen, 0), nil},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := tt.budget.DeepCopy()
			for i, p := range tt.passes {
				n := New(Config{URL: "http://endpoint.test"}, prometheus.NewRegistry())
				n.Now = func() time.Time { return noon }
				if state := b.Status.ControllerState.Notifications; state != nil {
					state.Pending = nil
				}
				after := *p.status.DeepCopy()
				n.NodeDisruptionBudget(b, &after, 0)
				b.Status = after
				if diff := cmp.Diff(p.want, lines(budgetPending(b))); diff != "" {
					t.Errorf("pass %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// TestAFreezeThatIsDeletedIsReported : its status no longer exists, so what is pending is sent too.
func TestAFreezeThatIsDeletedIsReported(t *testing.T) {
	n := New(Config{URL: "http://endpoint.test"}, prometheus.NewRegistry())
	n.Now = func() time.Time { return noon }
	b := freeze()
	after := budgetStatus(v1alpha1.ConditionReady, v1alpha1.ReasonFrozen, 0)
	n.NodeDisruptionBudget(b, &after, 0)
	b.Status = after
	n.OfferNodeDisruptionBudget(b)
	n.DeletedNodeDisruptionBudget(b)
	for _, want := range []string{"uid/Frozen///", "uid/Thawed///"} {
		o, next, _ := n.queue.next(noon)
		if !strings.HasPrefix(next.id, want) || o.Name != "freeze" {
			t.Errorf("the next notification is %s of %v, want %s", next.id, o, want)
		}
		n.queue.handle(o, next.id, noon)
	}
}

func TestTheNameOfAnObjectOfTheClusterHasNoNamespace(t *testing.T) {
	o := Object{KindNodeDisruptionBudget, types.NamespacedName{Name: "freeze"}, "uid"}
	n := &v1alpha1.Notification{Type: v1alpha1.NotificationFrozen, Reason: "Frozen", Message: "m"}
	if got := slackText(DefaultSource, o, n); got != "NodeDisruptionBudget freeze has begun a freeze (Frozen): m" {
		t.Errorf("the text is %q", got)
	}
	if got := cloudEvent(
		DefaultSource,
		o,
		n,
	); got.Subject != "nodedisruptionbudget/freeze" ||
		got.Type != "dev.everynode.nodedisruptionbudget.frozen" {
		t.Errorf("the event is %+v", got)
	}
}
