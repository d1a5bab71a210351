// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/kube"
)

func TestDaemonSetSelectsNodes(t *testing.T) {
	affinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}}}},
		},
	}}}
	taint := func(key string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: key, Effect: effect}}
	}
	tests := map[string]struct {
		template corev1.PodSpec
		node     kube.Node
		want     bool
	}{
		"all nodes": {corev1.PodSpec{}, kube.Node{Name: "n"}, true},
		"by a label that it has": {
			corev1.PodSpec{NodeSelector: map[string]string{"a": "b"}},
			kube.Node{Labels: map[string]string{"a": "b"}},
			true,
		},
		"by a label that it does not have": {corev1.PodSpec{NodeSelector: map[string]string{"a": "b"}}, kube.Node{}, false},
		"by affinity":                      {corev1.PodSpec{Affinity: affinity}, kube.Node{Labels: map[string]string{"disk": "ssd"}}, true},
		"by affinity, another value": {
			corev1.PodSpec{Affinity: affinity},
			kube.Node{Labels: map[string]string{"disk": "hdd"}},
			false,
		},
		"a taint": {corev1.PodSpec{}, kube.Node{Taints: taint("x", corev1.TaintEffectNoSchedule)}, false},
		"a taint that is tolerated": {
			corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}}},
			kube.Node{Taints: taint("x", corev1.TaintEffectNoSchedule)},
			true,
		},
		"a taint that is only a preference": {corev1.PodSpec{}, kube.Node{Taints: taint("x", corev1.TaintEffectPreferNoSchedule)}, true},
		"not Ready": {
			corev1.PodSpec{},
			kube.Node{Taints: taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)},
			true,
		},
		"about to be removed": {
			corev1.PodSpec{},
			kube.Node{Taints: taint("karpenter.sh/disrupted", corev1.TaintEffectNoSchedule)},
			true,
		},
		"by its name": {corev1.PodSpec{NodeName: "m"}, kube.Node{Name: "n"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := targetSelects(&tt.template, &tt.node) && !excludesTarget(&tt.template, &tt.node); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestNodesWithoutAPodOfTheTarget(t *testing.T) {
	tainted := &kube.Node{Name: "n", Taints: []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}}
	for name, tt := range map[string]struct {
		template *corev1.PodSpec
		node     *kube.Node
		stage    stage
		want     bool
	}{
		"the DaemonSet selects the node":                       {&corev1.PodSpec{}, &kube.Node{Name: "n"}, notReleased, true},
		"a taint excludes the DaemonSet":                       {&corev1.PodSpec{}, tainted, notReleased, false},
		"a taint excludes the DaemonSet from a returning node": {&corev1.PodSpec{}, tainted, returning, true},
		"the DaemonSet selects another node":                   {&corev1.PodSpec{NodeName: "m"}, &kube.Node{Name: "n"}, returning, false},
		"there is no DaemonSet":                                {nil, &kube.Node{Name: "n"}, returning, false},
	} {
		n := &nodePlan{observedNode: observedNode{Node: tt.node}, stage: tt.stage}
		if got := observe(&Input{Target: Target{Template: tt.template}}).guards(n); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
