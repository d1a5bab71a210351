// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

type spec = v1alpha1.NodeDisruptionBudgetSpec

// onSundays is a window that is closed at noon, a Friday, and atNoon one that is open.
var (
	onSundays = []v1alpha1.BudgetWindow{{Schedule: "0 2 * * SUN", DurationSeconds: 3600}}
	atNoon    = []v1alpha1.BudgetWindow{{Schedule: "30 11 * * *", DurationSeconds: 3600}}
)

func TestFloors(t *testing.T) {
	budgets := func(all ...*v1alpha1.NodeDisruptionBudget) []*v1alpha1.NodeDisruptionBudget { return all }
	tests := map[string]struct {
		budgets []*v1alpha1.NodeDisruptionBudget
		change  func(*fixture)
		want    []string
	}{
		"no budget":                    {nil, nil, nil},
		"one limit":                    {budgets(newBudget("b", "1")), nil, []string{"n1 n2 n3 n4: 3"}},
		"a percentage":                 {budgets(newBudget("b", "50%")), nil, []string{"n1 n2 n3 n4: 2"}},
		"a percentage is rounded down": {budgets(newBudget("b", "70%")), nil, []string{"n1 n2 n3 n4: 2"}},
		"but at least one":             {budgets(newBudget("b", "10%")), nil, []string{"n1 n2 n3 n4: 3"}},
		"no percentage":                {budgets(newBudget("b", "0%")), nil, []string{"n1 n2 n3 n4: 4"}},
		"everything":                   {budgets(newBudget("b", "100%")), nil, []string{"n1 n2 n3 n4: 0"}},
		"more than there are":          {budgets(newBudget("b", "9")), nil, []string{"n1 n2 n3 n4: 0"}},
		"the smaller of two limits":    {budgets(newBudget("b", "3", "2")), nil, []string{"n1 n2 n3 n4: 2"}},
		"each zone":                    {budgets(newBudget("b", "1/zone")), nil, []string{"n1 n3: 1", "n2 n4: 1"}},
		"a percentage of each zone":    {budgets(newBudget("b", "100%/zone")), nil, []string{"n1 n3: 0", "n2 n4: 0"}},
		"nodes without the label are limited together": {
			budgets(newBudget("b", "1/zone")),
			func(f *fixture) { f.node("n3").Labels, f.node("n4").Labels = nil, nil },
			[]string{"n1: 0", "n2: 0", "n3 n4: 1"},
		},
		"each zone and overall, for the zone in which a node waits": {
			budgets(newBudget("b", "1/zone", "1")),
			func(f *fixture) { f.cordon("n2") },
			[]string{"n1 n3: 2", "n2 n4: 1"},
		},
		"for the zone of the node that has waited longest": {
			budgets(newBudget("b", "1/zone", "1")),
			func(f *fixture) { f.cordon("n1", "n2") },
			[]string{"n1 n3: 1", "n2 n4: 2"},
		},
		"regardless of its name": {
			budgets(newBudget("b", "1/zone", "1")),
			func(f *fixture) { f.cordon("n2", "n1") },
			[]string{"n1 n3: 2", "n2 n4: 1"},
		},
		"for a node for which a NodeJob waits": {
			budgets(newBudget("b", "1/zone", "1")),
			func(f *fixture) { f.Waits["n4"] = Wait{By: "NodeJob a/b", Since: noon.Add(-time.Minute)} },
			[]string{"n1 n3: 2", "n2 n4: 1"},
		},
		"for the zone of a node that is unavailable, although another one waits": {
			budgets(newBudget("b", "1/zone", "1")),
			func(f *fixture) { f.cordon("n2", "n1"); f.evict("n1") },
			[]string{"n2 n4: 2", "n3: 1"},
		},
		"nothing for nodes that may become Ready, if the limit is exceeded": {
			budgets(newBudget("b", "1/zone", "1")),
			func(f *fixture) { f.breakDown("n1", 0); f.breakDown("n2", 0) },
			[]string{"n1 n3: 2", "n2 n4: 2"},
		},
		"a node that is not Ready needs no other floor": {
			budgets(newBudget("b", "2")),
			func(f *fixture) { f.breakDown("n1", 0) },
			[]string{"n1 n2 n3 n4: 2"},
		},
		"a node that is not Ready and has a ready seat": {
			budgets(newBudget("b", "2")),
			func(f *fixture) { f.breakDown("n1", 0); f.seat("n1").Ready = true },
			[]string{"n1 n2 n3 n4: 3"},
		},
		"a pod of another owner": {
			budgets(newBudget("b", "1")),
			func(f *fixture) { f.Strangers = []Stranger{{"static", f.seat("n1").Group}} },
			[]string{"n1 n2 n3 n4: 4"},
		},
		"two budgets for the same nodes": {budgets(newBudget("a", "3"), newBudget("b", "2")), nil, []string{"n1 n2 n3 n4: 2"}},
		"two budgets for different nodes": {
			budgets(inPool("x", newBudget("a", "1")), inPool("y", newBudget("b", "2"))),
			nil,
			[]string{"n1 n3: 1", "n2 n4: 0"},
		},
		"a budget for some of the nodes of another one": {
			budgets(newBudget("a", "2"), inPool("x", newBudget("b", "1"))),
			func(f *fixture) { f.cordon("n1", "n3") },
			[]string{"n1 n3: 1", "n2 n4: 1"},
		},
		"a freeze of some nodes": {budgets(newBudget("a", "2"), inPool("x", newBudget("b", "0"))), nil, []string{"n1 n3: 2", "n2 n4: 0"}},
		"only a freeze":          {budgets(newBudget("b", "0")), nil, []string{"n1 n2 n3 n4: 4"}},
		"a closed window": {
			budgets(with(newBudget("b", "2"), func(s *spec) { s.Windows = onSundays })),
			nil,
			[]string{"n1 n2 n3 n4: 4"},
		},
		"an open window": {
			budgets(with(newBudget("b", "2"), func(s *spec) { s.Windows = atNoon })),
			nil,
			[]string{"n1 n2 n3 n4: 2"},
		},
		"only a window": {budgets(with(newBudget("b"), func(s *spec) { s.Windows = atNoon })), nil, []string{"n1 n2 n3 n4: 0"}},
		"an excepted date": {
			budgets(with(newBudget("b", "2"), func(s *spec) { s.ExceptDates = []string{"2026-11-27"} })),
			nil,
			[]string{"n1 n2 n3 n4: 4"},
		},
		"audit":   {budgets(with(newBudget("b", "2"), func(s *spec) { s.Enforcement = v1alpha1.BudgetReport })), nil, nil},
		"expired": {budgets(with(newBudget("b", "2"), func(s *spec) { s.ExpiresAt = new(metav1.NewTime(noon)) })), nil, nil},
		"not expired": {
			budgets(with(newBudget("b", "2"), func(s *spec) { s.ExpiresAt = new(metav1.NewTime(noon.Add(time.Second))) })), nil,
			[]string{"n1 n2 n3 n4: 2"},
		},
		"being deleted": {
			budgets(newBudget("b", "2")),
			func(f *fixture) { f.Budgets[0].DeletionTimestamp = new(metav1.NewTime(noon)) },
			nil,
		},
		"an invalid time zone allows nothing": {
			budgets(with(newBudget("b", "2"), func(s *spec) {
				s.TimeZone, s.Windows = "Mars", []v1alpha1.BudgetWindow{{Schedule: "0 0 * * *", DurationSeconds: 60}}
			})),
			nil,
			[]string{"n1 n2 n3 n4: 4"},
		},
		"a node that joins": {
			budgets(newBudget("b", "50%")),
			func(f *fixture) { f.addNode("n5", noon.Add(-9*time.Minute)); f.addNode("n6", noon) },
			[]string{"n1 n2 n3 n4: 2"},
		},
		"a node that has joined 10 minutes ago": {
			budgets(newBudget("b", "50%")),
			func(f *fixture) {
				f.addNode("n5", noon.Add(-10*time.Minute))
				f.addNode("n6", noon.Add(-10*time.Minute))
			},
			[]string{"n1 n2 n3 n4 n5 n6: 3"},
		},
		"a node that joins counts as unavailable, if joining nodes are included": {
			budgets(with(newBudget("b", "1"), func(s *spec) { s.JoiningNodes = v1alpha1.JoiningNodesIncluded })),
			func(f *fixture) { f.addNode("n5", noon) },
			[]string{"n1 n2 n3 n4: 4"},
		},
		"a node that does not run Linux": {
			budgets(newBudget("b", "2")),
			func(f *fixture) { f.node("n1").Labels[corev1.LabelOSStable] = "windows" },
			[]string{"n2 n3 n4: 1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, tt.budgets...)
			if tt.change != nil {
				tt.change(f)
				f.settle(t)
			}
			if diff := cmp.Diff(tt.want, f.floors()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAFreezeOfAllNodesMovesNoSeat(t *testing.T) {
	f := settled(t, 4, newBudget("b", "1/zone"))
	f.Budgets = append(f.Budgets, newBudget("freeze", "0"))
	slices.SortFunc(f.Budgets, func(a, b *v1alpha1.NodeDisruptionBudget) int { return strings.Compare(a.Name, b.Name) })
	want := []string{"set floor of n1 n3 to 2", "set floor of n2 n4 to 2"}
	if diff := cmp.Diff(want, f.texts(f.settle(t))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f.Budgets = f.Budgets[:1]
	want = []string{"set floor of n1 n3 to 1", "set floor of n2 n4 to 1"}
	if diff := cmp.Diff(want, f.texts(f.settle(t))); diff != "" {
		t.Errorf("after the freeze, -want +got:\n%s", diff)
	}
}

// TestAFreezeOfSomeNodesClosesBeforeItMoves : while the seats of the frozen nodes have the label of the other nodes, none can be evicted.
func TestAFreezeOfSomeNodesClosesBeforeItMoves(t *testing.T) {
	f := settled(t, 4, newBudget("b", "1"))
	f.Budgets = append(f.Budgets, inPool("x", newBudget("freeze", "0")))
	for _, want := range [][]string{
		{"create floor 2", "set floor of n1 n2 n3 n4 to 4"},
		{"move seat of n1", "move seat of n3"},
		{"set floor of n2 n4 to 1"},
		nil,
	} {
		f.plan(t, want)
	}
}

// TestARelabeledNodeClosesBeforeItMoves : the API server counts an eviction for the group that a seat has when it asks, and deletes the
// pod afterwards, whatever its group is then.
func TestARelabeledNodeClosesBeforeItMoves(t *testing.T) {
	f := settled(t, 4, newBudget("b", "1/zone"))
	f.Now = f.Now.Add(time.Hour)
	f.node("n4").Labels = map[string]string{"zone": "a", "pool": "x"}
	for _, want := range [][]string{
		{"set floor of n1 n3 to 2", "set floor of n2 n4 to 2"},
		{"move seat of n4"},
		{"set floor of n2 to 0"},
		nil,
	} {
		f.plan(t, want)
	}
}

// TestASeatWhoseEvictionWasGranted : the API server deletes the seat at any moment, also if it has another label then.
func TestASeatWhoseEvictionWasGranted(t *testing.T) {
	granted := func(t *testing.T, limits ...string) *fixture {
		f := settled(t, 4, newBudget("b", limits...))
		f.cordon("n1")
		f.settle(t)
		f.floor("n1").Allowed, f.floor("n1").Evicted = 0, []string{"seat-n1"}
		return f
	}
	t.Run("its node counts as unavailable", func(t *testing.T) {
		f := granted(t, "1/zone", "1")
		f.node("n1").Unschedulable, f.node("n1").Taints = false, nil // the drain has given up
		f.cordon("n2")
		if p := Next(&f.Input); len(p.Actions) > 0 {
			t.Errorf("the plan is %q", f.texts(p.Actions))
		}
		f.floor("n1").Evicted = nil
		if diff := cmp.Diff([]string{"set floor of n1 n3 to 2"}, f.texts(Next(&f.Input).Actions)); diff != "" {
			t.Errorf("when the eviction counts no more, -want +got:\n%s", diff)
		}
	})
	t.Run("it does not move", func(t *testing.T) {
		f := granted(t, "1")
		f.Budgets = append(f.Budgets, inPool("x", newBudget("freeze", "0")))
		f.settle(t)
		if f.seat("n1").Group != f.seat("n2").Group || f.seat("n3").Group == f.seat("n2").Group {
			t.Errorf("the seats are %+v", f.Seats)
		}
		f.floor("n1").Evicted = nil
		if diff := cmp.Diff([]string{"move seat of n1"}, f.texts(f.settle(t))[:1]); diff != "" {
			t.Errorf("afterwards, -want +got:\n%s", diff)
		}
	})
}

// TestZonesOpenOneAfterTheOther : a floor is lowered only when the raised floor of the other zone is observed.
func TestZonesOpenOneAfterTheOther(t *testing.T) {
	f := settled(t, 4, newBudget("b", "1/zone", "1"))
	f.cordon("n1")
	f.settle(t)
	f.node("n1").Unschedulable, f.node("n1").Taints = false, nil
	f.cordon("n2")
	for _, want := range [][]string{{"set floor of n1 n3 to 2"}, {"set floor of n2 n4 to 1"}, nil} {
		f.plan(t, want)
	}
}

// TestAZoneOpensAfterTheDeletedSeatsOfAnotherOneAreCounted : the floor of the zone of a deleted node grants one eviction less, but the API
// server still grants two until the disruption controller has observed that the seat was deleted.
func TestAZoneOpensAfterTheDeletedSeatsOfAnotherOneAreCounted(t *testing.T) {
	f := settled(t, 6, newBudget("b", "2/zone", "2"))
	if diff := cmp.Diff([]string{"n1 n3 n5: 3", "n2 n4 n6: 1"}, f.floors()); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	f.Nodes = slices.DeleteFunc(f.Nodes, func(n Node) bool { return n.Name == "n6" })
	p := Next(&f.Input)
	if diff := cmp.Diff([]string{"delete seat of n6"}, f.texts(p.Actions)); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	f.apply(p.Actions[0])
	f.cordon("n1")
	if p := Next(&f.Input); len(p.Actions) > 0 {
		t.Errorf("before the seat is counted: %q", f.texts(p.Actions))
	}
	f.count()
	if diff := cmp.Diff([]string{"set floor of n1 n3 n5 to 2"}, f.texts(f.settle(t))); diff != "" {
		t.Errorf("afterwards, -want +got:\n%s", diff)
	}
}

func TestFloorsAreCorrected(t *testing.T) {
	tests := map[string]struct {
		change func(*fixture)
		want   []string
	}{
		"nothing":                   {func(*fixture) {}, nil},
		"another minAvailable":      {func(f *fixture) { f.Floors[0].MinAvailable = 1 }, []string{"set floor of n1 n2 n3 n4 to 3"}},
		"another field":             {func(f *fixture) { f.Floors[0].Drifted = true }, []string{"set floor of n1 n2 n3 n4 to 3"}},
		"no owner":                  {func(f *fixture) { f.Floors[0].Owners = nil }, []string{"set floor of n1 n2 n3 n4 to 3"}},
		"another owner":             {func(f *fixture) { f.Floors[0].Owners[0] = "other" }, []string{"set floor of n1 n2 n3 n4 to 3"}},
		"deleted":                   {func(f *fixture) { f.Floors = nil }, []string{"create floor 3"}},
		"a floor without a group":   {func(f *fixture) { f.Floors = append(f.Floors, Floor{Group: "old"}) }, []string{"delete floor"}},
		"a seat with another label": {func(f *fixture) { f.seat("n1").Group = "old" }, []string{"move seat of n1"}},
		"a seat does not join a group whose floor may be deleted with its owner": {
			func(f *fixture) { f.seat("n1").Group = "old"; f.Floors[0].Owners[0] = "other" },
			[]string{"set floor of n2 n3 n4 to 3"},
		},
		"the floor of another label": {
			func(f *fixture) { f.seat("n1").Group = "old"; f.Floors = append(f.Floors, Floor{Group: "old"}) },
			[]string{"set floor of n1 to 1"},
		},
		"the closed floor of another label": {
			func(f *fixture) {
				f.seat("n1").Group = "old"
				f.Floors = append(f.Floors, Floor{Group: "old", MinAvailable: 1, Owners: f.Floors[0].Owners})
			},
			[]string{"move seat of n1"},
		},
		"no budget": {
			func(f *fixture) { f.Budgets = nil },
			[]string{"delete floor", "delete seat of n1", "delete seat of n2", "delete seat of n3", "delete seat of n4"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, newBudget("b", "1"))
			tt.change(f)
			p := Next(&f.Input)
			if diff := cmp.Diff(tt.want, f.texts(p.Actions)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestOwnersOfFloors : the garbage collector must not open a floor while a freeze exists.
func TestOwnersOfFloors(t *testing.T) {
	f := settled(t, 2, newBudget("b", "1"), newBudget("freeze", "0"))
	if diff := cmp.Diff([]types.UID{"uid-b", "uid-freeze"}, f.Floors[0].Owners); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWakeAt(t *testing.T) {
	soon := noon.Add
	tests := map[string]struct {
		budget *v1alpha1.NodeDisruptionBudget
		change func(*fixture)
		want   time.Time
	}{
		"nothing": {newBudget("b", "1"), func(*fixture) {}, time.Time{}},
		"expiry": {
			with(newBudget("b", "1"), func(s *spec) { s.ExpiresAt = new(metav1.NewTime(soon(time.Minute))) }), func(*fixture) {},
			soon(time.Minute),
		},
		"the end of a window": {
			with(newBudget("b", "1"), func(s *spec) { s.Windows = atNoon }),
			func(*fixture) {},
			soon(30 * time.Minute),
		},
		"the begin of a window": {
			with(newBudget("b", "1"), func(s *spec) { s.Windows = onSundays }),
			func(*fixture) {},
			soon(38 * time.Hour),
		},
		"a node that joins": {newBudget("b", "1"), func(f *fixture) { f.addNode("n5", soon(-time.Minute)) }, soon(9 * time.Minute)},
		"a node that settles": {newBudget("b", "1"), func(f *fixture) {
			f.evict("n1")
			f.node("n1").ReadyChanged = soon(-10 * time.Second)
		}, soon(20 * time.Second)},
		"a node that is not Ready": {newBudget("b", "1"), func(f *fixture) { f.breakDown("n1", 20*time.Second) }, soon(40 * time.Second)},
		"a refusal": {newBudget("b", "1"), func(f *fixture) {
			f.Refused = &hold.Why{Until: soon(5 * time.Second)}
		}, soon(5 * time.Second)},
		"the pace": {with(newBudget("b", "1"), func(s *spec) { s.PaceSeconds = new(int32(300)) }), func(f *fixture) {
			f.seat("n1").Returned, f.seat("n1").Created = true, soon(-time.Minute)
		}, soon(4 * time.Minute)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, tt.budget)
			tt.change(f)
			if got := Next(&f.Input).WakeAt; !got.Equal(tt.want) {
				t.Errorf("wakes at %v, want %v", got, tt.want)
			}
		})
	}
}
