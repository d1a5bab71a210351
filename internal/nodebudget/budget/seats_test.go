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
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

func TestSeats(t *testing.T) {
	tests := map[string]struct {
		change func(*fixture)
		want   []string
	}{
		"a node without a seat":              {func(f *fixture) { f.evict("n1") }, []string{"create seat of n1, returned"}},
		"an earlier seat that terminates":    {func(f *fixture) { f.seat("n1").Terminating = true }, nil},
		"a node that is cordoned":            {func(f *fixture) { f.evict("n1"); f.cordon("n1") }, nil},
		"a node that is being deleted":       {func(f *fixture) { f.evict("n1"); f.node("n1").Deleting = true }, nil},
		"a node that an autoscaler drains":   {func(f *fixture) { f.evict("n1"); f.taint("n1", "karpenter.sh/disrupted") }, nil},
		"a node that another tool maintains": {func(f *fixture) { f.evict("n1"); f.node("n1").Announced = "MaintenancePlanned" }, nil},
		"a node with another taint": {
			func(f *fixture) { f.evict("n1"); f.taint("n1", "team") },
			[]string{"create seat of n1, returned, tolerates team:NoSchedule"},
		},
		"a node that is not Ready": {func(f *fixture) { f.evict("n1"); f.breakDown("n1", time.Hour) }, nil},
		"a node that has become Ready": {func(f *fixture) {
			f.evict("n1")
			f.node("n1").ReadyChanged = noon.Add(-29 * time.Second)
		}, nil},
		"a node that is Ready for long enough": {func(f *fixture) {
			f.evict("n1")
			f.node("n1").ReadyChanged = noon.Add(-30 * time.Second)
		}, []string{"create seat of n1, returned"}},
		"a node that a NodeJob disrupts": {func(f *fixture) { f.evict("n1"); f.Holds["n1"] = "NodeJob a/b" }, nil},
		"a node for which a NodeJob waits": {
			func(f *fixture) { f.evict("n1"); f.Waits["n1"] = Wait{By: "NodeJob a/b", Since: noon} },
			[]string{"create seat of n1, returned"},
		},
		"while not all NodeJobs have reported": {func(f *fixture) { f.evict("n1"); f.HoldsKnown = false }, nil},
		"while seats are refused": {
			func(f *fixture) { f.evict("n1"); f.Refused = &hold.Why{Until: noon.Add(time.Second)} },
			nil,
		},
		"when seats can be tried again": {
			func(f *fixture) { f.evict("n1"); f.Refused = &hold.Why{Until: noon} },
			[]string{"create seat of n1, returned"},
		},
		"while the floor does not count it": {func(f *fixture) {
			f.evict("n1")
			f.Floors[0].MinAvailable = 2
		}, []string{"set floor of n2 n3 n4 to 3"}},
		"a node that joins": {func(f *fixture) { f.addNode("n5", noon.Add(-time.Minute)) }, nil},
		"the first seat of a node": {func(f *fixture) {
			f.addNode("n5", noon.Add(-10*time.Minute))
			f.Floors[0].MinAvailable = 4
		}, []string{"create seat of n5"}},
		"a late first seat may be another one": {func(f *fixture) {
			f.addNode("n5", noon.Add(-11*time.Minute))
			f.Floors[0].MinAvailable = 4
		}, []string{"create seat of n5, returned"}},
		"the first seats of all nodes": {func(f *fixture) {
			f.evict("n1", "n2", "n3", "n4")
			f.Floors[0].Created = noon.Add(-59 * time.Second)
		}, []string{"create seat of n1", "create seat of n2", "create seat of n3", "create seat of n4"}},
		"a new seat": {func(f *fixture) { f.seat("n1").Group = PendingGroup }, []string{"move seat of n1"}},
		"a new seat that is not ready": {func(f *fixture) {
			f.seat("n1").Group, f.seat("n1").Ready = PendingGroup, false
		}, nil},
		"a new seat on a node that is cordoned since": {
			func(f *fixture) { f.seat("n1").Group = PendingGroup; f.cordon("n1") },
			[]string{"delete seat of n1"},
		},
		"a new seat on a node that a NodeJob disrupts": {
			func(f *fixture) { f.seat("n1").Group = PendingGroup; f.Holds["n1"] = "a" },
			[]string{"delete seat of n1"},
		},
		"a new seat on a node that is not Ready": {
			func(f *fixture) { f.seat("n1").Group = PendingGroup; f.breakDown("n1", 0) },
			[]string{"delete seat of n1"},
		},
		"a new seat while not all NodeJobs have reported": {
			func(f *fixture) { f.seat("n1").Group = PendingGroup; f.HoldsKnown = false },
			nil,
		},
		"a seat that has ended": {
			func(f *fixture) { f.seat("n1").Ended, f.seat("n1").Ready = true, false },
			[]string{"delete seat of n1"},
		},
		"a seat that is not ready":             {func(f *fixture) { f.seat("n1").Ready = false }, nil},
		"a seat of a cordoned node":            {func(f *fixture) { f.cordon("n1") }, nil},
		"the seat of a node that is not Ready": {func(f *fixture) { f.breakDown("n1", 59*time.Second) }, nil},
		"the seat of a node that is not Ready for a minute": {
			func(f *fixture) { f.breakDown("n1", time.Minute) },
			[]string{"delete seat of n1"},
		},
		"the seat of a node that is unreachable for a minute": {
			func(f *fixture) { f.lose("n1", time.Minute) },
			[]string{"delete seat of n1 at once"},
		},
		"the seat of a node that is unreachable and has been evicted": {
			func(f *fixture) { f.lose("n1", time.Second); f.seat("n1").Terminating = true },
			[]string{"delete seat of n1 at once"},
		},
		"the seat of a node that is unreachable and has been ended at once": {
			func(f *fixture) {
				f.lose("n1", time.Hour)
				f.seat("n1").Terminating, f.seat("n1").AtOnce = true, true
			}, nil,
		},
		"the seat of an unreachable node under a freeze": {
			func(f *fixture) { f.lose("n1", time.Hour); f.Budgets = append(f.Budgets, newBudget("c", "0")) },
			[]string{"set floor of n1 n2 n3 n4 to 4"},
		},
		"an evicted seat of an unreachable node that no budget selects": {
			func(f *fixture) {
				f.lose("n1", time.Second)
				f.seat("n1").Terminating = true
				f.node("n1").Created = noon
			},
			[]string{"delete seat of n1 at once", "set floor of n1 n2 n3 n4 to 2"},
		},
		"an evicted seat of a node that was cordoned before it became unreachable, under a freeze": {
			func(f *fixture) {
				f.cordon("n1")
				f.lose("n1", time.Second)
				f.seat("n1").Terminating = true
				f.Budgets = append(f.Budgets, newBudget("c", "0"))
			},
			[]string{"delete seat of n1 at once", "set floor of n1 n2 n3 n4 to 4"},
		},
		"an evicted seat of an unreachable node whose last budget was deleted": {
			func(f *fixture) { f.lose("n1", time.Second); f.seat("n1").Terminating = true; f.Budgets = nil },
			[]string{"delete floor", "delete seat of n1 at once", "delete seat of n2", "delete seat of n3", "delete seat of n4"},
		},
		"an evicted seat of a node that is not Ready and reports": {
			func(f *fixture) { f.breakDown("n1", time.Hour); f.seat("n1").Terminating = true }, nil,
		},
		"an evicted seat of a node that is Ready and has the taint of an unreachable one": {
			func(f *fixture) { f.lose("n1", 0); f.node("n1").Ready = true; f.seat("n1").Terminating = true }, nil,
		},
		"the seat of a node that no budget selects": {
			func(f *fixture) { inPool("y", f.Budgets[0]); f.Floors[0].MinAvailable = 3 },
			[]string{"delete seat of n1", "delete seat of n3"},
		},
		"the seat of a node that does not exist": {func(f *fixture) { f.Nodes = f.Nodes[1:] }, []string{"delete seat of n1"}},
		"the seat of an earlier node of the same name": {
			func(f *fixture) { f.seat("n1").Node = "other" },
			[]string{"delete seat of other", "set floor of n2 n3 n4 other to 4"},
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

func (f *fixture) taint(node, key string) {
	f.node(node).Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
}

// TestNothingIsReleasedWhileABudgetIsClosed : neither a freeze nor a closed window lets broken nodes go.
func TestNothingIsReleasedWhileABudgetIsClosed(t *testing.T) {
	for name, b := range map[string]*v1alpha1.NodeDisruptionBudget{
		"a freeze":        newBudget("c", "0"),
		"a closed window": with(newBudget("c"), func(s *spec) { s.Windows = onSundays }),
	} {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, newBudget("b", "1"), b)
			f.breakDown("n1", time.Hour)
			if p := Next(&f.Input); len(p.Actions) > 0 {
				t.Errorf("plans %v", f.texts(p.Actions))
			}
			f.Budgets = f.Budgets[:1]
			f.settle(t)
			if f.seat("n1") != nil {
				t.Error("the seat stays when the budget is open")
			}
		})
	}
}

// TestPace : the floors close before the node gets its seat, and open again when the time has passed.
func TestPace(t *testing.T) {
	f := settled(t, 4, with(newBudget("b", "1/zone"), func(s *spec) { s.PaceSeconds = new(int32(300)) }))
	f.evict("n1")
	closes := []string{"set floor of n2 n4 to 2", "set floor of n3 to 2"}
	if diff := cmp.Diff(closes, f.texts(Next(&f.Input).Actions)); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	for _, raised := range []int{0, 1} { // one of the two is written, and the seat waits for the other
		g := *f
		g.Floors = []Floor{f.Floors[0], f.Floors[1]}
		g.Floors[raised].MinAvailable = 2
		for _, a := range Next(&g.Input).Actions {
			if _, creates := a.(CreateSeat); creates {
				t.Errorf("the seat is created before all floors are closed")
			}
		}
	}
	f.settle(t)
	if diff := cmp.Diff([]string{"n1 n3: 2", "n2 n4: 2"}, f.floors()); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	for after, want := range map[time.Duration][]string{
		299 * time.Second: {"n1 n3: 2", "n2 n4: 2"},
		300 * time.Second: {"n1 n3: 1", "n2 n4: 1"},
	} {
		f.Now = noon.Add(after)
		f.settle(t)
		if diff := cmp.Diff(want, f.floors()); diff != "" {
			t.Errorf("after %v, -want +got:\n%s", after, diff)
		}
	}
}

// TestAPaceBeginsWhenSeatsHaveLeft : a seat in the group of an earlier plan could be evicted there during the pace.
func TestAPaceBeginsWhenSeatsHaveLeft(t *testing.T) {
	creates := func(f *fixture) bool {
		return slices.ContainsFunc(Next(&f.Input).Actions, func(a Action) bool { _, is := a.(CreateSeat); return is })
	}
	f := settled(t, 4, with(newBudget("b", "1"), func(s *spec) { s.PaceSeconds = new(int32(300)) }))
	f.evict("n1")
	for !creates(f) {
		for _, a := range Next(&f.Input).Actions {
			f.apply(a)
		}
		f.count()
	}
	f.seat("n3").Group = "another"
	if creates(f) {
		t.Error("the seat of n1 is created while that of n3 is in another group")
	}
}

func TestStances(t *testing.T) {
	tests := map[string]struct {
		budget *v1alpha1.NodeDisruptionBudget
		change func(*fixture)
		want   hold.Stance
	}{
		"a node that may be taken away": {
			newBudget("b", "1"), func(*fixture) {}, hold.Stance{Seat: "seat-n1", SeatUID: "seat-n1", Allowed: true},
		},
		"the limit is reached": {
			newBudget("b", "1"), func(f *fixture) { f.evict("n2"); f.cordon("n2") },
			hold.Stance{Seat: "seat-n1", SeatUID: "seat-n1", Message: "1 node is not available (n2), and NodeDisruptionBudget b allows 1"},
		},
		"one NodeJob holds all nodes that use up the limit": {
			newBudget("b", "2"), func(f *fixture) {
				f.evict("n2", "n3")
				f.cordon("n2", "n3")
				f.Holds["n2"], f.Holds["n3"] = "NodeJob a/b", "NodeJob a/b"
			},
			hold.Stance{
				Seat: "seat-n1", SeatUID: "seat-n1", HeldBy: "NodeJob a/b",
				Message: "2 nodes are not available (n2, n3), and NodeDisruptionBudget b allows 2",
			},
		},
		"a NodeJob holds some of the nodes that use up the limit": {
			newBudget("b", "2"), func(f *fixture) { f.evict("n2", "n3"); f.cordon("n2", "n3"); f.Holds["n2"] = "NodeJob a/b" },
			hold.Stance{
				Seat: "seat-n1", SeatUID: "seat-n1",
				Message: "2 nodes are not available (n2, n3), and NodeDisruptionBudget b allows 2",
			},
		},
		"a NodeJob holds a node, and the limit is not reached": {
			newBudget("b", "2"),
			func(f *fixture) {
				f.evict("n2")
				f.cordon("n2")
				f.Holds["n2"] = "NodeJob a/b"
				f.Floors[0].Processed = false
			},
			hold.Stance{
				Seat:    "seat-n1",
				SeatUID: "seat-n1",
				Message: "the PodDisruptionBudget of its NodeDisruptionBudgets is being opened",
			},
		},
		"the limit of the zone is reached": {
			newBudget("b", "1/zone"),
			func(f *fixture) { f.evict("n3"); f.cordon("n3") },
			hold.Stance{
				Seat:    "seat-n1",
				SeatUID: "seat-n1",
				Message: "1 node is not available (n3), and NodeDisruptionBudget b allows 1 with zone=a",
			},
		},
		"another zone is first": {
			newBudget("b", "1/zone", "1"), func(f *fixture) { f.cordon("n2", "n1") },
			hold.Stance{Seat: "seat-n1", SeatUID: "seat-n1", Message: "NodeDisruptionBudget b allows 1, and other nodes are first"},
		},
		"a node that another NodeJob waits for is first": {
			newBudget("b", "1"), func(f *fixture) { f.Waits["n3"] = Wait{By: "NodeJob a/b", Since: noon} },
			hold.Stance{Seat: "seat-n1", SeatUID: "seat-n1", Message: "NodeDisruptionBudget b allows 1, and other nodes are first"},
		},
		"a drain that does not go on holds nothing back": {
			newBudget("b", "1"), func(f *fixture) { f.cordon("n2") }, hold.Stance{Seat: "seat-n1", SeatUID: "seat-n1", Allowed: true},
		},
		"a node stays cordoned after a failure, and has its seat": {
			newBudget("b", "1"), func(f *fixture) { f.Holds["n1"] = "NodeJob a/b"; f.cordon("n1") },
			hold.Stance{Seat: "seat-n1", SeatUID: "seat-n1", Allowed: true},
		},
		"a NodeJob has just claimed another node": {
			newBudget("b", "1"),
			func(f *fixture) { f.Holds["n3"] = "NodeJob a/b" },
			hold.Stance{
				Seat:    "seat-n1",
				SeatUID: "seat-n1",
				Message: "the PodDisruptionBudget of its NodeDisruptionBudgets is being opened",
			},
		},
		"frozen": {
			with(newBudget("b", "0"), func(s *spec) { s.Description = "INC-42" }),
			func(*fixture) {},
			hold.Stance{
				Seat:    "seat-n1",
				SeatUID: "seat-n1",
				Message: "NodeDisruptionBudget b allows no disruption (maxUnavailable 0), and has no end: INC-42",
			},
		},
		"another PodDisruptionBudget selects the seats": {
			newBudget("b", "1"),
			func(f *fixture) { f.Foreign = []kube.ForeignBudget{{Name: "theirs", Selector: labels.Everything()}} },
			hold.Stance{
				Seat:    "seat-n1",
				SeatUID: "seat-n1",
				Message: "PodDisruptionBudget theirs in the namespace of the manager also selects seats, and Kubernetes evicts no pod that has two",
			},
		},
		"the disruption controller has not observed the floor": {
			newBudget("b", "1"),
			func(f *fixture) { f.Floors[0].Processed = false },
			hold.Stance{
				Seat:    "seat-n1",
				SeatUID: "seat-n1",
				Message: "the PodDisruptionBudget of its NodeDisruptionBudgets is being opened",
			},
		},
		"the seat has another label": {
			newBudget("b", "1"), func(f *fixture) { f.seat("n1").Group = "old" },
			hold.Stance{Seat: "seat-n1", SeatUID: "seat-n1", Message: "1 node is not available"},
		},
		"a cordoned node without a seat": {
			newBudget("b", "1"),
			func(f *fixture) { f.evict("n1"); f.cordon("n1") },
			hold.Stance{Allowed: true, Drained: true},
		},
		"a cordoned node without a seat that has not been Ready for a moment": {
			newBudget("b", "1"),
			func(f *fixture) { f.evict("n1"); f.cordon("n1"); f.breakDown("n1", 59*time.Second) },
			hold.Stance{Allowed: true, Drained: true},
		},
		"a cordoned node without a seat that is not Ready": {
			newBudget("b", "1"),
			func(f *fixture) { f.evict("n1"); f.cordon("n1"); f.breakDown("n1", time.Minute) },
			hold.Stance{Allowed: true},
		},
		"a node that is not Ready and has no seat": {
			newBudget("b", "1"),
			func(f *fixture) { f.evict("n1"); f.breakDown("n1", 0) },
			hold.Stance{Allowed: true},
		},
		"a node that a NodeJob disrupts": {
			newBudget("b", "1"),
			func(f *fixture) { f.evict("n1"); f.Holds["n1"] = "NodeJob a/b" },
			hold.Stance{Allowed: true},
		},
		"an available node without a seat waits for its seat": {newBudget("b", "1"), func(f *fixture) { f.evict("n1") }, hold.Stance{
			Message: "the node is available, and first gets the seat with which its NodeDisruptionBudgets count it",
		}},
		"a node that joins is not limited": {newBudget("b", "1"), func(f *fixture) { f.node("n1").Created = noon }, hold.Stance{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, tt.budget)
			tt.change(f)
			if name == "another zone is first" {
				f.settle(t)
			}
			got := Next(&f.Input).Stances["n1"]
			if name == "the seat has another label" {
				got.Message = tt.want.Message
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// windowed returns a budget with windows of some hours.
func windowed(name, schedule string, hours int32) *v1alpha1.NodeDisruptionBudget {
	return with(newBudget(name), func(s *spec) {
		s.Windows = []v1alpha1.BudgetWindow{{Schedule: schedule, DurationSeconds: hours * 3600}}
	})
}

func TestEffects(t *testing.T) {
	tests := map[string]struct {
		budgets []*v1alpha1.NodeDisruptionBudget
		change  func(*Node)
		limited bool
		closed  string // the name of the budget
		tasks   string
		by      string
		longest string // with the name of the budget
		ignores bool
		outside string
	}{
		"no budget":    {},
		"a limit":      {budgets: []*v1alpha1.NodeDisruptionBudget{newBudget("b", "1")}, limited: true},
		"another pool": {budgets: []*v1alpha1.NodeDisruptionBudget{inPool("y", newBudget("b", "0"))}},
		"a freeze":     {budgets: []*v1alpha1.NodeDisruptionBudget{newBudget("a", "1"), newBudget("b", "0")}, limited: true, closed: "b"},
		"a freeze of tasks": {
			budgets: []*v1alpha1.NodeDisruptionBudget{
				newBudget("a", "0"), with(newBudget("b", "0"), func(s *spec) { s.AppliesTo = v1alpha1.AppliesToAllTasks }),
			},
			limited: true, closed: "a", tasks: "b",
		},
		"an open window": {
			budgets: []*v1alpha1.NodeDisruptionBudget{with(newBudget("b"), func(s *spec) { s.Windows = atNoon })},
			limited: true, by: "b", longest: "b 1h0m0s",
		},
		"the shortest of the longest windows counts, whichever closes first": {
			budgets: []*v1alpha1.NodeDisruptionBudget{windowed("a", "0 11 * * *", 3), windowed("b", "0 12 * * *", 8)},
			limited: true, by: "a", longest: "a 3h0m0s",
		},
		"the shortest of the longest windows counts, although the other one closes first": {
			budgets: []*v1alpha1.NodeDisruptionBudget{windowed("a", "0 5 * * *", 8), windowed("b", "0 12 * * *", 2)},
			limited: true, by: "a", longest: "b 2h0m0s",
		},
		"the longest window counts before one opens": {
			budgets: []*v1alpha1.NodeDisruptionBudget{windowed("a", "0 13 * * *", 8), windowed("b", "0 14 * * *", 2)},
			limited: true, closed: "a", longest: "b 2h0m0s",
		},
		"a NodeJob ignores windows": {
			ignores: true,
			budgets: []*v1alpha1.NodeDisruptionBudget{
				with(newBudget("a"), func(s *spec) { s.Windows = atNoon }),
				windowed("b", "0 13 * * *", 8),
			},
			limited: true,
			outside: "b",
		},
		"a NodeJob ignores windows, but no freeze": {
			ignores: true,
			budgets: []*v1alpha1.NodeDisruptionBudget{
				windowed("a", "0 13 * * *", 8),
				newBudget("b", "0"),
			},
			limited: true,
			closed:  "b",
			outside: "a",
		},
		"a NodeJob ignores windows, but no excepted date": {
			ignores: true, limited: true, closed: "a",
			budgets: []*v1alpha1.NodeDisruptionBudget{with(windowed("a", "0 13 * * *", 8), func(s *spec) {
				s.ExceptDates = []string{noon.Format(time.DateOnly)}
			})},
		},
		"a NodeJob ignores windows of tasks too": {
			ignores: true, limited: true, outside: "a",
			budgets: budgets(
				with(windowed("a", "0 13 * * *", 8), func(s *spec) { s.AppliesTo = v1alpha1.AppliesToAllTasks }),
				windowed("b", "0 14 * * SUN", 2),
			),
		},
		"a NodeJob ignores windows, but no requirement": {
			ignores: true, limited: true, closed: "b", outside: "a",
			budgets: budgets(windowed("a", "0 13 * * *", 8), with(newBudget("b"), func(s *spec) {
				s.Requirements = []v1alpha1.BudgetRequirement{{Name: "storage"}}
			})),
		},
		"audit": {
			budgets: []*v1alpha1.NodeDisruptionBudget{with(newBudget("b", "0"), func(s *spec) { s.Enforcement = v1alpha1.BudgetReport })},
		},
		"expired": {
			budgets: []*v1alpha1.NodeDisruptionBudget{with(newBudget("b", "0"), func(s *spec) { s.ExpiresAt = new(metav1.NewTime(noon)) })},
		},
		"a node that joins": {
			budgets: []*v1alpha1.NodeDisruptionBudget{newBudget("b", "0")},
			change:  func(n *Node) { n.Created = noon },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newFixture(1).node("n1")
			if tt.change != nil {
				tt.change(node)
			}
			got := EffectsOf(tt.budgets, nil, 0, noon).On(node, tt.ignores)
			nameOf := func(c *hold.Why) string {
				if c == nil {
					return ""
				}
				return c.By
			}
			longest := ""
			if got.Longest > 0 {
				longest = got.LongestOf + " " + got.Longest.String()
			}
			if got.Limited != tt.limited || nameOf(got.Closed) != tt.closed || nameOf(got.TasksClosed) != tt.tasks ||
				got.ClosesBy != tt.by || got.Outside != tt.outside || longest != tt.longest {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestANodeJobIgnoresWindows : a NodeJob ignores windows on n2 of three nodes. Nothing else opens, and no other seat moves.
func TestANodeJobIgnoresWindows(t *testing.T) {
	closed := func(limit string) *v1alpha1.NodeDisruptionBudget {
		return with(newBudget("b", limit), func(s *spec) {
			s.Windows = []v1alpha1.BudgetWindow{{Schedule: "0 2 * * SUN", DurationSeconds: 3600}}
		})
	}
	ignoring := Wait{By: "NodeJob a/b", Since: noon, IgnoresWindows: true}
	for name, tt := range map[string]struct {
		budgets []*v1alpha1.NodeDisruptionBudget
		wait    Wait
		away    []string
		floors  []string
		allowed bool
	}{
		"a NodeJob that does not": {budgets: budgets(closed("1")), wait: Wait{By: "NodeJob a/b", Since: noon}, floors: []string{"n1 n2 n3: 3"}},
		"one that does":           {budgets: budgets(closed("1")), wait: ignoring, floors: []string{"n1 n3: 2", "n2: 0"}, allowed: true},
		"one that does, and windows of two budgets": {
			budgets: budgets(closed("1"), with(newBudget("c", "2"), func(s *spec) {
				s.Windows = []v1alpha1.BudgetWindow{{Schedule: "0 13 * * *", DurationSeconds: 3600}}
			})),
			wait: ignoring, floors: []string{"n1 n3: 2", "n2: 0"}, allowed: true,
		},
		"an excepted date holds": {
			budgets: budgets(with(closed("1"), func(s *spec) { s.ExceptDates = []string{noon.Format(time.DateOnly)} })),
			wait:    ignoring, floors: []string{"n1 n2 n3: 3"},
		},
		"the limit holds": {budgets: budgets(closed("1")), wait: ignoring, away: []string{"n1"}, floors: []string{"n2: 1", "n3: 2"}},
		"a freeze holds":  {budgets: budgets(closed("1"), newBudget("freeze", "0")), wait: ignoring, floors: []string{"n1 n2 n3: 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 3, tt.budgets...)
			for _, node := range tt.away {
				f.breakDown(node, time.Minute)
				f.evict(node)
			}
			f.Waits["n2"] = tt.wait
			for _, text := range f.texts(f.settle(t)) {
				if strings.HasPrefix(text, "move seat") && text != "move seat of n2" {
					t.Errorf("%s, and only n2 ignores windows", text)
				}
			}
			if diff := cmp.Diff(tt.floors, f.floors()); diff != "" {
				t.Errorf("floors: -want +got:\n%s", diff)
			}
			for node, stance := range Next(&f.Input).Stances {
				if want := tt.allowed && node == "n2"; stance.Seat != "" && stance.Allowed != want {
					t.Errorf("%s: %+v", node, stance)
				}
			}
			delete(f.Waits, "n2")
			f.settle(t)
			if len(f.Floors) != 1 || f.Floors[0].MinAvailable != 3 {
				t.Errorf("afterwards: %v", f.floors())
			}
		})
	}
}

func budgets(all ...*v1alpha1.NodeDisruptionBudget) []*v1alpha1.NodeDisruptionBudget { return all }

// TestASeatJoinsAGroup tests whether a seat may join a group beside what the limits, which other groups share, allow.
func TestASeatJoinsAGroup(t *testing.T) {
	for name, tt := range map[string]struct {
		own, other group // the observed groups
		notReady   bool
		want       bool
	}{
		"nothing is away":                                                 {want: true},
		"the limit has room":                                              {own: group{opened: 1}, want: true},
		"another group uses the limit":                                    {own: group{opened: 1}, other: group{granted: 1}, want: false},
		"another group still grants it":                                   {own: group{opened: 1}, other: group{reach: 1}, want: false},
		"a member of another group is down":                               {own: group{opened: 1}, other: group{down: 1}, want: false},
		"the floor has nothing left for the seat":                         {own: group{opened: 1, down: 2}, other: group{granted: 1}, want: true},
		"the floor allows as many as are down":                            {own: group{opened: 1, down: 1}, other: group{granted: 1}, want: true},
		"the floor allows as many as are down, and the seat is not ready": {own: group{opened: 1, down: 1}, other: group{granted: 1}, notReady: true, want: false},
		"the member that is down is that of the seat":                     {own: group{opened: 1, down: 1, joining: 1}, other: group{granted: 1}, want: false},
	} {
		own, other := tt.own, tt.other
		own.limits = []*limit{{most: 1, groups: []*group{&own, &other}}}
		if got := own.canGain(&Seat{Ready: !tt.notReady}); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		// A new seat is moved only if its group can gain it.
		f := newFixture(4, newBudget("b", "2"))
		m := &member{group: &own, seat: &Seat{Group: "another", Ready: !tt.notReady}}
		if got := newPlanner(&f.Input).mayMove(m); got != tt.want {
			t.Errorf("%s: the seat may move: %v, want %v", name, got, tt.want)
		}
	}
}

// TestANodeThatWasJustCreatedHasNotSettled : a kubelet can report a time of Ready from before the creation of its Node.
func TestANodeThatWasJustCreatedHasNotSettled(t *testing.T) {
	included := func(s *spec) { s.JoiningNodes = v1alpha1.JoiningNodesIncluded }
	for age, want := range map[time.Duration]bool{SettleFor / 2: false, SettleFor: true} {
		f := settled(t, 1, with(newBudget("b", "1"), included))
		f.addNode("n2", noon.Add(-age))
		f.node("n2").ReadyChanged = noon.Add(-time.Hour)
		f.settle(t)
		if got := f.seat("n2") != nil; got != want {
			t.Errorf("%v after its creation, it has a seat: %v, want %v", age, got, want)
		}
	}
}

// TestAClosureEndsWithItsBudget : a closed window ends for a NodeJob when the budget expires.
func TestAClosureEndsWithItsBudget(t *testing.T) {
	for expires, want := range map[time.Duration]time.Duration{10 * time.Minute: 10 * time.Minute, 3 * time.Hour: time.Hour} {
		b := with(windowed("b", "0 13 * * *", 8), func(s *spec) { s.ExpiresAt = new(metav1.NewTime(noon.Add(expires))) })
		c := EffectsOf([]*v1alpha1.NodeDisruptionBudget{b}, nil, 0, noon).On(newFixture(1).node("n1"), false).Closed
		if c == nil || !c.Until.Equal(noon.Add(want)) {
			t.Errorf("with an expiry in %v, it is closed until %+v", expires, c)
		}
	}
}
