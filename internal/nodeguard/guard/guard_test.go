// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// scene returns three guarded, available nodes n1, n2 and n3, read from the API server.
func scene(changes ...func(*Input)) Input {
	g := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "disks", UID: "guard", Generation: 1}}
	g.Spec.Target.DaemonSet = "disks"
	in := Input{
		Guard:        g,
		Live:         true,
		Now:          t0,
		Revision:     "r1",
		Target:       Target{Name: "DaemonSet disks", Template: &corev1.PodSpec{}},
		Labels:       labels.Set{"app": "companion"},
		Budgets:      []Budget{{Name: BudgetName("disks"), UID: "budget", ResourceVersion: "1", Owner: "guard", Processed: true}},
		Placeholders: []Pod{{Name: "placeholder", UID: "placeholder", Owner: "guard", Phase: corev1.PodPending}},
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		addNode(&in, name)
	}
	for _, change := range changes {
		change(&in)
	}
	return in
}

func addNode(in *Input, name string) {
	in.Nodes = append(in.Nodes, kube.Node{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Ready: true})
	in.Target.Pods = append(in.Target.Pods, TargetPod{Node: name, Ready: true})
	in.Companions = append(
		in.Companions,
		Pod{
			Name:     "c-" + name,
			UID:      types.UID("c-" + name),
			Node:     name,
			Owner:    "guard",
			Revision: "r1",
			Created:  t0.Add(-time.Hour),
			Phase:    corev1.PodRunning,
			Ready:    true,
		},
	)
	in.Budgets[0].MinAvailable++
	in.Budgets[0].Healthy++
}

// cordoned adds release requests of nodes, the earliest first.
func cordoned(indexes ...int) func(*Input) {
	return func(in *Input) {
		in.Budgets[0].MinAvailable, in.Budgets[0].RequestedAt = Locked, map[string]time.Time{}
		for at, i := range indexes {
			in.Nodes[i].Unschedulable = true
			in.Budgets[0].RequestedAt[NodeID(in.Nodes[i].Name)] = t0.Add(time.Duration(at-60) * time.Minute)
		}
	}
}

// going adds a node that was released a minute ago, while its companion existed.
func going(i int, returning bool) func(*Input) {
	return func(in *Input) {
		in.Guard.Status.Released = append(in.Guard.Status.Released, v1alpha1.ReleasedNode{
			Node: in.Nodes[i].Name, UID: in.Nodes[i].UID, Since: metav1.NewTime(t0.Add(-time.Minute)), Returning: returning,
			CompanionUID: in.Companions[i].UID,
		})
	}
}

// releaseEnds notes on the companion of the first node that its release has ended.
func releaseEnds(in *Input) { in.Companions[0].EndedRelease = releaseID(in.Guard.Status.Released[0]) }

func states(p Plan) map[string]string {
	m := map[string]string{}
	for _, n := range p.Nodes {
		m[n.Name] = string(n.State) + " " + n.Reason
	}
	return m
}

func TestHoldOrRelease(t *testing.T) {
	check := func(phase corev1.PodPhase, ended time.Time, asked time.Time) func(*Input) {
		return func(in *Input) {
			in.Guard.Spec.Release = v1alpha1.ReleaseSpec{Check: &v1alpha1.ReleaseCheck{Script: "true"}}
			if phase != "" {
				in.Checks = append(
					in.Checks,
					Pod{
						Name:        "check",
						Node:        "n1",
						Owner:       "guard",
						Phase:       phase,
						Created:     t0.Add(-30 * time.Second),
						Ended:       ended,
						RequestedAt: token(asked),
						Message:     "2 volumes",
						ExitCode:    3,
					},
				)
			}
		}
	}
	asked := t0.Add(-60 * time.Minute)
	deadline := func(action v1alpha1.DeadlineAction) func(*Input) {
		return func(in *Input) {
			in.Guard.Spec.Release.DeadlineSeconds, in.Guard.Spec.Release.OnDeadline = new(int32(60)), action
		}
	}
	tests := map[string]struct {
		in   Input
		node string
		want string
		says string
	}{
		"no release request": {scene(), "n1", "Guarded CompanionsReady", ""},
		"one release request, and all others are available": {scene(cordoned(0)), "n1", "Released ConditionMet", ""},
		"the second of two release requests waits": {
			scene(cordoned(1, 0)),
			"n1",
			"Held MaxUnavailableReached",
			"n2 (released at 2026-03-01T12:00:00Z, not available again yet)",
		},
		"the first of two release requests is released": {scene(cordoned(1, 0)), "n2", "Released ConditionMet", ""},
		"another is not Ready": {
			scene(cordoned(0), func(in *Input) { in.Nodes[2].Ready = false }),
			"n1",
			"Held MaxUnavailableReached",
			"n3 (not Ready)",
		},
		"another has no ready pod": {
			scene(cordoned(0), func(in *Input) { in.Target.Pods[2].Ready = false }),
			"n1",
			"Held MaxUnavailableReached",
			"n3 (no ready pod of the target)",
		},
		"a pod of the target is on no node": {
			scene(cordoned(0), func(in *Input) { in.Target.Pods, in.Target.Template = append(in.Target.Pods, TargetPod{}), nil }),
			"n1",
			"Held MaxUnavailableReached",
			"pods of the target that are on no node: 1",
		},
		"a pod of the target is on a node that is gone": {scene(cordoned(0), func(in *Input) {
			in.Target.Pods, in.Target.Template = append(in.Target.Pods, TargetPod{Node: "gone"}, TargetPod{Node: "gone", Ready: true}), nil
		}), "n1", "Released ConditionMet", ""},
		"a pod of a DaemonSet is not scheduled": {scene(cordoned(0), func(in *Input) {
			in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(2))
			in.Target.Pods[2] = TargetPod{}
		}), "n1", "Released ConditionMet", ""},
		"two may be unavailable": {
			scene(cordoned(0, 1), func(in *Input) { in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(2)) }),
			"n2",
			"Released ConditionMet",
			"",
		},
		"none may be unavailable": {
			scene(cordoned(0), func(in *Input) { in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(0)) }),
			"n1",
			"Held ReleasesDisabled",
			"spec.maxUnavailable is 0",
		},
		"an unhealthy node while another one is unhealthy": {
			scene(cordoned(0), func(in *Input) { in.Nodes[0].Ready, in.Nodes[2].Ready = false, false }),
			"n1",
			"Released ConditionMet",
			"",
		},
		"an unhealthy node while another one is released": {
			scene(cordoned(0, 1), going(1, false), func(in *Input) { in.Nodes[0].Ready = false }),
			"n1",
			"Held MaxUnavailableReached",
			"n2",
		},
		"a node whose companion is not ready while another one is unhealthy": {
			scene(cordoned(0), func(in *Input) { in.Companions[0].Ready, in.Nodes[2].Ready = false, false }),
			"n1",
			"Held MaxUnavailableReached",
			"n3",
		},
		"the end of an earlier release is recorded first": {
			scene(cordoned(0), going(0, false), releaseEnds),
			"n1",
			"Held Releasing",
			"the end of its earlier release is recorded first",
		},
		"a returning node waits for one that breaks glass": {scene(cordoned(0, 1), going(1, true), func(in *Input) {
			in.Nodes[0].BreakGlass, in.Nodes[1].Ready = "fire", false
		}), "n2", "Held MaxUnavailableReached", "n1"},
		"a returning node waits for one that breaks glass, before that is written": {scene(cordoned(0, 1), going(1, true), func(in *Input) {
			in.Nodes[0].BreakGlass, in.Nodes[1].Ready, in.Live = "fire", false, false
		}), "n2", "Held MaxUnavailableReached", "n1"},
		"a returning node still counts": {
			scene(cordoned(0), going(1, true), func(in *Input) { in.Companions[1].Ready = false }),
			"n1",
			"Held MaxUnavailableReached",
			"its companion is not ready yet",
		},
		"a returning node with a new request waits": {
			scene(cordoned(1), going(1, true), func(in *Input) { in.Nodes[2].Ready = false }),
			"n2",
			"Held MaxUnavailableReached",
			"n3",
		},
		"no approval": {
			scene(cordoned(0), func(in *Input) { in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired }),
			"n1",
			"Held AwaitingApproval",
			"",
		},
		"approved for another NodeGuard": {scene(cordoned(0), func(in *Input) {
			in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired
			in.Nodes[0].Approved = "storage/other"
		}), "n1", "Held AwaitingApproval", ""},
		"approved": {scene(cordoned(0), func(in *Input) {
			in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired
			in.Nodes[0].Approved = "a/b, storage/disks"
		}), "n1", "Released ConditionMet", ""},
		"no check has run": {
			scene(cordoned(0), check("", t0, asked)),
			"n1",
			"Held CheckRunning",
			"",
		},
		"the check runs": {
			scene(cordoned(0), check(corev1.PodRunning, time.Time{}, asked)),
			"n1",
			"Held CheckRunning",
			"",
		},
		"the check failed": {
			scene(cordoned(0), check(corev1.PodFailed, t0.Add(-5*time.Second), asked)),
			"n1",
			"Held CheckFailed",
			"exit code 3): 2 volumes",
		},
		"the check failed long ago": {
			scene(cordoned(0), check(corev1.PodFailed, t0.Add(-time.Minute), asked)),
			"n1",
			"Held CheckRunning",
			"",
		},
		"the check succeeded": {
			scene(cordoned(0), check(corev1.PodSucceeded, t0.Add(-5*time.Second), asked)),
			"n1",
			"Released ConditionMet",
			"",
		},
		"the check succeeded long ago": {
			scene(cordoned(0), check(corev1.PodSucceeded, t0.Add(-time.Minute), asked)),
			"n1",
			"Held CheckRunning",
			"",
		},
		"the check was for another release request": {
			scene(cordoned(0), check(corev1.PodSucceeded, t0.Add(-5*time.Second), asked.Add(-time.Hour))),
			"n1",
			"Held CheckRunning",
			"",
		},
		"no check can run on the node": {
			scene(cordoned(0), check("", t0, asked), func(in *Input) { in.Nodes[0].Ready = false }),
			"n1",
			"Released ConditionMet",
			"",
		},
		"a node waits while another one is checked": {
			scene(cordoned(0, 1), check(corev1.PodRunning, time.Time{}, asked)),
			"n2",
			"Held WaitingForTurn",
			"",
		},
		"the check of the first node failed": {
			scene(cordoned(0, 1), check(corev1.PodFailed, t0.Add(-5*time.Second), asked)),
			"n2",
			"Held CheckRunning",
			"",
		},
		"an unhealthy node while another one is checked": {
			scene(cordoned(0, 1), check(corev1.PodRunning, time.Time{}, asked), func(in *Input) { in.Nodes[1].Ready = false }),
			"n2",
			"Released ConditionMet",
			"",
		},
		"the check of the second node succeeded, and the first one has none": {
			scene(cordoned(1, 0), check(corev1.PodSucceeded, t0.Add(-5*time.Second), asked.Add(time.Minute))),
			"n1",
			"Released ConditionMet",
			"",
		},
		"a node waits for no check of another one without release.check": {
			scene(cordoned(0, 1), check(corev1.PodRunning, time.Time{}, asked), func(in *Input) {
				in.Guard.Spec.Release = v1alpha1.ReleaseSpec{Approval: v1alpha1.ApprovalRequired}
				in.Nodes[1].Approved = "storage/disks"
			}),
			"n2",
			"Released ConditionMet",
			"",
		},
		"the next check is rejected, and the last one still exists": {
			scene(cordoned(0), check(corev1.PodFailed, t0.Add(-time.Minute), asked), func(in *Input) {
				in.CheckObstacles = map[string]*hold.Why{
					"n1": {Reason: v1alpha1.ReasonPodForbidden, Message: "quota", Until: t0.Add(time.Second)},
				}
			}),
			"n1",
			"Held CheckRunning",
			"",
		},
		"the check is overdue": {scene(cordoned(0, 1), check(corev1.PodRunning, time.Time{}, asked), func(in *Input) {
			in.Checks[0].Created = t0.Add(-121 * time.Second)
		}), "n1", "Held CheckFailed", "did not end within 1m0s"},
		"the check of the first node is overdue": {scene(cordoned(0, 1), check(corev1.PodRunning, time.Time{}, asked), func(in *Input) {
			in.Checks[0].Created = t0.Add(-121 * time.Second)
		}), "n2", "Held CheckRunning", ""},
		"the check of the first node does not terminate": {
			scene(cordoned(0, 1), check(corev1.PodRunning, time.Time{}, asked), func(in *Input) {
				in.Checks[0].Terminating = true
			}),
			"n2",
			"Held CheckRunning",
			"",
		},
		"the check succeeded, by a clock that is ahead": {
			scene(cordoned(0), check(corev1.PodSucceeded, t0.Add(time.Hour), asked), func(in *Input) {
				in.Checks[0].Created = t0.Add(-10 * time.Minute)
			}),
			"n1",
			"Held CheckRunning",
			"",
		},
		"the first of several nodes that other NodeGuards have released": {scene(cordoned(0, 1, 2), func(in *Input) {
			in.Peers = []Peer{
				{Name: "ns/a", Released: []v1alpha1.ReleasedNode{{Node: "n2", UID: "uid-n2", Since: metav1.NewTime(t0.Add(-time.Minute))}}},
				{Name: "ns/b", Released: []v1alpha1.ReleasedNode{{Node: "n3", UID: "uid-n3", Since: metav1.NewTime(t0.Add(-time.Hour))}}},
			}
		}), "n3", "Released ConditionMet", ""},
		"the second of several nodes that other NodeGuards have released": {scene(cordoned(0, 1, 2), func(in *Input) {
			in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(2))
			in.Peers = []Peer{
				{Name: "ns/a", Released: []v1alpha1.ReleasedNode{{Node: "n2", UID: "uid-n2", Since: metav1.NewTime(t0.Add(-time.Minute))}}},
				{Name: "ns/b", Released: []v1alpha1.ReleasedNode{{Node: "n3", UID: "uid-n3", Since: metav1.NewTime(t0.Add(-time.Hour))}}},
			}
		}), "n2", "Held WaitingForOtherRelease", "NodeGuard ns/b has released node n3"},
		"two nodes that other NodeGuards have released at the same time, by name": {scene(cordoned(1, 0), func(in *Input) {
			since := metav1.NewTime(t0.Add(-time.Minute))
			in.Peers = []Peer{
				{Name: "ns/a", Released: []v1alpha1.ReleasedNode{{Node: "n2", UID: "uid-n2", Since: since}}},
				{Name: "ns/b", Released: []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1", Since: since}}},
			}
		}), "n1", "Released ConditionMet", ""},
		"past the deadline, released": {
			scene(cordoned(0), deadline(v1alpha1.OnDeadlineRelease), func(in *Input) { in.Nodes[2].Ready = false }),
			"n1",
			"Released DeadlineReached",
			"",
		},
		"past the deadline, but another node is released": {
			scene(cordoned(0, 1), deadline(v1alpha1.OnDeadlineRelease), going(1, false)),
			"n1",
			"Held MaxUnavailableReached",
			"waits for nothing else",
		},
		"past the deadline, held": {
			scene(cordoned(0), deadline(v1alpha1.OnDeadlineHold), func(in *Input) { in.Nodes[2].Ready = false }),
			"n1",
			"Held MaxUnavailableReached",
			"release.onDeadline is Hold",
		},
		"break glass": {scene(cordoned(0), func(in *Input) {
			in.Guard.Spec.MaxUnavailable = new(intstr.FromInt32(0))
			in.Nodes[0].BreakGlass = "fire"
		}), "n1", "Released BreakGlass", ""},
		"break glass without a release request": {
			scene(func(in *Input) { in.Nodes[0].BreakGlass = "fire" }),
			"n1",
			"Guarded CompanionsReady",
			"",
		},
		"a budget of another owner": {
			scene(cordoned(0), func(in *Input) { in.Foreign = []kube.ForeignBudget{{Name: "theirs", Selector: labels.Everything()}} }),
			"n1",
			"Held OverlappingBudget",
			"theirs",
		},
		"another NodeGuard has released another node": {scene(cordoned(0, 1), func(in *Input) {
			in.Peers = []Peer{{Name: "ns/peer", Released: []v1alpha1.ReleasedNode{{Node: "n2", UID: "uid-n2"}}}}
			in.Nodes[2].Ready = false
		}), "n1", "Held WaitingForOtherRelease", "NodeGuard ns/peer has released node n2"},
		"another NodeGuard has released this node": {scene(cordoned(0, 1), func(in *Input) {
			in.Peers = []Peer{{Name: "ns/peer", Released: []v1alpha1.ReleasedNode{{Node: "n2", UID: "uid-n2"}}}}
		}), "n2", "Released ConditionMet", ""},
		"tainted by cluster-autoscaler": {scene(func(in *Input) {
			in.Nodes[0].Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: "NoSchedule"}}
		}), "n1", "Released ConditionMet", ""},
		"tainted by Karpenter": {scene(func(in *Input) {
			in.Nodes[0].Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: "NoSchedule"}}
		}), "n1", "Released ConditionMet", ""},
		"a candidate of cluster-autoscaler": {scene(func(in *Input) {
			in.Nodes[0].Taints = []corev1.Taint{{Key: "DeletionCandidateOfClusterAutoscaler", Effect: "PreferNoSchedule"}}
		}), "n1", "Guarded CompanionsReady", ""},
		"condition of another tool": {
			scene(func(in *Input) { in.Nodes[0].Announced = "MaintenancePlanned" }),
			"n1",
			"Released ConditionMet",
			"",
		},
		"deleted": {scene(func(in *Input) { in.Nodes[0].Deleting = true }), "n1", "Released ConditionMet", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(tt.in)
			if got := states(p)[tt.node]; got != tt.want {
				t.Errorf("%s is %q, want %q", tt.node, got, tt.want)
			}
			for _, n := range p.Nodes {
				if n.Name == tt.node && !strings.Contains(n.Message, tt.says) {
					t.Errorf("%q does not say %q", n.Message, tt.says)
				}
			}
		})
	}
}

// A stale view decides nothing: neither which node is released, nor which one is available again.
func TestDecisionsNeedLiveRead(t *testing.T) {
	for name, in := range map[string]Input{
		"released":        scene(cordoned(0)),
		"returning":       scene(going(0, false)),
		"available again": scene(going(0, true), releaseEnds),
		"deleted":         scene(going(0, false), releaseEnds, func(in *Input) { in.Nodes[0].UID = "another" }),
	} {
		t.Run(name, func(t *testing.T) {
			if p := Next(in); len(p.Moves) != 1 || p.Confirm {
				t.Errorf("on a live read: %+v, confirm %v", p.Moves, p.Confirm)
			}
			in.Live = false
			if p := Next(in); len(p.Moves) != 0 || !p.Confirm || len(p.Status.Released) != len(in.Guard.Status.Released) {
				t.Errorf("on a view that may be stale: %+v, confirm %v", p.Moves, p.Confirm)
			}
		})
	}
}

func TestBudgets(t *testing.T) {
	asked := map[string]time.Time{NodeID("n1"): t0.Add(-60 * time.Minute)}
	is := scene().Budgets[0]
	locked := is
	locked.MinAvailable, locked.RequestedAt = Locked, asked
	with := func(change func(*Budget)) func(*Input) { return func(in *Input) { change(&in.Budgets[0]) } }
	waits := func(in *Input) { in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired }
	without := func(in *Input) { in.Companions = in.Companions[1:] }
	tests := map[string]struct {
		in   Input
		want Action
	}{
		"up to date": {scene(), nil},
		"missing":    {scene(func(in *Input) { in.Budgets = nil }), CreateBudget{BudgetState{MinAvailable: 3}}},
		"it requires fewer than there are": {
			scene(with(func(b *Budget) { b.MinAvailable = 2 })),
			SetBudget{scene(with(func(b *Budget) { b.MinAvailable = 2 })).Budgets[0], BudgetState{MinAvailable: 3}},
		},
		"it requires more than there are": {
			scene(with(func(b *Budget) { b.MinAvailable = 4 })),
			SetBudget{scene(with(func(b *Budget) { b.MinAvailable = 4 })).Budgets[0], BudgetState{MinAvailable: 3}},
		},
		"it requires more, and the disruption controller counts one that is gone": {
			scene(with(func(b *Budget) { b.MinAvailable, b.Healthy = 4, 4 })), nil,
		},
		"it requires more, and the disruption controller has not observed it": {
			scene(with(func(b *Budget) { b.MinAvailable, b.Processed = 4, false })), nil,
		},
		"a companion is missing, and it requires it": {
			scene(without),
			CreateCompanion{Node: "n1", Name: PodName("disks", "", "companion", "n1", 0)},
		},
		"a companion is missing, and it requires fewer": {
			scene(without, with(func(b *Budget) { b.MinAvailable, b.Healthy = 2, 2 })),
			SetBudget{scene(with(func(b *Budget) { b.MinAvailable, b.Healthy = 2, 2 })).Budgets[0], BudgetState{MinAvailable: 3}},
		},
		"a companion is missing, and cannot run": {
			scene(without, func(in *Input) { in.Nodes[0].Ready, in.Budgets[0].Healthy = false, 2 }),
			SetBudget{scene(with(func(b *Budget) { b.Healthy = 2 })).Budgets[0], BudgetState{MinAvailable: 2}},
		},
		"a companion has ended just now": {scene(endedCompanion(failedWait - 1)), nil},
		"a node waits": {
			scene(waits, func(in *Input) { in.Nodes[0].Unschedulable = true }),
			SetBudget{is, BudgetState{MinAvailable: Locked, RequestedAt: map[string]time.Time{NodeID("n1"): t0}}},
		},
		"a node waits still":                     {scene(waits, cordoned(0)), nil},
		"a node is released at once":             {scene(func(in *Input) { in.Nodes[0].Unschedulable = true }), nil},
		"a node is released after it has waited": {scene(cordoned(0)), nil},
		"a node was released after it has waited": {
			scene(cordoned(0), going(0, false), without, with(func(b *Budget) { b.Healthy = 2 })),
			SetBudget{
				scene(cordoned(0), with(func(b *Budget) { b.Healthy = 2 })).Budgets[0],
				BudgetState{MinAvailable: 2, RequestedAt: asked},
			},
		},
		"a node was released": {
			scene(cordoned(0), going(0, false), without, with(func(b *Budget) { b.MinAvailable, b.Healthy = 2, 2 })),
			nil,
		},
		"the request has ended": {
			scene(with(func(b *Budget) { b.MinAvailable, b.RequestedAt = Locked, asked })),
			SetBudget{locked, BudgetState{MinAvailable: 3}},
		},
		"changed by another client": {
			scene(with(func(b *Budget) { b.Drifted = true })),
			SetBudget{scene(with(func(b *Budget) { b.Drifted = true })).Budgets[0], BudgetState{MinAvailable: 3}},
		},
		"another pod has the labels of companions": {scene(stranger), SetBudget{is, BudgetState{MinAvailable: Locked}}},
		"no node is guarded any more": {scene(func(in *Input) {
			in.Nodes, in.Companions, in.Target.Pods, in.Placeholders = nil, nil, nil, nil
		}), DeleteBudget{is}},
		"a companion of a node that is guarded no more still exists": {scene(func(in *Input) {
			in.Nodes, in.Companions, in.Target.Pods = nil, in.Companions[:1], nil
			in.Companions[0].Terminating = true
		}), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var want []Action
			if tt.want != nil {
				want = []Action{tt.want}
			}
			if diff := cmp.Diff(want, Next(tt.in).Actions, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOnlySomeRequestsAreStored : the oldest ones, and more than can be released at once are not needed.
func TestOnlySomeRequestsAreStored(t *testing.T) {
	in := scene(func(in *Input) {
		in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired
		for i := range maxRequests + 10 {
			addNode(in, fmt.Sprintf("m%03d", i))
		}
		in.Budgets[0].RequestedAt = map[string]time.Time{NodeID("m109"): t0.Add(-time.Hour)}
		for i := range in.Nodes {
			in.Nodes[i].Unschedulable = true
		}
	})
	actions := Next(in).Actions
	if len(actions) != 1 {
		t.Fatalf("%+v", actions)
	}
	stored := actions[0].(SetBudget).RequestedAt
	for name, want := range map[string]bool{"m109": true, "m098": true, "m099": false, "n1": false} {
		if _, is := stored[NodeID(name)]; is != want {
			t.Errorf("the request of %s is stored: %v", name, is)
		}
	}
	if len(stored) != maxRequests {
		t.Errorf("%d requests are stored", len(stored))
	}
}

// stranger adds a pod of another owner with the labels of companions.
func stranger(in *Input) {
	in.ForeignPods = append(in.ForeignPods, Stranger{Name: "static-n3", Node: "n3"})
}

func takes(name string) func(*Input) {
	return func(in *Input) { in.TakenNames = map[string]NameHolder{name: {Node: "n3", For: "n1"}} }
}

// Pods of other owners are reported, with their names and what to do.
func TestPodsOfOtherOwnersAreReported(t *testing.T) {
	for name, tt := range map[string]struct {
		in     Input
		reason string
		says   []string
	}{
		"a pod has the labels of a companion": {scene(stranger), v1alpha1.ReasonForeignCompanion, []string{"static-n3 on node n3", "kubectl -n storage delete pod static-n3"}},
		"a pod has the name of a companion": {scene(takes("disks-1")), v1alpha1.ReasonNameTaken,
			[]string{"disks-1 on node n3 (needed for a pod of node n1)", "kubectl -n storage delete pod disks-1"}},
		"no such pod": {scene(), v1alpha1.ReasonCompanionsReady, nil},
	} {
		p := Next(tt.in)
		for _, c := range p.Status.Conditions {
			if c.Status != metav1.ConditionTrue {
				continue
			}
			if c.Reason != tt.reason {
				t.Errorf("%s: %s %s", name, c.Reason, c.Message)
			}
			for _, part := range tt.says {
				if !strings.Contains(c.Message, part) {
					t.Errorf("%s: %q does not say %q", name, c.Message, part)
				}
			}
		}
	}
}

// A terminating NodeGuard reports what delays its deletion.
func TestDeletionReportsWhatRemains(t *testing.T) {
	p := Next(scene(func(in *Input) {
		in.Guard.DeletionTimestamp, in.Guard.Finalizers = new(metav1.NewTime(t0)), []string{"example.com/theirs"}
		in.Guard.Status.Waiting = []v1alpha1.WaitingNode{{Node: "n1"}}
		in.Companions = in.Companions[:1]
	}))
	i := slices.IndexFunc(p.Status.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
	if i < 0 || p.Status.Conditions[i].Reason != v1alpha1.ReasonTerminating || len(p.Status.Waiting) > 0 {
		t.Fatalf("the status is %+v", p.Status)
	}
	for _, part := range []string{"1 PodDisruptionBudgets", "c-n1 on node n1", "example.com/theirs"} {
		if !strings.Contains(p.Status.Conditions[i].Message, part) {
			t.Errorf("%q does not say %q", p.Status.Conditions[i].Message, part)
		}
	}
}
