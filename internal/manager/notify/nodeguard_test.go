// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestNotificationsOfNodeGuards writes a sequence of statuses at their times.
func TestNotificationsOfNodeGuards(t *testing.T) {
	hold := func(node string, minute int) v1alpha1.WaitingNode {
		return v1alpha1.WaitingNode{
			Node:    node,
			Since:   metav1.NewTime(noon.Add(time.Duration(minute) * time.Minute)),
			By:      "cordoned",
			Reason:  v1alpha1.ReasonAwaitingApproval,
			Message: "it is not approved; released when: it is approved",
			Until:   metav1.NewTime(noon.Add(24 * time.Hour)),
		}
	}
	late := func(h v1alpha1.WaitingNode) v1alpha1.WaitingNode { h.Until = metav1.Time{}; return h }
	releasing := func(h v1alpha1.WaitingNode) v1alpha1.WaitingNode { h.Reason = v1alpha1.ReasonReleasing; return h }
	told := func(node string) string {
		return "DrainHeld " + node + ": NodeGuard ns/guard holds node " + node + " (cordoned): it is not approved; released when: it is approved"
	}
	type pass struct {
		minute int
		held   []v1alpha1.WaitingNode
		want   []string
		next   time.Duration
	}
	for name, tt := range map[string]struct {
		limit  time.Duration
		passes []pass
	}{
		"a hold, which is told once": {time.Hour, []pass{
			{0, []v1alpha1.WaitingNode{hold("a", 0)}, nil, time.Hour},
			{59, []v1alpha1.WaitingNode{hold("a", 0)}, nil, time.Minute},
			{60, []v1alpha1.WaitingNode{hold("a", 0)}, []string{told("a")}, 0},
			{90, []v1alpha1.WaitingNode{hold("a", 0)}, nil, 0},
		}},
		"a second hold of the node": {time.Hour, []pass{
			{60, []v1alpha1.WaitingNode{hold("a", 0)}, []string{told("a")}, 0},
			{61, nil, nil, 0},
			{62, []v1alpha1.WaitingNode{hold("a", 62)}, nil, time.Hour},
			{122, []v1alpha1.WaitingNode{hold("a", 62)}, []string{told("a")}, 0},
		}},
		"two nodes": {time.Hour, []pass{
			{50, []v1alpha1.WaitingNode{hold("a", 0), hold("b", 10)}, nil, 10 * time.Minute},
			{60, []v1alpha1.WaitingNode{hold("a", 0), hold("b", 10)}, []string{told("a")}, 10 * time.Minute},
			{80, []v1alpha1.WaitingNode{hold("a", 0), hold("b", 10)}, []string{told("b")}, 0},
		}},
		"a deadline before the limit": {time.Hour, []pass{
			{5, []v1alpha1.WaitingNode{late(hold("a", 0))}, []string{told("a")}, 0},
			{60, []v1alpha1.WaitingNode{late(hold("a", 0))}, nil, 0},
		}},
		"only deadlines": {0, []pass{
			{90, []v1alpha1.WaitingNode{hold("a", 0)}, nil, 0},
			{91, []v1alpha1.WaitingNode{late(hold("a", 0))}, []string{told("a")}, 0},
		}},
		"a node that is being released": {time.Hour, []pass{{60, []v1alpha1.WaitingNode{releasing(hold("a", 0))}, nil, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := New(Config{URL: "http://endpoint.test", DrainHeld: tt.limit}, prometheus.NewRegistry())
			g := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "guard"}}
			g.Spec.Release.DeadlineSeconds = new(int32(24 * 60 * 60))
			for i, p := range tt.passes {
				n.Now = func() time.Time { return noon.Add(time.Duration(p.minute) * time.Minute) }
				g.Status.ControllerState.Notifications = withoutPending(g.Status.ControllerState.Notifications)
				after := v1alpha1.NodeGuardStatus{Waiting: p.held}
				if next := n.NodeGuard(g, &after, 0); next != p.next {
					t.Errorf("pass %d: the next one is after %s, want %s", i, next, p.next)
				}
				if diff := cmp.Diff(p.want, lines(guardPending(after.ControllerState.Notifications))); diff != "" {
					t.Errorf("pass %d (-want +got):\n%s", i, diff)
				}
				g.Status = after
			}
		})
	}
}

func withoutPending(state *v1alpha1.NodeGuardNotifications) *v1alpha1.NodeGuardNotifications {
	if state == nil {
		return nil
	}
	return &v1alpha1.NodeGuardNotifications{Held: state.Held}
}
