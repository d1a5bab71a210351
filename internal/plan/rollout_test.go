// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

func TestMaxConcurrent(t *testing.T) {
	number, percent := intstr.FromInt32, intstr.FromString
	tests := map[string]struct {
		value   *intstr.IntOrString
		matched int
		want    int
	}{
		"a quarter without a value":                             {nil, 40, 10},
		"a number":                                              {new(number(3)), 40, 3},
		"a number larger than the cluster":                      {new(number(300)), 40, 300},
		"a percentage":                                          {new(percent("50%")), 40, 20},
		"a percentage is rounded down":                          {new(percent("50%")), 5, 2},
		"a percentage is at least one node":                     {new(percent("1%")), 5, 1},
		"a percentage is at least one node in an empty cluster": {new(percent("25%")), 0, 1},
		"all nodes":                                             {new(percent("100%")), 7, 7},
		"a value that the API rejects is one node":              {new(percent("many")), 40, 1},
		"a number below one is one":                             {new(number(0)), 40, 1},
		"a percentage below one is one":                         {new(percent("-5%")), 40, 1},
		"a percentage of 15,000 nodes does not overflow":        {new(percent("100%")), 15_000, 15_000},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := maxConcurrent(v1alpha1.RolloutSpec{MaxConcurrent: tt.value}, tt.matched); got != tt.want {
				t.Errorf("%d nodes at once, want %d", got, tt.want)
			}
		})
	}
}

func TestStartWithinLimit(t *testing.T) {
	two := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromInt32(2)) })
	third := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromString("34%")) })
	start := func(names ...string) (words []string) {
		for _, name := range names {
			words = append(words, fmt.Sprintf("start attempt 1 of rev on %s", name))
		}
		return words
	}
	due := func(name string, seconds int) Node {
		return newNode(name, recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(seconds) }))
	}
	a, b, c, d := newNode("a"), newNode("b"), newNode("c"), newNode("d")
	tainted := newNode("t", func(n *Node) { n.Taints = []corev1.Taint{busy} })
	tests := map[string]struct {
		in          Input
		want        []string
		wantWaiting map[string]string
	}{
		"nodes start in the order of their names": {
			in: see(two, []Node{d, b, a, c}), want: start("a", "b"),
			wantWaiting: map[string]string{"c": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time", "d": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"a running attempt has its slot": {
			in: see(two, []Node{a, b, c}, newPod(c)), want: start("a"),
			wantWaiting: map[string]string{"b": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"an ended attempt has its slot until its outcome is recorded": {
			in:          see(two, []Node{a, b, c, d}, newPod(c, exited(0)), newPod(d)),
			want:        []string{"record Succeeded on c: attempts 1, disruptions 0"},
			wantWaiting: map[string]string{"a": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time", "b": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"a node that becomes unreachable during an attempt has its slot": {
			in:          see(two, []Node{a, b, newNode("c", func(n *Node) { n.Ready = corev1.ConditionUnknown })}, newPod(b), newPod(newNode("c"))),
			wantWaiting: map[string]string{"a": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"a pod of an earlier revision has its slot": {
			in:          see(two, []Node{a, b, c}, newPod(a, func(p *Pod) { p.Revision = "old" }), newPod(b, func(p *Pod) { p.Revision = "old" })),
			wantWaiting: map[string]string{"c": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"nothing starts while more nodes run than a lowered limit": {
			in:          see(two, []Node{a, b, c, d}, newPod(a), newPod(b), newPod(c)),
			wantWaiting: map[string]string{"d": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"done and failed nodes have no slot": {
			in: see(two, []Node{newNode("a", recorded(record.Succeeded)), newNode("b", recorded(record.Failed, attempts(2))), c, d}), want: start("c", "d"),
		},
		"a percentage refers to matching nodes": {
			in: see(third, []Node{a, b, c, tainted, tainted, tainted}), want: start("a"),
			wantWaiting: map[string]string{"b": "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time", "c": "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time"},
		},
		"a node that is no longer selected has its slot while it runs": {
			in:          see(two, []Node{a, b, tainted}, newPod(tainted), newPod(b)),
			wantWaiting: map[string]string{"a": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
		"nodes that rerun start in the order of their last run": {
			in: see(newJob(oneAtOnce, periodSeconds(60)), []Node{due("a", 300), due("b", 900), due("c", 600)}), want: start("b"),
			wantWaiting: map[string]string{"a": "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time", "c": "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time"},
		},
		"nodes with a problem that only the manager knows start in the order of their last try": {
			in: func() Input {
				in := see(newJob(oneAtOnce, periodSeconds(60)), []Node{a, due("b", 900)})
				in.NodeProblems = map[types.UID]NodeProblem{a.UID: {Reason: v1alpha1.ReasonPodForbidden, Message: "no", Since: ago(60), RetryAt: ago(1)}}
				return in
			}(), want: start("b"),
			wantWaiting: map[string]string{"a": "it waits for a slot: rollout.maxConcurrent allows 1 node at the same time"},
		},
		"a single start tests whether the API server still rejects pods": {
			in: func() Input {
				in := see(two, []Node{a, b})
				in.Obstacle = &task.Obstacle{Reason: v1alpha1.ReasonPodForbidden, Message: "no", RetryAt: ago(1)}
				return in
			}(), want: start("a"),
			wantWaiting: map[string]string{"b": "it waits for a slot: rollout.maxConcurrent allows 2 nodes at the same time"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(tt.in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			var waiting map[string]string
			for _, n := range p.Nodes {
				if n.State == Waiting {
					if waiting == nil {
						waiting = map[string]string{}
					}
					waiting[n.Name] = n.Message
				}
			}
			if diff := cmp.Diff(tt.wantWaiting, waiting); diff != "" {
				t.Errorf("waiting (-want +got):\n%s", diff)
			}
		})
	}
}
