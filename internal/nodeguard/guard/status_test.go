// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

// One of the conditions is True, and its message names what is missing.
func TestConditions(t *testing.T) {
	without := func(in *Input) { in.Budgets = nil }
	byPods := func(kinds ...string) func(*Input) {
		return func(in *Input) {
			in.Target.Template = nil
			for i := range in.Target.Pods {
				in.Target.Pods[i].OwnerKind = kinds[i%len(kinds)]
			}
		}
	}
	tests := map[string]struct {
		in                 Input
		kind, reason, says string
	}{
		"the namespace is not allowed": {
			scene(func(in *Input) { in.NotAllowed = hold.NamespaceNotAllowed("storage") }),
			v1alpha1.ConditionStalled,
			v1alpha1.ReasonNamespaceNotAllowed,
			"",
		},
		"the pod selector is not valid": {
			scene(func(in *Input) { in.Target.Invalid = "a selector" }),
			v1alpha1.ConditionStalled,
			v1alpha1.ReasonInvalidPodSelector,
			"a selector",
		},
		"the target does not exist": {
			scene(func(in *Input) { in.Target.Missing = true }),
			v1alpha1.ConditionStalled,
			v1alpha1.ReasonTargetNotFound,
			"DaemonSet disks does not exist",
		},
		"companions are rejected": {
			scene(
				func(in *Input) { in.Companions = in.Companions[1:] },
				func(in *Input) { in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "quota"} },
			),
			v1alpha1.ConditionStalled,
			v1alpha1.ReasonPodForbidden,
			"quota",
		},
		"the companion that was rejected is there, or is no longer needed": {
			scene(func(in *Input) { in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "quota"} }),
			v1alpha1.ConditionReady,
			v1alpha1.ReasonCompanionsReady,
			"",
		},
		"a budget of another owner selects companions": {
			scene(func(in *Input) { in.Foreign = []kube.ForeignBudget{{Name: "theirs", Selector: labels.Everything()}} }),
			v1alpha1.ConditionStalled,
			v1alpha1.ReasonOverlappingBudget,
			"theirs",
		},
		"budgets of other owners select other pods": {
			scene(func(in *Input) {
				in.Foreign = []kube.ForeignBudget{{Name: "invalid"}, {Name: "theirs", Selector: labels.Nothing()}}
			}),
			v1alpha1.ConditionReady,
			v1alpha1.ReasonCompanionsReady,
			"",
		},
		"no node is guarded": {scene(func(in *Input) {
			in.Nodes, in.Target.Pods, in.Companions = nil, nil, nil
		}), v1alpha1.ConditionReady, v1alpha1.ReasonNoGuardedNodes, "DaemonSet disks"},
		"a taint would evict a companion": {scene(func(in *Input) {
			in.Nodes[0].Taints, in.Companions = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}}, in.Companions[1:]
		}), v1alpha1.ConditionStalled, v1alpha1.ReasonUntoleratedTaint, "taint x of n1, which"},
		"a companion runs despite a taint": {
			scene(func(in *Input) { in.Nodes[0].Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}} }),
			v1alpha1.ConditionReady,
			v1alpha1.ReasonCompanionsReady,
			"",
		},
		"a taint would evict a companion from a node that is not Ready": {scene(func(in *Input) {
			in.Nodes[0].Taints, in.Nodes[0].Ready, in.Companions = []corev1.Taint{
				{Key: "x", Effect: corev1.TaintEffectNoExecute},
			}, false, in.Companions[1:]
		}), v1alpha1.ConditionReady, v1alpha1.ReasonCompanionsReady, ""},
		"a taint would evict a companion from a released node": {scene(cordoned(0), going(0, false), func(in *Input) {
			in.Nodes[0].Taints, in.Companions = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}}, in.Companions[1:]
		}), v1alpha1.ConditionReady, v1alpha1.ReasonCompanionsReady, ""},
		"everything is ready": {scene(), v1alpha1.ConditionReady, v1alpha1.ReasonCompanionsReady, "each guarded node"},
		"a node is held": {scene(cordoned(0), func(in *Input) { in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired }),
			v1alpha1.ConditionReady, v1alpha1.ReasonNodesHeld,
			"nodes that wait for their release: n1 (its release is not approved"},
		"a node is released": {scene(cordoned(0), going(0, false), func(in *Input) { in.Companions = in.Companions[1:] }),
			v1alpha1.ConditionReady, v1alpha1.ReasonCompanionsReady, "2 of 3 guarded nodes have a ready companion"},
		"a companion is not ready": {
			scene(func(in *Input) { in.Companions[1].Ready = false }),
			v1alpha1.ConditionReconciling,
			v1alpha1.ReasonCompanionsNotReady,
			"n2",
		},
		"a companion waits": {
			scene(func(in *Input) { in.Companions[1].Ready, in.Companions[1].Waiting = false, "ErrImagePull" }),
			v1alpha1.ConditionReconciling,
			v1alpha1.ReasonCompanionsNotReady,
			"n2 (ErrImagePull)",
		},
		"a budget is missing": {
			scene(without),
			v1alpha1.ConditionReconciling,
			v1alpha1.ReasonCompanionsNotReady,
			"the PodDisruptionBudget of the companions does not exist yet",
		},
		"the budget of a held node is missing": {
			scene(without, func(in *Input) { in.Nodes[0].Unschedulable, in.Nodes[2].Ready = true, false }),
			v1alpha1.ConditionReconciling,
			v1alpha1.ReasonCompanionsNotReady,
			"the PodDisruptionBudget of the companions does not exist yet",
		},
		"the budget of a node that is not Ready is missing": {
			scene(without, func(in *Input) { in.Nodes[0].Ready = false }),
			v1alpha1.ConditionReconciling,
			v1alpha1.ReasonCompanionsNotReady,
			"the PodDisruptionBudget of the companions does not exist yet",
		},
		"a budget is rejected": {
			scene(without, func(in *Input) { in.BudgetRefused = "the API server refuses it: quota" }),
			v1alpha1.ConditionStalled,
			v1alpha1.ReasonBudgetForbidden,
			"quota",
		},
		"a budget was rejected, and all exist": {
			scene(func(in *Input) { in.BudgetRefused = "quota" }),
			v1alpha1.ConditionReady,
			v1alpha1.ReasonCompanionsReady,
			"",
		},
		"the target is owned by a Deployment": {
			scene(byPods("ReplicaSet")),
			v1alpha1.ConditionStalled,
			v1alpha1.ReasonTargetNotDaemonSet,
			"(ReplicaSet)",
		},
		"the target has several owners": {
			scene(byPods("DaemonSet", "StatefulSet", "")),
			v1alpha1.ConditionStalled,
			v1alpha1.ReasonTargetNotDaemonSet,
			"(StatefulSet, no owner)",
		},
		"the target is owned by a DaemonSet, and static": {
			scene(byPods("DaemonSet", "Node")),
			v1alpha1.ConditionReady,
			v1alpha1.ReasonCompanionsReady,
			"",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			conditions := Next(tt.in).Status.Conditions
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				c := meta.FindStatusCondition(conditions, kind)
				if c == nil || (c.Status == metav1.ConditionTrue) != (kind == tt.kind) || c.Reason != tt.reason ||
					!strings.Contains(c.Message, tt.says) {
					t.Errorf("%s is %+v, want %s True (%s: %s)", kind, c, tt.kind, tt.reason, tt.says)
				}
			}
		})
	}
}

// At most three of the other NodeGuards of the target are named.
func TestNodeGuardsOfTheSameTargetAreNamed(t *testing.T) {
	same, other := Peer{SameTarget: true}, Peer{}
	named := func(p Peer, name string) Peer { p.Name = name; return p }
	for name, tt := range map[string]struct {
		peers []Peer
		want  string
	}{
		"none":                  {nil, ""},
		"one of another target": {[]Peer{named(other, "ns/a")}, ""},
		"one":                   {[]Peer{named(other, "ns/a"), named(same, "ns/b")}, "; NodeGuard ns/b has"},
		"four":                  {[]Peer{named(same, "ns/a"), named(same, "ns/b"), named(same, "ns/c"), named(same, "ns/d")}, "; NodeGuard ns/a, ns/b, ns/c has"},
	} {
		got := (&summary{observed: observe(&Input{Peers: tt.peers})}).peersMessage()
		if got, _, _ = strings.Cut(got, " the same target"); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestOwnerOfTargetPod(t *testing.T) {
	yes := true
	pod := func(kind string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Controller: &yes}}}}
	}
	for want, p := range map[string]*corev1.Pod{"ReplicaSet": pod("ReplicaSet"), "DaemonSet": pod("DaemonSet"), "": {}} {
		if view, is := ViewTarget(p); !is || view.OwnerKind != want {
			t.Errorf("the owner is %q, want %q", view.OwnerKind, want)
		}
	}
}

func TestWhatANodeLacks(t *testing.T) {
	with := func(change func(*Pod)) func(*nodePlan) {
		return func(n *nodePlan) {
			pod := Pod{Ready: true, Phase: corev1.PodRunning, Revision: "r1"}
			change(&pod)
			n.companion = &pod
		}
	}
	starting := with(func(p *Pod) { p.Ready = false })
	for name, tt := range map[string]struct {
		node *nodePlan
		want string
	}{
		"nothing":                                {nodeOf("n", with(func(*Pod) {})), ""},
		"a companion":                            {nodeOf("n"), "n"},
		"a companion, and it is not Ready":       {nodeOf("n", notReady), ""},
		"a companion, and it is released":        {nodeOf("n", entered(released)), ""},
		"a companion, and it is released now":    {nodeOf("n", (*nodePlan).expectRelease), ""},
		"a companion that is up to date":         {nodeOf("n", with(func(p *Pod) { p.Revision = "r0" })), "n"},
		"a companion that is ready":              {nodeOf("n", starting), "n"},
		"a companion that can start":             {nodeOf("n", with(func(p *Pod) { p.Ready, p.Waiting = false, "ErrImagePull" })), "n (ErrImagePull)"},
		"a ready companion, and it is not Ready": {nodeOf("n", starting, notReady), ""},
	} {
		if got := (&summary{observed: observe(&Input{Revision: "r1"})}).lack(tt.node); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestListsAreShort(t *testing.T) {
	for want, names := range map[string][]string{"": nil, "a": {"a"}, "a, b, c": {"a", "b", "c"}, "a, b, c and 1 more": {"a", "b", "c", "d"}} {
		if got := listed(names); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if pending, bound := podOnNode("p", ""), podOnNode("p", "n"); pending != "p" || bound != "p on node n" {
		t.Errorf("%q and %q", pending, bound)
	}
}

// A Node that was recreated is not the one that was released.
func TestARecreatedNodeIsNotReleased(t *testing.T) {
	p := Next(scene(going(0, false), func(in *Input) { in.Nodes[0].UID = "another" }))
	if got := states(p)["n1"]; got != "Guarded CompanionsReady" || len(p.Status.Released) != 1 {
		t.Errorf("it is %s; released: %+v", got, p.Status.Released)
	}
}

// Another pass is planned for what no event shows.
func TestNextPass(t *testing.T) {
	approval := func(in *Input) { in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired }
	deadline := func(seconds int32) func(*Input) {
		return func(in *Input) { in.Guard.Spec.Release.DeadlineSeconds = &seconds }
	}
	peer := func(in *Input) {
		in.Peers = []Peer{{Name: "ns/a", Stances: map[string]PeerView{"n1": {Reason: v1alpha1.ReasonAwaitingApproval}}}}
	}
	for name, tt := range map[string]struct {
		in   Input
		want time.Time
	}{
		"nothing is awaited":                 {scene(), time.Time{}},
		"a name is taken":                    {scene(takes("disks-1")), t0.Add(takenAgain)},
		"an approval":                        {scene(cordoned(0), approval), time.Time{}},
		"an approval, and another NodeGuard": {scene(cordoned(0), approval, peer), t0.Add(peerWait)},
		"a deadline":                         {scene(cordoned(0), approval, deadline(3601)), t0.Add(time.Second)},
		"the deadline has passed":            {scene(cordoned(0), approval, deadline(3600)), time.Time{}},
	} {
		if got := Next(tt.in).WakeAt; !got.Equal(tt.want) {
			t.Errorf("%s: at %v, want %v", name, got, tt.want)
		}
	}
}

// The remedy names a field of the NodeGuard, whose template has the shape of a pod template.
func TestTheRemedyOfAnUntoleratedTaintIsAFieldOfTheTemplate(t *testing.T) {
	s := &summary{untolerated: []string{"n"}, taint: "example.com/disks"}
	if c := s.taintNotTolerated(); c == nil ||
		!strings.HasSuffix(c.message, "taint example.com/disks of n, which are not guarded: add it to spec.template.spec.tolerations") {
		t.Errorf("the condition is %+v", c)
	}
}
