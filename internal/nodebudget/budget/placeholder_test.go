// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/seal"
)

// TestPlaceholders : AKS would upgrade the cluster in each of these situations, because each PodDisruptionBudget requires fewer pods than it
// expects.
func TestPlaceholders(t *testing.T) {
	frozen := func(f *fixture) {
		f.Budgets = append(f.Budgets, with(newBudget("freeze", "0"), func(*v1alpha1.NodeDisruptionBudgetSpec) {}))
	}
	for name, tt := range map[string]struct {
		change func(*fixture)
		// want is how many placeholders there are in the end.
		want int
	}{
		"all nodes are available":           {func(*fixture) {}, 1},
		"all nodes are frozen":              {frozen, 1},
		"a node is away":                    {func(f *fixture) { f.cordon("n1"); f.evict("n1") }, 1},
		"a node is away in a freeze":        {func(f *fixture) { f.cordon("n1"); f.evict("n1"); frozen(f) }, 2},
		"two nodes are away in a freeze":    {func(f *fixture) { f.cordon("n1", "n2"); f.evict("n1", "n2"); frozen(f) }, 3},
		"the seat of a node is never ready": {func(f *fixture) { frozen(f); f.seat("n1").Ready, f.seat("n1").Group = false, PendingGroup }, 2},
		"there is no budget":                {func(f *fixture) { f.Budgets = nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, newBudget("b", "1"))
			f.Now = f.Now.Add(time.Hour)
			tt.change(f)
			f.settle(t)
			f.Now = f.Now.Add(time.Hour)
			f.settle(t)
			if len(f.Placeholders) != tt.want {
				t.Errorf("there are %d placeholders, want %d", len(f.Placeholders), tt.want)
			}
			for _, b := range f.Floors {
				expected := len(f.Placeholders)
				for _, s := range f.Seats {
					if s.Group == b.Group {
						expected++
					}
				}
				if int(b.MinAvailable) >= expected {
					t.Errorf("a PodDisruptionBudget requires %d of %d pods", b.MinAvailable, expected)
				}
			}
		})
	}
}

// TestAPlaceholderThatRuns : a pod that gets a node can be ready, so all PodDisruptionBudgets require it in addition. It is replaced.
func TestAPlaceholderThatRuns(t *testing.T) {
	f := settled(t, 2, newBudget("b", "1"))
	f.Placeholders[0].Bound = true
	p := Next(&f.Input)
	want := []Action{SetFloor{f.Floors[0], FloorState{f.Floors[0].Group, 2, []Owner{{"b", "uid-b"}}}}, DeletePlaceholder{f.Placeholders[0]}}
	if diff := cmp.Diff(want, p.Actions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestSeatsComeBeforePlaceholders : a quota may allow only some of the pods.
func TestSeatsComeBeforePlaceholders(t *testing.T) {
	f := newFixture(1, newBudget("b", "1"))
	f.plan(t, []string{"create floor 0"})
	f.Placeholders = nil
	p := Next(&f.Input)
	if diff := cmp.Diff([]string{"create seat of n1"}, f.texts(p.Actions)); diff != "" || len(p.Actions) != 1 {
		t.Errorf("the first plan is %+v", p.Actions)
	}
	f.settle(t)
	f.Placeholders, f.Refused = nil, &hold.Why{Until: f.Now.Add(time.Minute)}
	if p := Next(&f.Input); len(p.Actions) != 0 {
		t.Errorf("after a rejection, the plan is %+v", p.Actions)
	}
	f.Now = f.Now.Add(time.Minute)
	if diff := cmp.Diff([]Action{CreatePlaceholder{0}}, Next(&f.Input).Actions); diff != "" {
		t.Errorf("a minute after a rejection (-want +got):\n%s", diff)
	}
}

// TestViewPlaceholder : only what the manager has created counts as a placeholder.
func TestViewPlaceholder(t *testing.T) {
	place := Place{Namespace: "everynode-system", Owner: metav1.OwnerReference{UID: "u"}, Key: seal.Key{1}}
	pod := place.Placeholder(2)
	if h, is := place.ViewPlaceholder(pod); !is || h.Number != 2 || h.Bound {
		t.Errorf("the placeholder is %+v, %v", h, is)
	}
	bound := pod.DeepCopy()
	bound.Spec.NodeName = "node"
	if h, is := place.ViewPlaceholder(bound); !is || !h.Bound {
		t.Errorf("with a node, it is %+v, %v", h, is)
	}
	renamed, another := pod.DeepCopy(), Place{Namespace: "everynode-system", Key: seal.Key{2}}
	renamed.Name = "other"
	if _, is := place.ViewPlaceholder(renamed); is {
		t.Error("a pod with another name is a placeholder")
	}
	if _, is := another.ViewPlaceholder(pod); is {
		t.Error("a pod of another installation is a placeholder")
	}
	if _, is := place.ViewPlaceholder(place.Seat(CreateSeat{Group: "g"})); is {
		t.Error("a seat is a placeholder")
	}
}
