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
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/internal/hold"
)

// limitedTo limits the namespace to nodes.
func limitedTo(names ...string) func(*Input) {
	return func(in *Input) {
		in.AllowedNodes = labels.SelectorFromSet(labels.Set{"team": "a"})
		for i := range in.Nodes {
			if slices.Contains(names, in.Nodes[i].Name) {
				in.Nodes[i].Labels = map[string]string{"team": "a"}
			}
		}
	}
}

func TestCompanions(t *testing.T) {
	without := func(i int) func(*Input) {
		return func(in *Input) { in.Companions = append(in.Companions[:i:i], in.Companions[i+1:]...) }
	}
	outdated := func(in *Input) { in.Revision = "r2" }
	outOfTwenty := func(in *Input) { // the others are up to date
		for i := range 17 {
			addNode(in, fmt.Sprint("m", i))
			in.Companions[len(in.Companions)-1].Revision = "r2"
		}
	}
	twice := func(later time.Duration) func(*Input) {
		return func(in *Input) {
			second := in.Companions[0]
			second.Name, second.UID, second.Created = "second", "second", second.Created.Add(later)
			in.Companions = append(in.Companions, second)
		}
	}
	tests := map[string]struct {
		in   Input
		want []string
	}{
		"all exist":      {scene(), nil},
		"one is missing": {scene(without(0)), []string{"make n1"}},
		"on a held node": {
			scene(without(0), cordoned(0), func(in *Input) { in.Nodes[2].Ready = false }),
			[]string{"make n1"},
		},
		"on a released node": {
			scene(without(0), cordoned(0), going(0, false)),
			nil,
		},
		"on a returning node": {
			scene(without(0), going(0, true), releaseEnds),
			[]string{"make n1"},
		},
		"on a node that the namespace is not limited to": {
			scene(without(0), limitedTo("n2", "n3")), nil,
		},
		"on a returning node that the namespace is not limited to any more": {
			scene(without(0), going(0, false), limitedTo("n2", "n3")),
			nil,
		},
		"one on a node that the namespace is not limited to any more": {
			scene(limitedTo("n2", "n3")),
			[]string{"delete c-n1"},
		},
		"on a node that is not Ready": {
			scene(without(0), func(in *Input) { in.Nodes[0].Ready = false }),
			nil,
		},
		"on a node that would evict it": {
			scene(without(0), func(in *Input) { in.Nodes[0].Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}} }),
			nil,
		},
		"after a rejection": {
			scene(without(0), func(in *Input) { in.Obstacle = &hold.Why{Reason: "PodForbidden", Until: t0.Add(time.Second)} }),
			nil,
		},
		"one, some time after a rejection": {
			scene(without(0), without(0), func(in *Input) { in.Obstacle = &hold.Why{Reason: "PodForbidden", Until: t0} }),
			[]string{"make n1"},
		},
		"one that was never rejected comes first": {scene(without(0), without(0), func(in *Input) {
			in.Obstacle, in.RefusedAt = &hold.Why{Reason: "PodForbidden", Until: t0}, map[string]time.Time{"n1": t0.Add(-time.Hour)}
		}), []string{"make n2"}},
		"the one that was rejected first comes first": {scene(without(0), without(0), func(in *Input) {
			in.Obstacle = &hold.Why{Reason: "PodForbidden", Until: t0}
			in.RefusedAt = map[string]time.Time{"n1": t0.Add(-time.Minute), "n2": t0.Add(-time.Hour)}
		}), []string{"make n2"}},
		"while only other pods are rejected": {scene(without(0), without(0), func(in *Input) {
			in.RefusedAt = map[string]time.Time{"n1": t0.Add(-time.Minute)}
		}), []string{"make n2", "make n1"}},
		"two on a node":                          {scene(twice(time.Minute)), []string{"delete second"}},
		"two on a node, and one is terminating":  {scene(twice(time.Minute), func(in *Input) { in.Companions[0].Terminating = true }), nil},
		"two on a node, in a stale view":         {scene(twice(time.Minute), func(in *Input) { in.Live = false }), nil},
		"two on a node, and the second is older": {scene(twice(-time.Minute)), []string{"delete c-n1"}},
		"ended by the kubelet": {
			scene(func(in *Input) { in.Companions[0].Phase = corev1.PodFailed }),
			[]string{"delete c-n1"},
		},
		"ended by the kubelet just now": {scene(func(in *Input) {
			in.Companions[0].Phase, in.Companions[0].Created = corev1.PodFailed, t0.Add(-time.Second)
		}), nil},
		"out of date": {scene(outdated), []string{"delete c-n1"}},
		"out of date, while one is missing": {
			scene(outdated, func(in *Input) { in.Companions[1].Ready = false; in.Companions[1].Revision = "r2" }),
			nil,
		},
		"out of date, while one on a node that is not Ready is not ready": {
			scene(outdated, func(in *Input) { in.Nodes[1].Ready, in.Companions[1].Ready = false, false }),
			[]string{"delete c-n2", "delete c-n1"},
		},
		"out of date, and the first one is not ready": {
			scene(outdated, func(in *Input) { in.Companions[0].Ready = false }),
			[]string{"delete c-n1"},
		},
		"out of date, and ended by the kubelet just now": {scene(func(in *Input) {
			in.Companions[0].Phase, in.Companions[0].Created, in.Companions[0].Revision = corev1.PodFailed, t0.Add(-time.Second), "r0"
		}), nil},
		"in a namespace that is not allowed": {
			scene(without(0), func(in *Input) { in.NotAllowed = hold.NamespaceNotAllowed("storage") }),
			nil,
		},
		"out of date, not ready first": {
			scene(outdated, func(in *Input) { in.Companions[2].Ready = false }),
			[]string{"delete c-n3"},
		},
		"out of date, 10% at once": {
			scene(outdated, outOfTwenty),
			[]string{"delete c-n1", "delete c-n2"},
		},
		"out of date, but its node requests release": {scene(outdated, cordoned(0), func(in *Input) {
			in.Nodes[1].Ready = false
			in.Nodes[2].Ready = false
			in.Companions[1].Revision = "r2"
			in.Companions[2].Revision = "r2"
		}), nil},
		"out of date, after a rejection": {
			scene(outdated, func(in *Input) { in.Obstacle = &hold.Why{Reason: "PodForbidden", Until: t0.Add(time.Second)} }),
			nil,
		},
		"out of date, some time after a rejection": {
			scene(outdated, func(in *Input) { in.Obstacle = &hold.Why{Reason: "PodForbidden", Until: t0} }),
			[]string{"delete c-n1"},
		},
		"of an earlier NodeGuard": {
			scene(func(in *Input) { in.Companions[0].Owner = "earlier" }),
			[]string{"delete c-n1"},
		},
		"where the target is not ready": {scene(func(in *Input) {
			in.Target.Pods[0].Ready, in.Target.Template, in.Companions = false, nil, in.Companions[1:]
		}), []string{"make n1"}},
		"on a node without the target": {
			scene(func(in *Input) { in.Target.Pods = in.Target.Pods[1:]; in.Target.Template = nil }),
			[]string{"delete c-n1"},
		},
		"the target is missing": {scene(func(in *Input) { in.Target = Target{Name: "DaemonSet disks", Missing: true} }), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, a := range Next(tt.in).Actions {
				switch a := a.(type) {
				case CreateCompanion:
					got = append(got, "make "+a.Node)
				case DeletePod:
					got = append(got, "delete "+a.Pod.Name)
				case EndRelease:
					got = append(got, "end the release of "+a.Companion.Name)
				}
			}
			if strings.Join(got, ", ") != strings.Join(tt.want, ", ") {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
