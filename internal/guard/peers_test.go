// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// checked has a check decide. With a phase, that of the first node has come so far.
func checked(phase corev1.PodPhase, ended time.Duration) func(*Input) {
	return func(in *Input) {
		in.Guard.Spec.Release = v1alpha1.ReleaseSpec{When: v1alpha1.ReleaseWhenCheck, Check: &v1alpha1.ReleaseCheck{Script: "true"}}
		if phase != "" {
			in.Checks = append(in.Checks, Pod{
				Name: "check-n1", Node: "n1", Owner: "guard", Phase: phase, Created: t0.Add(-time.Minute), Ended: t0.Add(-ended), RequestedAt: token(t0.Add(-60 * time.Minute)),
			})
		}
	}
}

// A node is released only after the other NodeGuards are asked about it.
func TestANodeGoesWhenAllNodeGuardsLetIt(t *testing.T) {
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
		"the other would":                 {scene(cordoned(0), saying("n1", PeerView{})), "n1", "Released ConditionMet", nil},
		"the other would not":             {scene(cordoned(0), saying("n1", full)), "n1", "Held HeldByOtherGuard", nil},
		"the other is not for the node":   {scene(cordoned(0), saying("n2", full)), "n1", "Released ConditionMet", nil},
		"the other has not been told yet": {scene(cordoned(0), saying("n1", unasked)), "n1", "Held HeldByOtherGuard", nil},
		"the other has let it go already": {scene(cordoned(0), saying("n1", full), func(in *Input) {
			in.Peers[0].Released = []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1"}}
		}), "n1", "Released ConditionMet", nil},
		"a third has let it go already": {scene(cordoned(0), saying("n1", full), func(in *Input) {
			in.Peers = append(in.Peers, Peer{Name: "ns/third", Released: []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1"}}})
		}), "n1", "Released ConditionMet", nil},
		"the glass is broken": {scene(cordoned(0), saying("n1", full), func(in *Input) { in.Nodes[0].BreakGlass = "fire" }), "n1", "Released BreakGlass", nil},
		"past the deadline": {scene(cordoned(0), saying("n1", full), func(in *Input) {
			in.Guard.Spec.Release.DeadlineSeconds, in.Guard.Spec.Release.OnDeadline = new(int32(60)), v1alpha1.OnDeadlineRelease
		}), "n1", "Held HeldByOtherGuard", nil},
		"one holds it, and another's check has not said yes": {scene(cordoned(0), func(in *Input) {
			in.Peers = []Peer{{Name: "ns/first", Stances: map[string]PeerView{"n1": unasked}}, {Name: "ns/peer", Stances: map[string]PeerView{"n1": full}}}
		}), "n1", "Held HeldByOtherGuard", nil},
		"nobody has approved here either": {scene(cordoned(0), saying("n1", full), func(in *Input) {
			in.Guard.Spec.Release.When = v1alpha1.ReleaseWhenApproval
		}), "n1", "Held AwaitingApproval", nil},
		"both are to be checked: neither waits for the other": {scene(cordoned(0), checked("", 0), saying("n1", unasked)), "n1", "Held CheckRunning", []string{"make n1"}},
		"no check runs for a node that another holds":         {scene(cordoned(0), checked("", 0), saying("n1", full)), "n1", "Held HeldByOtherGuard", nil},
		"nor again":                                         {scene(cordoned(0), checked(corev1.PodFailed, time.Hour), saying("n1", full)), "n1", "Held HeldByOtherGuard", nil},
		"a check that runs is waited for":                   {scene(cordoned(0), checked(corev1.PodRunning, 0), saying("n1", full)), "n1", "Held CheckRunning", nil},
		"what it has said is told":                          {scene(cordoned(0), checked(corev1.PodFailed, time.Second), saying("n1", full)), "n1", "Held CheckFailed", nil},
		"the check here has said yes":                       {scene(cordoned(0), checked(corev1.PodSucceeded, time.Second), saying("n1", unasked)), "n1", "Held HeldByOtherGuard", nil},
		"the check here said yes long ago":                  {scene(cordoned(0), checked(corev1.PodSucceeded, time.Hour), saying("n1", unasked)), "n1", "Held HeldByOtherGuard", nil},
		"it did, and the other would by now":                {scene(cordoned(0), checked(corev1.PodSucceeded, time.Hour), saying("n1", PeerView{})), "n1", "Held CheckRunning", []string{"delete check-n1"}},
		"one that waits for another keeps no check waiting": {scene(cordoned(0, 1), checked(corev1.PodSucceeded, time.Second), saying("n1", full)), "n2", "Held CheckRunning", []string{"make n2"}},
		"nor that of one that has asked before": {scene(cordoned(1, 0), checked(corev1.PodSucceeded, time.Second), saying("n1", full), func(in *Input) {
			in.Checks[0].RequestedAt = token(in.Budgets[0].RequestedAt)
		}), "n2", "Held CheckRunning", []string{"make n2"}},
		"of two, one after the other": {scene(cordoned(0, 1), saying("n1", PeerView{}), func(in *Input) {
			in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(2))
		}), "n2", "Held Releasing", nil},
		"of two that nobody else guards, both": {scene(cordoned(0, 1), saying("n3", PeerView{}), func(in *Input) {
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
				t.Errorf("it does %v, want %v", does, tt.does)
			}
			if strings.HasSuffix(tt.want, v1alpha1.ReasonHeldByOtherGuard) && (p.WakeAt.IsZero() || !strings.Contains(p.Status.Held[0].Message, "NodeGuard ns/peer")) {
				t.Errorf("nobody looks again, or knows at whom: %s, %+v", p.WakeAt, p.Status.Held)
			}
		})
	}
}

func TestWhatANodeGuardSaysByItself(t *testing.T) {
	approval := func(in *Input) { in.Guard.Spec.Release.When = v1alpha1.ReleaseWhenApproval }
	tests := map[string]struct {
		in   Input
		want string
	}{
		"nobody asks":      {scene(), "map[]"},
		"it would":         {scene(cordoned(0)), "map[n1:]"},
		"somebody is away": {scene(cordoned(0), func(in *Input) { in.Nodes[2].Ready = false }), "map[n1:MaxUnavailableReached]"},
		"of two, each":     {scene(cordoned(0, 1)), "map[n1: n2:]"},
		"one was let go":   {scene(cordoned(0, 1), going(0, false)), "map[n2:MaxUnavailableReached]"},
		"one was let go by another": {scene(cordoned(0, 1), func(in *Input) {
			in.Peers = []Peer{{Name: "ns/peer", Released: []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1"}}}}
		}), "map[n2:MaxUnavailableReached]"},
		"what others say": {scene(cordoned(0), func(in *Input) {
			in.Peers = []Peer{{Name: "ns/peer", Stances: map[string]PeerView{"n1": {Reason: "MaxUnavailableReached"}}}}
		}), "map[n1:]"},
		"none may go":                       {scene(cordoned(0), func(in *Input) { in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(0)) }), "map[n1:ReleasesDisabled]"},
		"somebody else's budget":            {scene(cordoned(0), func(in *Input) { in.Foreign = []ForeignBudget{{"theirs", labels.Everything()}} }), "map[n1:OverlappingBudget]"},
		"nobody has approved":               {scene(cordoned(0), approval), "map[n1:AwaitingApproval]"},
		"somebody has approved":             {scene(cordoned(0), approval, func(in *Input) { in.Nodes[0].Approved = "storage/disks" }), "map[n1:]"},
		"no check has run":                  {scene(cordoned(0), checked("", 0)), "map[n1:CheckRunning (its check)]"},
		"the check says no":                 {scene(cordoned(0), checked(corev1.PodFailed, time.Second)), "map[n1:CheckRunning (its check)]"},
		"the check says yes":                {scene(cordoned(0), checked(corev1.PodSucceeded, time.Second)), "map[n1:]"},
		"it said yes long ago":              {scene(cordoned(0), checked(corev1.PodSucceeded, time.Hour)), "map[n1:]"},
		"which is checked first is nothing": {scene(cordoned(0, 1), checked(corev1.PodRunning, 0)), "map[n1:CheckRunning (its check) n2:CheckRunning (its check)]"},
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
					t.Errorf("%+v says too little, or too much", stance)
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
func TestTwoDrainsDoNotLockWhileATargetIsSick(t *testing.T) {
	sound, sick := scene(cordoned(0, 2)), scene(cordoned(0, 2), func(in *Input) {
		in.Guard.Name, in.Guard.UID, in.Target.Pods[2].Ready = "other", "other", false
		for i := range in.Nodes {
			in.Companions[i].Owner, in.Budgets[i].Owner = "other", "other"
		}
	})
	for range 3 { // each decides after the other
		for _, pair := range [][2]*Input{{&sound, &sick}, {&sick, &sound}} {
			in, other := pair[0], pair[1]
			other.Peers = []Peer{{Name: "storage/" + in.Guard.Name, Released: in.Guard.Status.Released}}
			in.Peers = []Peer{{Name: "storage/" + other.Guard.Name, Released: other.Guard.Status.Released, Stances: Stances(*other)}}
			in.Guard.Status = Next(*in).Status
		}
	}
	for _, in := range []*Input{&sound, &sick} {
		if released := in.Guard.Status.Released; len(released) != 1 || released[0].Node != "n3" {
			t.Errorf("%s has let go %+v, want n3", in.Guard.Name, released)
		}
	}
	// n3 is repaired and available again.
	for _, in := range []*Input{&sound, &sick} {
		in.Nodes[2].Unschedulable, in.Target.Pods[2].Ready, in.Guard.Status.Released = false, true, nil
		in.Budgets[2].RequestedAt = time.Time{}
	}
	sick.Peers, sound.Peers = nil, nil
	if stance := Stances(sick)["n1"]; stance.Reason != "" {
		t.Errorf("n1 is held still: %+v", stance)
	}
	sound.Peers = []Peer{{Name: "storage/other", Stances: Stances(sick)}}
	if got := states(Next(sound))["n1"]; got != "Released ConditionMet" {
		t.Errorf("n1 is %s", got)
	}
}

func TestWhenOthersAreAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		in   Input
		want bool
	}{
		"nobody asks":                      {scene(), false},
		"one asks":                         {scene(cordoned(0)), true},
		"one was let go":                   {scene(cordoned(0), going(0, false)), false},
		"one asks again before it is back": {scene(cordoned(0), going(0, true)), true},
		"one asks that is not guarded": {scene(func(in *Input) {
			in.Nodes = append(in.Nodes, Node{Name: "n4", Unschedulable: true})
			in.Target.Template = nil
		}), false},
	} {
		if got := len(RequestingNodes(tt.in)) > 0; got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// NodeGuards of other nodes are not asked: each costs reads of the API server.
func TestWhoCanGuardANode(t *testing.T) {
	node := []*Node{{Name: "n1", Labels: map[string]string{"disks": "yes"}}}
	ssd := &corev1.PodSpec{NodeSelector: map[string]string{"disks": "yes"}}
	elsewhere := &corev1.PodSpec{NodeSelector: map[string]string{"disks": "no"}}
	released := guardOf("g")
	released.Status.Released = []v1alpha1.ReleasedNode{{Node: "n1"}}
	none, its := func(string) bool { return false }, func(name string) bool { return name == BudgetName("g", "n1") }
	for name, tt := range map[string]struct {
		guard     *v1alpha1.NodeGuard
		daemonSet *corev1.PodSpec
		budget    func(string) bool
		want      bool
	}{
		"its DaemonSet chooses the node":              {guardOf("g"), ssd, none, true},
		"its DaemonSet chooses other nodes":           {guardOf("g"), elsewhere, none, false},
		"it has no DaemonSet, and a budget":           {guardOf("g"), nil, its, true},
		"it has neither":                              {guardOf("g"), nil, none, false},
		"it has released the node":                    {released, elsewhere, none, true},
		"another one has a budget for the node":       {guardOf("other"), elsewhere, its, false},
		"its target has left, and its budget has not": {guardOf("g"), elsewhere, its, true},
	} {
		if got := CanGuard(tt.guard, tt.daemonSet, node, tt.budget); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A broken glass waits for nothing, and nothing else is released before the other NodeGuards were asked.
func TestABrokenGlassComesBeforeOtherNodeGuards(t *testing.T) {
	in := scene(cordoned(0, 1), func(in *Input) { in.Nodes[1].BreakGlass = "fire" })
	in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(3))
	if !BreaksGlass(in) || BreaksGlass(scene(cordoned(0))) || BreaksGlass(scene(func(in *Input) { in.Nodes[0].BreakGlass = "fire" })) {
		t.Error("it is not seen who breaks the glass")
	}
	in.PeersUnknown = true
	if got := states(Next(in)); got["n1"] != "Held Releasing" || got["n2"] != "Released BreakGlass" {
		t.Errorf("the nodes are %v", got)
	}
}

// What another NodeGuard has released has its place here, also before this one has released it.
func TestWhatIsReleasedElsewhereHasItsPlace(t *testing.T) {
	in := scene(cordoned(0, 1), func(in *Input) {
		in.Peers = []Peer{{Name: "ns/a", Released: []v1alpha1.ReleasedNode{{Node: "n2", UID: "uid-n2", Since: metav1.NewTime(t0)}}}}
	})
	stance := Stances(in)["n1"]
	if stance.Reason != v1alpha1.ReasonMaxUnavailableReached || !strings.Contains(stance.Message, "n2 (released by another NodeGuard, not available again yet)") {
		t.Errorf("of n1 it says %+v", stance)
	}
}

// A node that is released elsewhere and unavailable can be repaired while another one waits for it.
func TestAnUnavailableNodeNeedNotWaitForTheFirst(t *testing.T) {
	since := func(minutes int) metav1.Time { return metav1.NewTime(t0.Add(-time.Duration(minutes) * time.Minute)) }
	started := func(in *Input) {
		in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(2))
		in.Peers = []Peer{{Name: "ns/a", Released: []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1", Since: since(9)}, {Node: "n2", UID: "uid-n2", Since: since(5)}}}}
	}
	for name, tt := range map[string]struct {
		in   Input
		want string
	}{
		"the first waits for the second": {scene(cordoned(0, 1), started, func(in *Input) { in.Nodes[1].Ready, in.Nodes[2].Ready = false, false }), "Released ConditionMet"},
		"the first, which is available, waits for the second anyway": {scene(cordoned(0, 1), started, func(in *Input) {
			in.Nodes[1].Ready, in.Guard.Spec.MaxUnavailable = false, nil
		}), "Released ConditionMet"},
		"the place of the first is all there is": {scene(cordoned(0, 1), started, func(in *Input) {
			in.Nodes[0].Ready, in.Nodes[1].Ready, in.Guard.Spec.MaxUnavailable = false, false, nil
			in.Guard.Spec.Release.When, in.Nodes[1].Approved = v1alpha1.ReleaseWhenApproval, "storage/disks"
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
func TestAReturningNodeIsRepairedWhileAnotherOneWaitsForItsPlace(t *testing.T) {
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
		"the other one retains a place as well": {scene(cordoned(0, 1), going(0, true), going(1, true), peer, func(in *Input) { in.Nodes[0].Ready, in.Nodes[1].Ready = false, false }),
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
