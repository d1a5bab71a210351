// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestANodeThatJoinsTakesNoDisruption : it takes away nothing that was there. A node that may have had a seat before counts.
func TestANodeThatJoinsTakesNoDisruption(t *testing.T) {
	included := func(s *spec) { s.JoiningNodes = v1alpha1.JoiningNodesIncluded }
	type want struct {
		Actions     []string
		Allowed     int32
		Unavailable int32
		Reason      string
	}
	tests := map[string]struct {
		budget *v1alpha1.NodeDisruptionBudget
		// before is what happens before the node joins, and after when it has joined.
		before, after func(*fixture)
		want          want
	}{
		"it is not Ready": {
			newBudget("b", "1"), nil, func(f *fixture) { f.breakDown("n5", 0) }, want{nil, 1, 0, v1alpha1.ReasonBudgetOpen},
		},
		"it is Ready, and has not settled": {newBudget("b", "1"), nil, nil, want{nil, 1, 0, v1alpha1.ReasonBudgetOpen}},
		"it is due to have a seat": {
			newBudget("b", "1"), nil, func(f *fixture) { f.Now = noon.Add(time.Minute) },
			want{[]string{"create seat of n5"}, 1, 0, v1alpha1.ReasonSeatsNotReady},
		},
		"its seat does not start": {
			newBudget("b", "1"), nil, func(f *fixture) { f.Now = noon.Add(time.Minute); f.firstSeat("n5").Ready = false },
			want{nil, 1, 0, v1alpha1.ReasonSeatsNotReady},
		},
		"its seat does not start for more than a minute": {
			newBudget("b", "1"), nil, func(f *fixture) { f.Now = noon.Add(90 * time.Second); f.firstSeat("n5").Ready = false },
			want{[]string{"set floor of n1 n2 n3 n4 to 4"}, 0, 1, v1alpha1.ReasonSeatsNotReady},
		},
		"it joined before the budget": {
			newBudget("b", "1"), nil, func(f *fixture) {
				inPool("y", f.Budgets[0])
				f.settleFresh(t)
				f.Budgets[0].Spec.Selector = nil
			}, want{[]string{"set floor of n2 n4 to 4"}, 0, 3, v1alpha1.ReasonSeatsNotReady},
		},
		"its seat is ready: the floor counts it first": {
			newBudget("b", "1"), nil, func(f *fixture) { f.Now = noon.Add(time.Minute); f.firstSeat("n5") },
			want{[]string{"set floor of n1 n2 n3 n4 to 4"}, 0, 1, v1alpha1.ReasonSeatsNotReady},
		},
		"it loses its seat later": {
			newBudget("b", "1"), nil, func(f *fixture) {
				f.Now = noon.Add(time.Minute)
				f.settleFresh(t)
				f.evict("n5")
				f.cordon("n5")
			}, want{nil, 0, 1, v1alpha1.ReasonMaxUnavailableReached},
		},
		"a percentage does not count it": {newBudget("b", "40%"), nil, nil, want{nil, 1, 0, v1alpha1.ReasonBudgetOpen}},
		"another node is unavailable": {
			newBudget("b", "2"), func(f *fixture) { f.evict("n1"); f.cordon("n1") }, nil, want{nil, 1, 1, v1alpha1.ReasonBudgetOpen},
		},
		"the manager has started since": {
			newBudget("b", "1"), nil, func(f *fixture) { f.Fresh = nil },
			want{[]string{"set floor of n1 n2 n3 n4 to 4"}, 0, 1, v1alpha1.ReasonMaxUnavailableReached},
		},
		"it is the first of its group": {
			newBudget("b", "1/kubernetes.io/hostname"), nil, func(f *fixture) { f.node("n5").Labels["kubernetes.io/hostname"] = "n5" },
			want{[]string{"create floor 0"}, 1, 0, v1alpha1.ReasonBudgetOpen},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, with(tt.budget, included))
			if tt.before != nil {
				tt.before(f)
				f.settleFresh(t)
			}
			f.Fresh = Next(&f.Input).Fresh
			f.addNode("n5", noon)
			f.Fresh = Next(&f.Input).Fresh
			if tt.after != nil {
				tt.after(f)
			}
			p := Next(&f.Input)
			st := &p.Statuses[0]
			got := want{f.texts(p.Actions), st.DisruptionsAllowed, st.Nodes.Unavailable, ""}
			for _, c := range st.Conditions {
				if c.Status == "True" {
					got.Reason = c.Reason
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestFirstSeatsBeginNoPace : however long the node has needed to join.
func TestFirstSeatsBeginNoPace(t *testing.T) {
	f := settled(t, 4, with(newBudget("b", "1"), func(s *spec) {
		s.JoiningNodes, s.PaceSeconds = v1alpha1.JoiningNodesIncluded, new(int32(300))
	}))
	f.Fresh = Next(&f.Input).Fresh
	f.addNode("n5", noon)
	f.Fresh = Next(&f.Input).Fresh
	f.breakDown("n5", 0)
	f.Now = noon.Add(time.Hour)
	f.node("n5").Ready, f.node("n5").ReadyChanged = true, f.Now.Add(-time.Minute)
	f.settleFresh(t)
	if s := f.seat("n5"); s == nil || s.Returned {
		t.Errorf("the first seat of a new node is %+v", s)
	}
	if c := Next(&f.Input).Statuses[0]; c.DisruptionsAllowed != 1 {
		t.Errorf("the status is %+v", c)
	}
}

// firstSeat gives a node a ready seat that has not joined its group.
func (f *fixture) firstSeat(node string) *Seat {
	f.apply(CreateSeat{Node: node, NodeUID: f.node(node).UID, Group: PendingGroup})
	return f.seat(node)
}

// settleFresh is settle, with the memory of a manager of which nodes are new.
func (f *fixture) settleFresh(t *testing.T) {
	t.Helper()
	for range 20 {
		p := Next(&f.Input)
		f.Fresh = p.Fresh
		if len(p.Actions) == 0 {
			return
		}
		for _, a := range p.Actions {
			f.apply(a)
		}
		f.count()
	}
	t.Fatal("the plan does not settle")
}
