// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestOrphaned tests what is removed from a node because no NodeJob owns it.
func TestOrphaned(t *testing.T) {
	gate := func(key string, effect v1alpha1.GateEffect) *v1alpha1.NodeJob {
		return newJob(func(j *v1alpha1.NodeJob) { j.Spec.Gate = &v1alpha1.GateSpec{Key: key, Effect: effect} })
	}
	taints := func(all ...corev1.Taint) *record.Taints { return &record.Taints{All: append([]corev1.Taint{}, all...)} }
	tests := map[string]struct {
		jobs   []*v1alpha1.NodeJob
		node   Node
		taints *record.Taints
		cordon *record.Cordon
	}{
		"no orphaned taint": {node: newNode("n", withTaints(busy))},
		"the gate of a deleted NodeJob": {
			node:   newNode("n", withTaints(busy, ownTaint)),
			taints: taints(busy),
		},
		"a gate that the kubelet has closed stays": {node: newNode("n", withTaints(kubeletTaint))},
		"the gate of an existing NodeJob": {
			jobs: []*v1alpha1.NodeJob{gate("", "")},
			node: newNode("n", withTaints(ownTaint)),
		},
		"the default key of an existing NodeJob is removed by its own plan": {
			jobs: []*v1alpha1.NodeJob{newJob()},
			node: newNode("n", withTaints(ownTaint)),
		},
		"the default key of a NodeJob whose gate has another key now": {
			jobs:   []*v1alpha1.NodeJob{gate("example.com/boot", "")},
			node:   newNode("n", withTaints(ownTaint, sharedTaint)),
			taints: taints(sharedTaint),
		},
		"a gate that has another effect now": {
			jobs:   []*v1alpha1.NodeJob{gate("example.com/boot", v1alpha1.GateNoExecute)},
			node:   newNode("n", withTaints(sharedTaint)),
			taints: taints(),
		},
		"a gate without an effect that has another effect now": {
			jobs:   []*v1alpha1.NodeJob{gate("example.com/boot", "")},
			node:   newNode("n", withTaints(taint("example.com/boot", v1alpha1.GateValue, corev1.TaintEffectNoExecute))),
			taints: taints(),
		},
		"a gate with the effect of another gate": {
			jobs:   []*v1alpha1.NodeJob{gate("example.com/other", v1alpha1.GateNoSchedule)},
			node:   newNode("n", withTaints(sharedTaint)),
			taints: taints(),
		},
		"one of two NodeJobs that share a gate was deleted": {
			jobs: []*v1alpha1.NodeJob{newJob(), gate("example.com/boot", v1alpha1.GateNoSchedule)},
			node: newNode("n", withTaints(sharedTaint)),
		},
		"a cordon of a deleted NodeJob": {
			node:   newNode("n", cordonedBy(jobKey)),
			cordon: &record.Cordon{By: []string{}},
		},
		"a cordon of a deleted NodeJob and an existing one": {
			jobs:   []*v1alpha1.NodeJob{newJob()},
			node:   newNode("n", cordonedBy("gone.everynode.dev/job", jobKey)),
			cordon: &record.Cordon{By: []string{jobKey}},
		},
		"a cordon of a deleted NodeJob on a node that a user uncordoned": {
			jobs:   []*v1alpha1.NodeJob{newJob()},
			node:   newNode("n", func(n *Node) { n.CordonedBy = []string{"gone.everynode.dev/job", jobKey} }),
			cordon: &record.Cordon{},
		},
		"a cordon of an existing NodeJob": {
			jobs: []*v1alpha1.NodeJob{newJob()},
			node: newNode("n", cordonedBy(jobKey)),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.node.ResourceVersion = "7"
			var want *record.Change
			if tt.taints != nil || tt.cordon != nil {
				want = &record.Change{UID: "n-uid", ResourceVersion: "7", Taints: tt.taints, Cordon: tt.cordon}
			}
			if diff := cmp.Diff(want, Orphaned(&tt.node, tt.jobs)); diff != "" {
				t.Errorf("change (-want +got):\n%s", diff)
			}
		})
	}
}
