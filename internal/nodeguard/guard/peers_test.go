// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

// checked adds a check to the NodeGuard. The check of the first node has the phase, if there is one.
func checked(phase corev1.PodPhase, ended time.Duration) func(*Input) {
	return func(in *Input) {
		in.Guard.Spec.Release = v1alpha1.ReleaseSpec{Check: &v1alpha1.ReleaseCheck{Script: "true"}}
		if phase != "" {
			in.Checks = append(in.Checks, Pod{
				Name:        "check-n1",
				Node:        "n1",
				Owner:       "guard",
				Phase:       phase,
				Created:     t0.Add(-time.Minute),
				Ended:       t0.Add(-ended),
				RequestedAt: token(t0.Add(-60 * time.Minute)),
			})
		}
	}
}

// A node is released only after the other NodeGuards are asked about it.
func TestAllNodeGuardsMustRelease(t *testing.T) {
	saying := func(node string, stance PeerView) func(*Input) {
		return func(in *Input) { in.Peers = []Peer{{Name: "ns/peer", Stances: map[string]PeerView{node: stance}}} }
	}
	full := PeerView{Reason: v1alpha1.ReasonMaxUnavailableReached, Message: "1 node is away"}
	unasked := PeerView{Reason: v1alpha1.ReasonCheckRunning, Message: "its release.check has not succeeded", Checks: true}
	tests := map[string]struct {
		in   Input
		node string
		want string
		// does are the checks that are created and deleted.
		does []string
	}{
		"the other would release it":              {scene(cordoned(0), saying("n1", PeerView{})), "n1", "Released ConditionMet", nil},
		"the other would not release it":          {scene(cordoned(0), saying("n1", full)), "n1", "Held HeldByOtherGuard", nil},
		"the other does not guard the node":       {scene(cordoned(0), saying("n2", full)), "n1", "Released ConditionMet", nil},
		"the other does not know the request yet": {scene(cordoned(0), saying("n1", unasked)), "n1", "Held HeldByOtherGuard", nil},
		"the other has already released it": {scene(cordoned(0), saying("n1", full), func(in *Input) {
			in.Peers[0].Released = []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1"}}
		}), "n1", "Released ConditionMet", nil},
		"a third NodeGuard has already released it": {scene(cordoned(0), saying("n1", full), func(in *Input) {
			in.Peers = append(in.Peers, Peer{Name: "ns/third", Released: []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1"}}})
		}), "n1", "Released ConditionMet", nil},
		"break glass": {
			scene(cordoned(0), saying("n1", full), func(in *Input) { in.Nodes[0].BreakGlass = "fire" }),
			"n1",
			"Released BreakGlass",
			nil,
		},
		"past the deadline": {scene(cordoned(0), saying("n1", full), func(in *Input) {
			in.Guard.Spec.Release.DeadlineSeconds, in.Guard.Spec.Release.OnDeadline = new(int32(60)), v1alpha1.OnDeadlineRelease
		}), "n1", "Held HeldByOtherGuard", nil},
		"one holds it, and the check of another has not succeeded": {scene(cordoned(0), func(in *Input) {
			in.Peers = []Peer{
				{Name: "ns/first", Stances: map[string]PeerView{"n1": unasked}},
				{Name: "ns/peer", Stances: map[string]PeerView{"n1": full}},
			}
		}), "n1", "Held HeldByOtherGuard", nil},
		"there is no approval here either": {scene(cordoned(0), saying("n1", full), func(in *Input) {
			in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired
		}), "n1", "Held AwaitingApproval", nil},
		"both have a check: neither waits for the other": {
			scene(cordoned(0), checked("", 0), saying("n1", unasked)),
			"n1",
			"Held CheckRunning",
			[]string{"make n1"},
		},
		"no check runs for a node that another holds": {
			scene(cordoned(0), checked("", 0), saying("n1", full)),
			"n1",
			"Held HeldByOtherGuard",
			nil,
		},
		"no check is repeated for a node that another holds": {
			scene(cordoned(0), checked(corev1.PodFailed, time.Hour), saying("n1", full)),
			"n1",
			"Held HeldByOtherGuard",
			nil,
		},
		"a running check is awaited": {
			scene(cordoned(0), checked(corev1.PodRunning, 0), saying("n1", full)),
			"n1",
			"Held CheckRunning",
			nil,
		},
		"the message of a failed check is reported": {
			scene(cordoned(0), checked(corev1.PodFailed, time.Second), saying("n1", full)),
			"n1",
			"Held CheckFailed",
			nil,
		},
		"the check here succeeded": {
			scene(cordoned(0), checked(corev1.PodSucceeded, time.Second), saying("n1", unasked)),
			"n1",
			"Held HeldByOtherGuard",
			nil,
		},
		"the check here succeeded long ago": {
			scene(cordoned(0), checked(corev1.PodSucceeded, time.Hour), saying("n1", unasked)),
			"n1",
			"Held HeldByOtherGuard",
			nil,
		},
		"the check here succeeded long ago, and the other would release the node now": {
			scene(cordoned(0), checked(corev1.PodSucceeded, time.Hour), saying("n1", PeerView{})),
			"n1",
			"Held CheckRunning",
			[]string{"delete check-n1"},
		},
		"a node that waits for another NodeGuard does not delay a check": {
			scene(cordoned(0, 1), checked(corev1.PodSucceeded, time.Second), saying("n1", full)),
			"n2",
			"Held CheckRunning",
			[]string{"make n2"},
		},
		"a node that waits for another NodeGuard does not delay the check of an earlier request": {
			scene(cordoned(1, 0), checked(corev1.PodSucceeded, time.Second), saying("n1", full), func(in *Input) {
				in.Checks[0].RequestedAt = token(in.Budgets[0].RequestedAt[NodeID("n1")])
			}),
			"n2",
			"Held CheckRunning",
			[]string{"make n2"},
		},
		"two shared nodes are released one after the other": {scene(cordoned(0, 1), saying("n1", PeerView{}), func(in *Input) {
			in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(2))
		}), "n2", "Held Releasing", nil},
		"two nodes that no other NodeGuard guards are released at once": {scene(cordoned(0, 1), saying("n3", PeerView{}), func(in *Input) {
			in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(2))
		}), "n2", "Released ConditionMet", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(tt.in)
			if got := states(p)[tt.node]; got != tt.want {
				t.Errorf("%s is %q, want %q", tt.node, got, tt.want)
			}
			var does []string
			for _, a := range p.Actions {
				switch a := a.(type) {
				case CreateCheck:
					does = append(does, "make "+a.Node)
				case DeletePod:
					does = append(does, "delete "+a.Pod.Name)
				}
			}
			if !slices.Equal(does, tt.does) {
				t.Errorf("checks created and deleted: %v, want %v", does, tt.does)
			}
			if strings.HasSuffix(tt.want, v1alpha1.ReasonHeldByOtherGuard) &&
				(p.WakeAt.IsZero() || !strings.Contains(p.Status.Waiting[0].Message, "NodeGuard ns/peer")) {
				t.Errorf("no further pass is planned, or the other NodeGuard is not named: %s, %+v", p.WakeAt, p.Status.Waiting)
			}
		})
	}
}

func TestStances(t *testing.T) {
	approval := func(in *Input) { in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired }
	tests := map[string]struct {
		in   Input
		want string
	}{
		"no release request":        {scene(), "map[]"},
		"it would release the node": {scene(cordoned(0)), "map[n1:]"},
		"another node is unavailable": {
			scene(cordoned(0), func(in *Input) { in.Nodes[2].Ready = false }),
			"map[n1:MaxUnavailableReached]",
		},
		"two release requests are independent": {scene(cordoned(0, 1)), "map[n1: n2:]"},
		"another node was released":            {scene(cordoned(0, 1), going(0, false)), "map[n2:MaxUnavailableReached]"},
		"another NodeGuard has released a node": {scene(cordoned(0, 1), func(in *Input) {
			in.Peers = []Peer{{Name: "ns/peer", Released: []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1"}}}}
		}), "map[n2:MaxUnavailableReached]"},
		"decisions of others do not count": {scene(cordoned(0), func(in *Input) {
			in.Peers = []Peer{{Name: "ns/peer", Stances: map[string]PeerView{"n1": {Reason: "MaxUnavailableReached"}}}}
		}), "map[n1:]"},
		"maxUnavailable is 0": {
			scene(cordoned(0), func(in *Input) { in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(0)) }),
			"map[n1:ReleasesDisabled]",
		},
		"a budget of another owner": {
			scene(cordoned(0), func(in *Input) { in.Foreign = []kube.ForeignBudget{{Name: "theirs", Selector: labels.Everything()}} }),
			"map[n1:OverlappingBudget]",
		},
		"no approval": {scene(cordoned(0), approval), "map[n1:AwaitingApproval]"},
		"approved": {
			scene(cordoned(0), approval, func(in *Input) { in.Nodes[0].Approved = "storage/disks" }),
			"map[n1:]",
		},
		"no check has run": {scene(cordoned(0), checked("", 0)), "map[n1:CheckRunning (its check)]"},
		"the check failed": {
			scene(cordoned(0), checked(corev1.PodFailed, time.Second)),
			"map[n1:CheckRunning (its check)]",
		},
		"the check succeeded":          {scene(cordoned(0), checked(corev1.PodSucceeded, time.Second)), "map[n1:]"},
		"its companion is missing":     {scene(cordoned(0), func(in *Input) { in.Companions = in.Companions[1:] }), "map[]"},
		"the check succeeded long ago": {scene(cordoned(0), checked(corev1.PodSucceeded, time.Hour)), "map[n1:]"},
		"the order of checks does not count": {
			scene(cordoned(0, 1), checked(corev1.PodRunning, 0)),
			"map[n1:CheckRunning (its check) n2:CheckRunning (its check)]",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for node, stance := range Stances(tt.in) {
				got[node] = stance.Reason
				if stance.Checks {
					got[node] += " (its check)"
				}
				if (stance.Reason == "") != (stance.Message == "") {
					t.Errorf("%+v has an incomplete or unexpected message", stance)
				}
			}
			if fmt.Sprint(got) != tt.want {
				t.Errorf("%v, want %s", got, tt.want)
			}
		})
	}
}

// Two NodeGuards with different targets, of which one is unhealthy on n3. If one of them has started the drain of n1
// and the other one holds n1, then n3 could not be drained and repaired, and n1 waits for n3.
func TestTwoDrainsDoNotDeadlockWithUnhealthyTarget(t *testing.T) {
	sound, unhealthy := scene(cordoned(0, 2)), scene(cordoned(0, 2), func(in *Input) {
		in.Guard.Name, in.Guard.UID, in.Target.Pods[2].Ready = "other", "other", false
		in.Budgets[0].Name, in.Budgets[0].Owner = BudgetName("other"), "other"
		for i := range in.Nodes {
			in.Companions[i].Owner = "other"
		}
	})
	for range 3 { // they decide in turn
		for _, pair := range [][2]*Input{{&sound, &unhealthy}, {&unhealthy, &sound}} {
			in, other := pair[0], pair[1]
			other.Peers = []Peer{{Name: "storage/" + in.Guard.Name, Released: in.Guard.Status.Released}}
			in.Peers = []Peer{{Name: "storage/" + other.Guard.Name, Released: other.Guard.Status.Released, Stances: Stances(*other)}}
			in.Guard.Status = Next(*in).Status
		}
	}
	for _, in := range []*Input{&sound, &unhealthy} {
		if released := in.Guard.Status.Released; len(released) != 1 || released[0].Node != "n3" {
			t.Errorf("%s has released %+v, want n3", in.Guard.Name, released)
		}
	}
	// n3 is repaired and available again.
	for _, in := range []*Input{&sound, &unhealthy} {
		in.Nodes[2].Unschedulable, in.Target.Pods[2].Ready, in.Guard.Status.Released = false, true, nil
		delete(in.Budgets[0].RequestedAt, NodeID("n3"))
	}
	unhealthy.Peers, sound.Peers = nil, nil
	if stance := Stances(unhealthy)["n1"]; stance.Reason != "" {
		t.Errorf("n1 is still held: %+v", stance)
	}
	sound.Peers = []Peer{{Name: "storage/other", Stances: Stances(unhealthy)}}
	if got := states(Next(sound))["n1"]; got != "Released ConditionMet" {
		t.Errorf("n1 is %s", got)
	}
}

func TestRequestingNodes(t *testing.T) {
	glass := func(i int) func(*Input) { return func(in *Input) { in.Nodes[i].BreakGlass = "fire" } }
	for name, tt := range map[string]struct {
		in                Input
		asks, breaksGlass bool
	}{
		"no release request":   {in: scene()},
		"one release request":  {in: scene(cordoned(0)), asks: true},
		"the node is released": {in: scene(cordoned(0), going(0, false))},
		"a new release request before the node is available again": {in: scene(cordoned(0), going(0, true)), asks: true},
		"a release request of a node that is not guarded": {in: scene(func(in *Input) {
			in.Nodes = append(in.Nodes, kube.Node{Name: "n4", Unschedulable: true})
			in.Target.Template = nil
		})},
		"break glass":                           {in: scene(cordoned(0, 1), glass(1)), asks: true, breaksGlass: true},
		"break glass without a release request": {in: scene(cordoned(0), glass(1)), asks: true},
		"break glass, and the next node waits":  {in: scene(cordoned(0, 1), glass(0)), asks: true, breaksGlass: true},
		"break glass, and the node is released": {in: scene(cordoned(0, 1), going(1, false), glass(1)), asks: true},
		"break glass according to the status of another NodeGuard": {in: scene(cordoned(0), func(in *Input) {
			in.Peers = []Peer{{Name: "ns/a", Released: []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1", Since: metav1.NewTime(t0), Reason: v1alpha1.ReasonBreakGlass}}}}
		}), asks: true},
	} {
		if nodes, breaksGlass := RequestingNodes(tt.in); len(nodes) > 0 != tt.asks || breaksGlass != tt.breaksGlass {
			t.Errorf("%s: %d nodes, break glass %v", name, len(nodes), breaksGlass)
		}
	}
}

// NodeGuards that hold nothing on a node are not asked: each costs reads of the API server, and a user can create many.
func TestCanGuardNode(t *testing.T) {
	node := []*kube.Node{{Name: "n1"}}
	for name, tt := range map[string]struct {
		released, companion string
		want                bool
	}{
		"it has nothing":                   {"", "", false},
		"its companion is on the node":     {"", "n1", true},
		"its companion is on another node": {"", "n2", false},
		"it has released the node":         {"n1", "", true},
		"it has released another node":     {"n2", "", false},
	} {
		peer := &Peer{Guard: guardOf("g"), Released: []v1alpha1.ReleasedNode{{Node: tt.released}}}
		if got := CanGuard(peer, node, func(n string) bool { return n == tt.companion }); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Break glass waits for nothing, and no other node is released before the other NodeGuards were asked.
func TestBreakGlassDoesNotWaitForOtherNodeGuards(t *testing.T) {
	in := scene(cordoned(0, 1), func(in *Input) { in.Nodes[1].BreakGlass = "fire" })
	in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(3))
	in.PeersUnknown = true
	if got := states(Next(in)); got["n1"] != "Held Releasing" || got["n2"] != "Released BreakGlass" {
		t.Errorf("the nodes are %v", got)
	}
}

// Only the annotation on the node breaks glass. The status of another NodeGuard is what another owner says.
func TestBreakGlassOfAnotherNodeGuardReleasesNothing(t *testing.T) {
	for _, reason := range []string{v1alpha1.ReasonBreakGlass, v1alpha1.ReasonConditionMet} {
		in := scene(cordoned(0, 1), going(0, false), func(in *Input) {
			in.Peers = []Peer{
				{
					Name: "ns/a",
					Released: []v1alpha1.ReleasedNode{
						{Node: "n2", UID: "uid-n2", Since: metav1.NewTime(t0), Reason: reason, Message: "fire"},
					},
				},
			}
		})
		if got := states(Next(in))["n2"]; got != "Held MaxUnavailableReached" {
			t.Errorf("another NodeGuard has released n2 (%s): it is %q here", reason, got)
		}
	}
}

// Each NodeGuard of the node must see the annotation. Otherwise two nodes could wait for each other: one that is released
// here regardless of its turn and not there, and one that is released there.
func TestTheLastNodeGuardRemovesTheBreakGlassAnnotation(t *testing.T) {
	released := func(returning bool) []v1alpha1.ReleasedNode {
		return []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1", Since: metav1.NewTime(t0), Returning: returning}}
	}
	tests := map[string]struct {
		peer []v1alpha1.ReleasedNode
		live bool
		// wantRemoved and wantConfirm are about the annotation; wantKept is true if the node stays in status.released.
		wantRemoved, wantConfirm, wantKept bool
	}{
		"no other NodeGuard has released the node":           {nil, true, true, false, true},
		"based on a cache":                                   {nil, false, false, true, true},
		"another has released it, and its request has ended": {released(true), true, true, false, true},
		"another has released it":                            {released(false), true, false, false, true},
		"another has released an earlier Node of that name": {
			[]v1alpha1.ReleasedNode{{Node: "n1", UID: "before"}},
			true,
			true,
			false,
			true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan := Next(scene(going(0, true), func(in *Input) {
				in.Nodes[0].BreakGlass, in.Live = "fire", tt.live
				in.Peers = []Peer{{Name: "ns/a", Released: tt.peer}}
				releaseEnds(in)
			}))
			removed := slices.ContainsFunc(plan.Actions, func(a Action) bool { r, is := a.(RemoveApproval); return is && r.BreakGlass })
			if removed != tt.wantRemoved || plan.Confirm != tt.wantConfirm || (len(plan.Status.Released) == 1) != tt.wantKept {
				t.Errorf("removed: %v, confirm: %v, released: %v", removed, plan.Confirm, plan.Status.Released)
			}
		})
	}
}

// An earlier status that is restored deletes no companion again.
func TestAReleaseThatIsOverIsNotRepeated(t *testing.T) {
	for name, tt := range map[string]struct {
		ended time.Duration // after the release
		uid   string
		want  string
	}{
		"this release has ended":              {0, "uid-n1", "Held AwaitingApproval"},
		"a later release has ended":           {time.Hour, "uid-n1", "Held AwaitingApproval"},
		"an earlier release has ended":        {-time.Hour, "uid-n1", "Released "},
		"a release of another Node has ended": {time.Hour, "before", "Released "},
	} {
		t.Run(name, func(t *testing.T) {
			in := scene(cordoned(0), going(0, false))
			in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired
			entry := in.Guard.Status.Released[0]
			entry.UID, entry.Since = types.UID(tt.uid), metav1.NewTime(entry.Since.Add(tt.ended))
			in.Companions[0].EndedRelease = releaseID(entry)
			if got := states(Next(in))["n1"]; got != tt.want {
				t.Errorf("n1 is %q, want %q", got, tt.want)
			}
			for _, in.Live = range []bool{true, false} {
				deletes := slices.ContainsFunc(Next(in).Actions, func(a Action) bool { d, is := a.(DeletePod); return is && d.Unchanged })
				if deletes != strings.HasPrefix(tt.want, "Released") {
					t.Errorf("a companion is deleted: %v, live: %v", deletes, in.Live)
				}
			}
		})
	}
}

// A NodeGuard in a namespace that is not allowed is not asked, however many there are, unless it was served before.
func TestPeersOf(t *testing.T) {
	open, released, holds, never, deleted := guardOf("open"), guardOf("released"), guardOf("holds"), guardOf("never"), guardOf("deleted")
	all := []*v1alpha1.NodeGuard{open, released, holds, never, deleted}
	for _, g := range all {
		g.UID = types.UID(g.Name)
	}
	released.Status.Released = []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1"}}
	holds.Status.Revision = "r"
	deleted.DeletionTimestamp = new(metav1.NewTime(t0))
	peers := PeersOf(guardOf("g"), all, func(g *v1alpha1.NodeGuard) bool { return g == open || g == deleted })
	asked := func(companions bool) (names []string) {
		for i := range peers {
			if CanGuard(&peers[i], []*kube.Node{{Name: "n1"}}, func(string) bool { return companions }) {
				names = append(names, peers[i].Guard.Name)
			}
		}
		return names
	}
	if got, want := asked(true), []string{"open", "released", "holds"}; !slices.Equal(got, want) {
		t.Errorf("if they have companions, %q are asked, want %q", got, want)
	}
	if got, want := asked(false), []string{"released"}; !slices.Equal(got, want) {
		t.Errorf("without companions, %q are asked, want %q", got, want)
	}
}

// The oldest NodeGuards of a namespace are served. One that is being deleted has no say any more.
func TestBeyondMaximum(t *testing.T) {
	var all []*v1alpha1.NodeGuard
	for i := range MaxServed + 3 {
		g := guardOf(fmt.Sprintf("g%03d", i))
		g.UID, g.Namespace, g.CreationTimestamp = types.UID(g.Name), "tenant", metav1.NewTime(t0.Add(-time.Duration(i/2)*time.Minute))
		all = append(all, g)
	}
	all[MaxServed+2].DeletionTimestamp = new(metav1.NewTime(t0)) // the oldest
	other := guardOf("other")
	other.UID = "other"
	got := BeyondMaximum(append(all, other))
	if want := map[types.UID]bool{"g000": true, "g001": true}; !maps.Equal(got, want) {
		t.Errorf("not served are %v, want %v", got, want)
	}
	in := scene()
	p := PlanTooSlow(&in, "tenant", 10*time.Second)
	stalled := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionStalled)
	if stalled.Status != metav1.ConditionTrue || stalled.Reason != v1alpha1.ReasonDecisionsTooSlow ||
		!strings.Contains(stalled.Message, "longer than 10s") {
		t.Errorf("the condition is %+v", stalled)
	}
}

func TestNodeGuardsOfTheSameTarget(t *testing.T) {
	of := func(name, namespace, daemonSet string) *v1alpha1.NodeGuard {
		g := guardOf(name)
		g.Namespace, g.UID, g.Spec.Target.DaemonSet = namespace, types.UID(name), daemonSet
		return g
	}
	all := []*v1alpha1.NodeGuard{
		of("a", "storage", "disks"),
		of("b", "storage", "disks"),
		of("c", "storage", "nics"),
		of("d", "other", "disks"),
		of("e", "storage", ""),
		of("f", "storage", ""),
	}
	for i, want := range map[int]string{0: "map[other/d:false storage/b:true storage/c:false storage/e:false storage/f:false]", 4: "map[other/d:false storage/a:false storage/b:false storage/c:false storage/f:false]"} {
		got := map[string]bool{}
		for _, p := range PeersOf(all[i], all, func(*v1alpha1.NodeGuard) bool { return true }) {
			got[p.Name] = p.SameTarget
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", all[i].Name, got, want)
		}
	}
}

func TestOrderOfReleaseRequests(t *testing.T) {
	node := func(name string, requested, released time.Duration) *nodePlan {
		n := nodeOf(name)
		n.requestedAt = t0.Add(requested)
		if released > 0 {
			n.peerRelease = &peerRelease{since: t0.Add(released)}
		}
		return n
	}
	for name, pair := range map[string][2]*nodePlan{
		"the earlier request": {node("b", 1, 0), node("a", 2, 0)},
		"by name":             {node("a", 1, 0), node("b", 1, 0)},
		"one that another NodeGuard has released":     {node("b", 2, 1), node("a", 1, 0)},
		"the one that was released there first":       {node("b", 2, 1), node("a", 1, 2)},
		"by name, if released there at the same time": {node("a", 2, 1), node("b", 1, 1)},
	} {
		if first, second := byTurn(pair[0], pair[1]), byTurn(pair[1], pair[0]); first >= 0 || second <= 0 {
			t.Errorf("%s: %d and %d", name, first, second)
		}
	}
	if same := node("a", 1, 1); byTurn(same, same) != 0 {
		t.Error("a node is before itself")
	}
}

// A budget alone is no reason for a NodeGuard of a namespace that is not allowed to hold a node: users can create one.
func TestANodeGuardThatIsNotAllowedHoldsOnlyNodesWithItsCompanion(t *testing.T) {
	in := scene(cordoned(0, 1), func(in *Input) {
		in.NotAllowed = hold.NamespaceNotAllowed("ns")
		in.Companions = slices.DeleteFunc(in.Companions, func(p Pod) bool { return p.Node == "n1" })
	})
	stances := Stances(in)
	if _, held := stances["n2"]; !held || len(stances) != 1 {
		t.Errorf("it decides on %v, want n2 only", stances)
	}
}

func TestNodeReleasedElsewhereHasPlace(t *testing.T) {
	in := scene(cordoned(0, 1), func(in *Input) {
		in.Peers = []Peer{{Name: "ns/a", Released: []v1alpha1.ReleasedNode{{Node: "n2", UID: "uid-n2", Since: metav1.NewTime(t0)}}}}
	})
	stance := Stances(in)["n1"]
	if stance.Reason != v1alpha1.ReasonMaxUnavailableReached ||
		!strings.Contains(stance.Message, "n2 (released by another NodeGuard, not available again yet)") {
		t.Errorf("the stance on n1 is %+v", stance)
	}
}

// A node that is released elsewhere and unavailable can be repaired while another one waits for it.
func TestUnavailableNodeDoesNotWaitForFirst(t *testing.T) {
	since := func(minutes int) metav1.Time { return metav1.NewTime(t0.Add(-time.Duration(minutes) * time.Minute)) }
	started := func(in *Input) {
		in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(2))
		in.Peers = []Peer{
			{
				Name: "ns/a",
				Released: []v1alpha1.ReleasedNode{
					{Node: "n1", UID: "uid-n1", Since: since(9)},
					{Node: "n2", UID: "uid-n2", Since: since(5)},
				},
			},
		}
	}
	for name, tt := range map[string]struct {
		in   Input
		want string
	}{
		"the first waits for the second": {scene(cordoned(0, 1), started, func(in *Input) { in.Nodes[1].Ready, in.Nodes[2].Ready = false, false }), "Released ConditionMet"},
		"the first, which is available, waits for the second anyway": {scene(cordoned(0, 1), started, func(in *Input) {
			in.Nodes[1].Ready, in.Guard.Spec.MaxUnavailable = false, nil
		}), "Released ConditionMet"},
		"maxUnavailable only has a place for the first": {scene(cordoned(0, 1), started, func(in *Input) {
			in.Nodes[0].Ready, in.Nodes[1].Ready, in.Guard.Spec.MaxUnavailable = false, false, nil
			in.Guard.Spec.Release.Approval, in.Nodes[1].Approved = v1alpha1.ApprovalRequired, "storage/disks"
		}), "Held WaitingForOtherRelease"},
		"no other NodeGuard has released the second": {scene(cordoned(0, 1), started, func(in *Input) {
			in.Peers[0].Released, in.Nodes[1].Ready = in.Peers[0].Released[:1], false
			in.Guard.Spec.Release.Approval, in.Nodes[1].Approved = v1alpha1.ApprovalRequired, "storage/disks"
		}), "Held WaitingForOtherRelease"},
		"the first, which is available, waits for an approval": {scene(cordoned(0, 1), started, func(in *Input) {
			in.Nodes[1].Ready, in.Nodes[2].Ready, in.Guard.Spec.MaxUnavailable = false, false, nil
			in.Guard.Spec.Release.Approval, in.Nodes[1].Approved = v1alpha1.ApprovalRequired, "storage/disks"
			in.Peers[0].Released = append(in.Peers[0].Released, v1alpha1.ReleasedNode{Node: "n3", UID: "uid-n3", Since: since(1)})
		}), "Released ConditionMet"},
		"the first retains its place": {scene(cordoned(0, 1), started, going(0, true), func(in *Input) {
			in.Nodes[0].Ready, in.Nodes[1].Ready = false, false
		}), "Released ConditionMet"},
		"the first is released here": {scene(cordoned(0, 1), started, going(0, false), func(in *Input) {
			in.Peers[0].Released = in.Peers[0].Released[:1]
		}), "Released ConditionMet"},
		"the first, whose deadline has passed, waits for an earlier Node of the name of the second": {scene(cordoned(0, 1), started, going(1, false), func(in *Input) {
			in.Nodes[1].Ready, in.Nodes[1].UID, in.Peers[0].Released[1].UID, in.Guard.Spec.MaxUnavailable = false, "another", "another", nil
			in.Guard.Spec.Release.DeadlineSeconds, in.Guard.Spec.Release.OnDeadline = new(int32(60)), v1alpha1.OnDeadlineRelease
		}), "Held WaitingForOtherRelease"},
		"the second is available, and the first waits for an approval": {scene(cordoned(0, 1), started, func(in *Input) {
			in.Guard.Spec.Release.Approval, in.Nodes[1].Approved = v1alpha1.ApprovalRequired, "storage/disks"
		}), "Held WaitingForOtherRelease"},
		"the second is available": {scene(cordoned(0, 1), started, func(in *Input) {
			in.Nodes[2].Ready, in.Target.Pods = false, append(in.Target.Pods, TargetPod{})
			in.Target.Template = nil
		}), "Held WaitingForOtherRelease"},
	} {
		if got := states(Next(tt.in))["n2"]; got != tt.want {
			t.Errorf("%s: n2 is %s, want %s", name, got, tt.want)
		}
	}
}

// A node that was released before and did not become available again retains its place. If another node waits for that
// place, because another NodeGuard has released it, the first one must be repairable: here n1 waits for n2.
func TestPlaceOfReturningNode(t *testing.T) {
	peer := func(in *Input) {
		in.Peers = []Peer{{Name: "ns/a", Released: []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1", Since: metav1.NewTime(t0)}}}}
	}
	for name, tt := range map[string]struct {
		in   Input
		want string
		// stance is the decision without the other NodeGuard.
		stance string
	}{
		"it is unavailable": {scene(cordoned(0, 1), going(1, true), peer, func(in *Input) { in.Nodes[0].Ready, in.Nodes[1].Ready = false, false }),
			"Released ConditionMet", ""},
		"it is available": {scene(cordoned(0, 1), going(1, true), peer, func(in *Input) { in.Nodes[0].Ready = false }),
			"Held WaitingForOtherRelease", v1alpha1.ReasonMaxUnavailableReached},
		"it has no place yet": {scene(cordoned(0, 1), peer, func(in *Input) { in.Nodes[0].Ready, in.Nodes[1].Ready = false, false }),
			"Held WaitingForOtherRelease", v1alpha1.ReasonMaxUnavailableReached},
		"the other node retains a place as well": {scene(cordoned(0, 1), going(0, true), going(1, true), peer, func(in *Input) { in.Nodes[0].Ready, in.Nodes[1].Ready = false, false }),
			"Held MaxUnavailableReached", v1alpha1.ReasonMaxUnavailableReached},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Stances(tt.in)["n2"]; got.Reason != tt.stance {
				t.Errorf("the stance is %+v, want %q", got, tt.stance)
			}
			if got := states(Next(tt.in))["n2"]; got != tt.want {
				t.Errorf("n2 is %s, want %s", got, tt.want)
			}
		})
	}
}
