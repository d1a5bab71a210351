// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
)

// nodeOf returns a node that is available, after changes.
func nodeOf(name string, changes ...func(*nodePlan)) *nodePlan {
	n := &nodePlan{observedNode: observedNode{Node: &kube.Node{Name: name, Ready: true}, targets: 1, readyTargets: 1}, guarded: true}
	for _, change := range changes {
		change(n)
	}
	return n
}

func notReady(n *nodePlan) { n.Ready = false }

func withoutPod(n *nodePlan) { n.readyTargets = 0 }

// entered gives a node an entry in status.released, and its stage.
func entered(s stage) func(*nodePlan) {
	return func(n *nodePlan) {
		n.stage, n.entry = s, &v1alpha1.ReleasedNode{Node: n.Name, Since: metav1.NewTime(t0)}
	}
}

func TestWhyANodeIsUnavailable(t *testing.T) {
	const since = "released at 2026-03-01T12:00:00Z"
	requests := func(n *nodePlan) { n.requestedBy = "cordoned" }
	for name, tt := range map[string]struct {
		node *nodePlan
		want string
	}{
		"not Ready":                   {nodeOf("n", notReady, withoutPod), "(not Ready)"},
		"no ready pod":                {nodeOf("n", withoutPod), "(no ready pod of the target)"},
		"released":                    {nodeOf("n", entered(released)), "(" + since + ", not available again yet)"},
		"released, and no ready pod":  {nodeOf("n", entered(released), withoutPod), "(" + since + ", not available again yet)"},
		"returning":                   {nodeOf("n", entered(returning)), "(" + since + "; its companion is not ready yet)"},
		"returning, and no ready pod": {nodeOf("n", entered(returning), withoutPod), "(" + since + "; no ready pod of the target yet)"},
		"returning, and not Ready":    {nodeOf("n", entered(returning), notReady), "(" + since + ", not available again yet)"},
		"an earlier Node of its name was released":  {nodeOf("n", entered(notReleased)), "(an earlier Node of that name was " + since + ")"},
		"released by another NodeGuard":             {nodeOf("n", requests, (*nodePlan).expectRelease), "(released by another NodeGuard, not available again yet)"},
		"released there, and its request has ended": {nodeOf("n", (*nodePlan).expectRelease), "(released, not available again yet)"},
	} {
		if got := unavailableReason(tt.node); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestUnavailableNodes(t *testing.T) {
	const since = " (released at 2026-03-01T12:00:00Z"
	one := nodeOf("n1", notReady)
	for name, tt := range map[string]struct {
		capacity capacity
		want     usage
		// wantAll are the names, and wantReleased those without the nodes that are unavailable without a release.
		wantAll, wantReleased string
	}{
		"only the node itself":                      {capacity{nodes: []*nodePlan{one, nodeOf("n2")}}, usage{}, "", ""},
		"one is not Ready":                          {capacity{nodes: []*nodePlan{one, nodeOf("n2", notReady)}}, usage{unhealthy: 1}, "n2 (not Ready)", ""},
		"one is released":                           {capacity{nodes: []*nodePlan{one, nodeOf("n2", entered(released), notReady)}}, usage{released: 1}, "n2" + since + ", not available again yet)", "n2" + since + ", not available again yet)"},
		"a pod is on no node":                       {capacity{nodes: []*nodePlan{one}, unbound: 1}, usage{unhealthy: 1}, "pods of the target that are on no node: 1", ""},
		"one that is no longer guarded is released": {capacity{unguarded: []*nodePlan{nodeOf("n2", entered(released)), nodeOf("n3")}}, usage{released: 1}, "n2" + since + ")", "n2" + since + ")"},
		"released ones come first": {capacity{nodes: []*nodePlan{nodeOf("n2", withoutPod), nodeOf("n3", entered(returning))}}, usage{released: 1, unhealthy: 1},
			"n3" + since + "; its companion is not ready yet), n2 (no ready pod of the target)", "n3" + since + "; its companion is not ready yet)"},
	} {
		if got := tt.capacity.usedByOthers(one); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
		if got := tt.capacity.unavailableNames(one, true); got != tt.wantAll {
			t.Errorf("%s: %q, want %q", name, got, tt.wantAll)
		}
		if got := tt.capacity.unavailableNames(one, false); got != tt.wantReleased {
			t.Errorf("%s: the released ones are %q, want %q", name, got, tt.wantReleased)
		}
	}
}

// A node that is unavailable itself waits only for released nodes, and they alone are named.
func TestAnUnhealthyNodeNamesOnlyReleasedNodes(t *testing.T) {
	in := scene(cordoned(0, 1), going(1, false), func(in *Input) { in.Nodes[0].Ready, in.Nodes[2].Ready = false, false })
	const want = "1 node is unavailable, and at most 1 may be: n2 (released at 2026-03-01T11:59:00Z, not available again yet)"
	if held := Next(in).Status.Waiting; len(held) != 1 || !strings.HasPrefix(held[0].Message, want+"; released when: ") {
		t.Errorf("%+v, want %s", held, want)
	}
}

func TestUnavailableNodesAreCounted(t *testing.T) {
	for name, tt := range map[string]struct {
		in   Input
		want v1alpha1.GuardCounts
	}{
		"all are available":            {scene(), v1alpha1.GuardCounts{Total: 3, Ready: 3, Updated: 3}},
		"one is not Ready":             {scene(func(in *Input) { in.Nodes[0].Ready = false }), v1alpha1.GuardCounts{Total: 3, Ready: 3, Updated: 3, Unavailable: 1}},
		"one is held":                  {scene(cordoned(0), func(in *Input) { in.Target.Pods[1].Ready = false }), v1alpha1.GuardCounts{Total: 3, Ready: 3, Updated: 3, Waiting: 1, Unavailable: 1}},
		"one is released":              {scene(cordoned(0), going(0, false)), v1alpha1.GuardCounts{Total: 3, Ready: 3, Updated: 3, Released: 1, Unavailable: 1}},
		"companions are out of date":   {scene(func(in *Input) { in.Revision = "r2" }), v1alpha1.GuardCounts{Total: 3, Ready: 3}},
		"a companion is missing":       {scene(func(in *Input) { in.Companions = in.Companions[1:] }), v1alpha1.GuardCounts{Total: 3, Ready: 2, Updated: 2}},
		"a companion terminates":       {scene(func(in *Input) { in.Companions[0].Terminating = true }), v1alpha1.GuardCounts{Total: 3, Ready: 2, Updated: 2}},
		"a companion is not ready yet": {scene(func(in *Input) { in.Companions[0].Ready = false }), v1alpha1.GuardCounts{Total: 3, Ready: 2, Updated: 3}},
	} {
		p := Next(tt.in)
		if p.Status.Nodes != tt.want {
			t.Errorf("%s: %+v, want %+v", name, p.Status.Nodes, tt.want)
		}
		unavailable := int32(0)
		for _, n := range p.Nodes {
			if n.Unavailable {
				unavailable++
			}
		}
		if unavailable != tt.want.Unavailable {
			t.Errorf("%s: %+v, want %d unavailable", name, p.Nodes, tt.want.Unavailable)
		}
	}
}
