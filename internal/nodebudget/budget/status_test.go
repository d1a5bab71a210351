// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

// TestStatusSaysWhy : exactly one of the three conditions is True, with the reason why disruptions may or may not begin.
func TestStatusSaysWhy(t *testing.T) {
	tests := map[string]struct {
		budget  *v1alpha1.NodeDisruptionBudget
		change  func(*fixture)
		kind    string
		reason  string
		message string // a part
	}{
		"open": {
			newBudget("b", "1"), nil, v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen,
			"0 of 4 nodes not available, and 1 disruption may begin",
		},
		"open in a window": {
			with(newBudget("b", "1"), func(s *spec) { s.Windows = atNoon }), nil, v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen,
			"until the window closes at 2026-11-27T12:30:00Z",
		},
		"the limit is reached in a window": {
			with(newBudget("b", "1"), func(s *spec) { s.Windows = atNoon }), func(f *fixture) { f.evict("n1"); f.cordon("n1") },
			v1alpha1.ConditionReady, v1alpha1.ReasonMaxUnavailableReached,
			"and 0 disruptions may begin; the window closes at 2026-11-27T12:30:00Z",
		},
		"nodes that join": {
			newBudget("b", "1"),
			func(f *fixture) { f.addNode("n5", noon) },
			v1alpha1.ConditionReady,
			v1alpha1.ReasonBudgetOpen,
			"1 node is exempt until 2026-11-27T12:10:00Z, because less than 10 minutes have passed since it was created: set joiningNodes: Included to limit it now",
		},
		"nodes that join, and a closed window": {
			with(newBudget("b", "1"), func(s *spec) { s.Windows = onSundays }),
			func(f *fixture) { f.addNode("n5", noon.Add(-time.Minute)); f.addNode("n6", noon) },
			v1alpha1.ConditionReady,
			v1alpha1.ReasonWindowClosed,
			"2026-11-29T02:00:00Z; 2 nodes are exempt until 2026-11-27T12:10:00Z, because less than 10 minutes have passed since they were created: " +
				"set joiningNodes: Included to limit them now",
		},
		"nodes that join, and a freeze without an end": {
			newBudget("b", "0"), func(f *fixture) { f.addNode("n5", noon) }, v1alpha1.ConditionReady, v1alpha1.ReasonFrozenWithoutEnd,
			"set joiningNodes: Included to limit it now. Set spec.expiresAt, or end it: kubectl everynode thaw b",
		},
		"all nodes join": {
			newBudget("b", "3"), (*fixture).renew, v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen,
			"0 of 4 nodes not available, and 4 disruptions may begin; 4 nodes are exempt until 2026-11-27T12:10:00Z",
		},
		"all nodes join, in zones and a window without another limit": {
			with(newBudget("b", "1/zone"), func(s *spec) { s.Windows = atNoon }), (*fixture).renew,
			v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen,
			"and 4 disruptions may begin until the window closes at 2026-11-27T12:30:00Z; 4 nodes are exempt until 2026-11-27T12:10:00Z",
		},
		"all nodes join, and a closed window": {
			with(newBudget("b"), func(s *spec) { s.Windows = onSundays }), (*fixture).renew,
			v1alpha1.ConditionReady, v1alpha1.ReasonWindowClosed, "; 4 nodes are exempt until 2026-11-27T12:10:00Z",
		},
		"no node can have a seat": {
			newBudget("b", "50%"), func(f *fixture) {
				for i := range f.Nodes {
					f.Nodes[i].Labels[corev1.LabelOSStable] = "windows"
				}
			},
			v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen,
			"and 4 disruptions may begin; 4 nodes are not held, because they do not run Linux",
		},
		"the limit is reached": {
			newBudget("b", "1"), func(f *fixture) { f.evict("n1"); f.cordon("n1") },
			v1alpha1.ConditionReady, v1alpha1.ReasonMaxUnavailableReached, "1 of 4 nodes not available, and 0 disruptions may begin",
		},
		"frozen": {
			with(
				newBudget("b", "0"),
				func(s *spec) { s.Description, s.ExpiresAt = "INC-42", &metav1.Time{Time: noon.Add(time.Hour)} },
			),
			nil,
			v1alpha1.ConditionReady,
			v1alpha1.ReasonFrozen,
			"allows no disruption (maxUnavailable 0): INC-42",
		},
		"frozen, and the disruption controller has not observed it": {
			with(newBudget("b", "0"), func(s *spec) { s.ExpiresAt = &metav1.Time{Time: noon.Add(time.Hour)} }),
			func(f *fixture) { f.Floors[0].Processed = false }, v1alpha1.ConditionReconciling, v1alpha1.ReasonSeatsNotReady,
			"not yet held by their PodDisruptionBudgets: 4 nodes (n1, n2, n3, …)",
		},
		"frozen, and NodeJobs wait": {
			with(newBudget("b", "0"), func(s *spec) {
				s.AppliesTo, s.ExpiresAt = v1alpha1.AppliesToAllTasks, &metav1.Time{Time: noon.Add(time.Hour)}
			}),
			func(f *fixture) {
				f.Closed = map[types.UID][]ClosedWait{
					"n1": {{By: "NodeJob a/x"}, {By: "NodeJob a/y", Disrupts: true}},
					"n2": {{By: "NodeJob a/y"}},
				}
			},
			v1alpha1.ConditionReady, v1alpha1.ReasonFrozen, "; 2 NodeJobs waiting: a/y (2 nodes), a/x (1 node)",
		},
		"a closed window, and NodeJobs wait, of which one disrupts nothing": {
			with(newBudget("b", "1"), func(s *spec) { s.Windows = onSundays }),
			func(f *fixture) {
				f.Closed = map[types.UID][]ClosedWait{"n1": {{By: "NodeJob a/x"}, {By: "NodeJob a/y", Disrupts: true}}}
			},
			v1alpha1.ConditionReady, v1alpha1.ReasonWindowClosed, "; 1 NodeJob waiting: a/y (1 node)",
		},
		"frozen without an end": {
			with(newBudget("b", "0"), func(s *spec) { s.Description = "INC-42" }), nil,
			v1alpha1.ConditionReady, v1alpha1.ReasonFrozenWithoutEnd,
			"allows no disruption (maxUnavailable 0), and has no end: INC-42. Set spec.expiresAt, or end it: kubectl everynode thaw b",
		},
		"a limit of 0 without an end, and windows": {
			with(newBudget("b", "0"), func(s *spec) { s.Windows = onSundays }), nil,
			v1alpha1.ConditionReady, v1alpha1.ReasonFrozenWithoutEnd,
			"and has no end. Set spec.expiresAt, or increase maxUnavailable: kubectl edit nodedisruptionbudget b",
		},
		"an audit with a limit of 0 and without an end": {
			with(newBudget("b", "0"), func(s *spec) { s.Enforcement = v1alpha1.BudgetReport }), nil,
			v1alpha1.ConditionReady, v1alpha1.ReasonFrozen, "allows no disruption (maxUnavailable 0)",
		},
		"a closed window": {
			with(newBudget("b", "1"), func(s *spec) { s.Windows = onSundays }), nil,
			v1alpha1.ConditionReady, v1alpha1.ReasonWindowClosed, "until its next window opens at 2026-11-29T02:00:00Z",
		},
		"a closed window in a time zone": {
			with(newBudget("b", "1"), func(s *spec) {
				s.TimeZone, s.Windows = "Europe/Berlin", []v1alpha1.BudgetWindow{{Schedule: "0 2 * * SUN", DurationSeconds: 10800}}
			}), nil,
			v1alpha1.ConditionReady, v1alpha1.ReasonWindowClosed, "until its next window opens at 2026-11-29T01:00:00Z (Sun 02:00 CET)",
		},
		"an excepted date": {
			with(newBudget("b", "1"), func(s *spec) { s.ExceptDates = []string{"2026-11-27"} }), nil,
			v1alpha1.ConditionReady, v1alpha1.ReasonWindowClosed, "exceptDates",
		},
		"the pace": {
			with(newBudget("b", "1"), func(s *spec) { s.PaceSeconds = new(int32(300)) }),
			func(f *fixture) { f.seat("n1").Returned, f.seat("n1").Created = true, noon.Add(-time.Minute) },
			v1alpha1.ConditionReady,
			v1alpha1.ReasonPaceNotReached,
			"allows the next disruption at 2026-11-27T12:04:00Z: node n1 has returned, and paceSeconds is 300",
		},
		"expired": {
			with(newBudget("b", "0"), func(s *spec) { s.ExpiresAt = new(metav1.NewTime(noon)) }), nil,
			v1alpha1.ConditionReady, v1alpha1.ReasonExpired, "no effect",
		},
		"no nodes": {inPool("z", newBudget("b", "1")), nil, v1alpha1.ConditionReady, v1alpha1.ReasonNoSelectedNodes, "selects no node"},
		"a seat is missing": {
			newBudget("b", "1"), func(f *fixture) { f.evict("n1") },
			v1alpha1.ConditionReconciling, v1alpha1.ReasonSeatsNotReady, "1 node without a ready seat: n1",
		},
		"a seat does not start": {
			newBudget("b", "1"), func(f *fixture) { f.seat("n1").Ready, f.seat("n1").Waiting = false, "ImagePullBackOff: no such image" },
			v1alpha1.ConditionReconciling, v1alpha1.ReasonSeatsNotReady, "n1: ImagePullBackOff: no such image",
		},
		"seats are refused": {
			newBudget("b", "1"), func(f *fixture) {
				f.Refused = &hold.Why{Message: "quota " + strings.Repeat("x", 2000), Until: noon}
			},
			v1alpha1.ConditionStalled, v1alpha1.ReasonSeatRefused, "quota x",
		},
		"another PodDisruptionBudget selects the seats": {
			newBudget("b", "1"), func(f *fixture) {
				f.Foreign = []kube.ForeignBudget{
					{Name: "theirs", Selector: labels.Everything()},
					{Name: "other", Selector: labels.Nothing()},
				}
			},
			v1alpha1.ConditionStalled,
			v1alpha1.ReasonOverlappingBudget,
			"PodDisruptionBudget theirs in the namespace of the manager also selects seats, and Kubernetes evicts no pod that has two",
		},
		"a time zone that does not exist": {
			with(newBudget("b", "1"), func(s *spec) {
				s.TimeZone, s.Windows = "Mars", []v1alpha1.BudgetWindow{{Schedule: "0 0 * * *", DurationSeconds: 60}}
			}), nil,
			v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidSpec, "Mars",
		},
		"a window that never opens": {
			with(newBudget("b", "1"), func(s *spec) {
				s.Windows = []v1alpha1.BudgetWindow{{Schedule: "0 0 30 2 *", DurationSeconds: 60}}
			}), nil,
			v1alpha1.ConditionStalled, v1alpha1.ReasonWindowNeverOpens, "no window within a year",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, tt.budget)
			if tt.change != nil {
				tt.change(f)
			}
			st := Next(&f.Input).Statuses[0]
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				c := meta.FindStatusCondition(st.Conditions, kind)
				if c == nil || (c.Status == metav1.ConditionTrue) != (kind == tt.kind) || c.Reason != tt.reason ||
					!strings.Contains(c.Message, tt.message) {
					t.Errorf("%s is %+v, want the reason %s and %q", kind, c, tt.reason, tt.message)
				}
				if c != nil && len(c.Message) > 1024 {
					t.Errorf("the message of %s has %d bytes", kind, len(c.Message))
				}
			}
			if st.ObservedGeneration != 3 {
				t.Errorf("observedGeneration is %d", st.ObservedGeneration)
			}
		})
	}
}

func TestNodesBeyondTheLimitsAreCounted(t *testing.T) {
	tests := map[string]struct {
		budget *v1alpha1.NodeDisruptionBudget
		want   int32
	}{
		"a limit of all nodes":                {newBudget("b", "1"), 2},
		"a percentage":                        {newBudget("b", "50%"), 1},
		"as many as the limit allows":         {newBudget("b", "3"), 0},
		"each zone":                           {newBudget("b", "1/zone"), 1},
		"the limit that is exceeded the most": {newBudget("b", "1/zone", "1", "3"), 2},
		"a limit of zero":                     {newBudget("b", "0"), 0},
		"a closed window":                     {with(newBudget("b", "1"), func(s *spec) { s.Windows = onSundays }), 2},
		"only an audit":                       {with(newBudget("b", "1"), func(s *spec) { s.Enforcement = v1alpha1.BudgetReport }), 0},
		"no limit":                            {with(newBudget("b"), func(s *spec) { s.Windows = atNoon }), 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, tt.budget)
			f.evict("n1", "n3")
			f.cordon("n1", "n3")
			f.breakDown("n4", time.Minute)
			if got := Next(&f.Input).Statuses[0].Nodes.Exceeding; got != tt.want {
				t.Errorf("%d nodes are beyond the limits, want %d", got, tt.want)
			}
		})
	}
}

func TestTooManyTopologyValues(t *testing.T) {
	f := newFixture(0, newBudget("b", "1/rack"))
	for i := range maxTopologyValues + 1 {
		f.addNode(fmt.Sprintf("n%03d", i), noon.Add(-time.Hour))
		f.Nodes[i].Labels["rack"] = fmt.Sprint(i)
	}
	st := Next(&f.Input).Statuses[0]
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonTooManyGroups || st.DisruptionsAllowed != 0 {
		t.Errorf("allows %d: %+v", st.DisruptionsAllowed, c)
	}
}

func TestStatusCounts(t *testing.T) {
	tests := map[string]struct {
		budget  *v1alpha1.NodeDisruptionBudget
		change  func(*fixture)
		allowed int32
		want    v1alpha1.BudgetCounts
	}{
		"all available":       {newBudget("b", "3"), nil, 3, v1alpha1.BudgetCounts{Total: 4, Seats: 4}},
		"more than there are": {newBudget("b", "9"), nil, 4, v1alpha1.BudgetCounts{Total: 4, Seats: 4}},
		"one for each zone":   {newBudget("b", "1/zone"), nil, 2, v1alpha1.BudgetCounts{Total: 4, Seats: 4}},
		"the smaller limit":   {newBudget("b", "1/zone", "1"), nil, 1, v1alpha1.BudgetCounts{Total: 4, Seats: 4}},
		"some of the nodes":   {inPool("x", newBudget("b", "1")), nil, 1, v1alpha1.BudgetCounts{Total: 2, Seats: 2}},
		"frozen":              {newBudget("b", "0"), nil, 0, v1alpha1.BudgetCounts{Total: 4, Seats: 4}},
		"another PodDisruptionBudget selects the seats": {
			newBudget("b", "3"), func(f *fixture) { f.Foreign = []kube.ForeignBudget{{Name: "theirs", Selector: labels.Everything()}} }, 0,
			v1alpha1.BudgetCounts{Total: 4, Seats: 4},
		},
		"one unavailable node": {
			newBudget("b", "3"),
			func(f *fixture) { f.evict("n1"); f.cordon("n1") },
			2,
			v1alpha1.BudgetCounts{Total: 4, Seats: 3, Unavailable: 1},
		},
		"more unavailable nodes than allowed": {
			newBudget("b", "1"), func(f *fixture) { f.breakDown("n1", 0); f.breakDown("n2", 0) }, 0,
			v1alpha1.BudgetCounts{Total: 4, Seats: 2, Unavailable: 2, Exceeding: 1},
		},
		"waiting nodes": {
			newBudget("b", "3"),
			func(f *fixture) { f.cordon("n1", "n2") },
			3,
			v1alpha1.BudgetCounts{Total: 4, Seats: 4, Waiting: 2},
		},
		"a new seat": {
			newBudget("b", "3"),
			func(f *fixture) { f.seat("n1").Group = PendingGroup },
			2,
			v1alpha1.BudgetCounts{Total: 4, Seats: 4, Unavailable: 1},
		},
		"a node that another tool drains": {
			newBudget(
				"b",
				"3",
			),
			func(f *fixture) { f.node("n1").Announced = "DrainInProgress" },
			3,
			v1alpha1.BudgetCounts{Total: 4, Seats: 4, Waiting: 1},
		},
		"a node that joins": {
			newBudget("b", "3"), func(f *fixture) { f.addNode("n5", noon) }, 3, v1alpha1.BudgetCounts{Total: 5, Exempt: 1, Seats: 4},
		},
		"all nodes join": {newBudget("b", "1"), (*fixture).renew, 4, v1alpha1.BudgetCounts{Total: 4, Exempt: 4}},
		"all nodes join, and a pace": {
			with(newBudget("b", "50%"), func(s *spec) { s.PaceSeconds = new(int32(300)) }), (*fixture).renew, 4,
			v1alpha1.BudgetCounts{Total: 4, Exempt: 4},
		},
		"all nodes join under an audit": {
			with(newBudget("b", "1"), func(s *spec) { s.Enforcement = v1alpha1.BudgetReport }), (*fixture).renew, 4,
			v1alpha1.BudgetCounts{Total: 4, Exempt: 4},
		},
		"all nodes join, and a freeze": {newBudget("b", "0"), (*fixture).renew, 0, v1alpha1.BudgetCounts{Total: 4, Exempt: 4}},
		"audit counts what is cordoned or used by a NodeJob": {
			with(newBudget("b", "3"), func(s *spec) { s.Enforcement = v1alpha1.BudgetReport }),
			func(f *fixture) { f.cordon("n1"); f.Holds["n2"] = "NodeJob a/b" }, 1,
			v1alpha1.BudgetCounts{Total: 4, Unavailable: 2},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, tt.budget)
			if tt.change != nil {
				tt.change(f)
			}
			st := Next(&f.Input).Statuses[0]
			if diff := cmp.Diff(tt.want, st.Nodes); diff != "" || st.DisruptionsAllowed != tt.allowed {
				t.Errorf("allows %d, want %d; -want +got:\n%s", st.DisruptionsAllowed, tt.allowed, diff)
			}
		})
	}
}

func TestStatusListsNodes(t *testing.T) {
	f := settled(t, 4, newBudget("b", "1"))
	f.cordon("n3", "n2")
	f.evict("n1", "n4")
	f.Holds["n1"] = "NodeJob a/b"
	f.breakDown("n4", 0)
	f.settle(t)
	earlier := metav1.NewTime(noon.Add(-time.Hour))
	f.Budgets[0].Status.Unavailable = []v1alpha1.UnavailableNode{{Node: "n4", Since: earlier}}
	f.Budgets[0].Status.Waiting = []v1alpha1.WaitingNode{{Node: "n2", Since: earlier}}
	st := Next(&f.Input).Statuses[0]
	unavailable := []v1alpha1.UnavailableNode{
		{Node: "n4", Since: earlier, By: "not Ready"},
		{Node: "n1", Since: metav1.NewTime(noon), By: "NodeJob a/b"},
	}
	if diff := cmp.Diff(unavailable, st.Unavailable); diff != "" {
		t.Errorf("unavailable, -want +got:\n%s", diff)
	}
	message := "2 nodes are not available (n1, n4), and NodeDisruptionBudget b allows 1"
	waiting := []v1alpha1.WaitingNode{
		{Node: "n2", Since: earlier, By: "cordoned", Reason: v1alpha1.ReasonMaxUnavailableReached, Message: message},
		{
			Node:    "n3",
			Since:   metav1.NewTime(noon.Add(-9 * time.Minute)),
			By:      "cordoned",
			Reason:  v1alpha1.ReasonMaxUnavailableReached,
			Message: message,
		},
	}
	if diff := cmp.Diff(waiting, st.Waiting); diff != "" {
		t.Errorf("waiting, -want +got:\n%s", diff)
	}
}

// TestWhyANodeWaits : what has asked for a node may not have noticed yet that the disruption may begin.
func TestWhyANodeWaits(t *testing.T) {
	const mayGo = "1 disruption may begin now, granted to the next drain or NodeJob that evicts the seat of its node"
	full, first := v1alpha1.ReasonMaxUnavailableReached, "NodeDisruptionBudget b allows 1, and other nodes are first"
	tests := map[string]struct {
		change          func(*fixture)
		reason, message string
	}{
		"a drain that may continue":     {func(f *fixture) { f.cordon("n1") }, v1alpha1.ReasonBudgetOpen, mayGo},
		"drains of which one may begin": {func(f *fixture) { f.cordon("n1", "n2") }, v1alpha1.ReasonBudgetOpen, mayGo},
		"a NodeJob that may start": {
			func(f *fixture) { f.Waits["n1"] = Wait{By: "NodeJob a/b", Since: noon} }, v1alpha1.ReasonBudgetOpen, mayGo,
		},
		"a NodeJob whose other node is first": {func(f *fixture) {
			f.Waits["n1"] = Wait{By: "NodeJob a/b", Since: noon}
			f.Waits["n2"] = Wait{By: "NodeJob a/b", Since: noon.Add(-time.Minute)}
		}, full, first},
		"the limit is reached": {
			func(f *fixture) { f.cordon("n1", "n2"); f.evict("n2") }, full,
			"1 node is not available (n2), and NodeDisruptionBudget b allows 1",
		},
		"a freeze": {
			func(f *fixture) { f.cordon("n1"); f.Budgets = append(f.Budgets, newBudget("c", "0")) }, v1alpha1.ReasonFrozenWithoutEnd,
			"NodeDisruptionBudget c allows no disruption (maxUnavailable 0), and has no end",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, newBudget("b", "1"))
			tt.change(f)
			f.settle(t)
			list := Next(&f.Input).Statuses[0].Waiting
			i := slices.IndexFunc(list, func(w v1alpha1.WaitingNode) bool { return w.Node == "n1" })
			if i < 0 || list[i].Reason != tt.reason || list[i].Message != tt.message {
				t.Errorf("got %+v, want %s: %s", list, tt.reason, tt.message)
			}
		})
	}
}

func TestListsOfAStatusAreBounded(t *testing.T) {
	f := newFixture(0, newBudget("b", "1"))
	for i := range 30 {
		f.addNode(fmt.Sprintf("n%02d", i), noon.Add(-24*time.Hour))
	}
	f.settle(t)
	f.Now = noon.Add(time.Hour)
	for i := range 15 {
		f.evict(fmt.Sprintf("n%02d", i))
		f.cordon(fmt.Sprintf("n%02d", i), fmt.Sprintf("n%02d", i+15))
	}
	st := Next(&f.Input).Statuses[0]
	if len(st.Unavailable) != maxListed || len(st.Waiting) != maxListed || st.Nodes.Unavailable != 15 || st.Nodes.Waiting != 15 {
		t.Errorf("lists %d and %d of %+v", len(st.Unavailable), len(st.Waiting), st.Nodes)
	}
}

func TestWindowInTheStatus(t *testing.T) {
	f := settled(t, 1, newBudget("a", "1"), with(newBudget("b"), func(s *spec) { s.Windows = onSundays }))
	p := Next(&f.Input)
	if w := p.Statuses[0].Window; w != nil {
		t.Errorf("without windows: %+v", w)
	}
	opens := time.Date(2026, 11, 29, 2, 0, 0, 0, time.UTC)
	want := &v1alpha1.BudgetWindowStatus{OpensAt: metav1.NewTime(opens), ClosesAt: metav1.NewTime(opens.Add(time.Hour))}
	if diff := cmp.Diff(want, p.Statuses[1].Window); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
