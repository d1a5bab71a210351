// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
)

// TestStray tests what belongs to no NodeJob on a node.
func TestStray(t *testing.T) {
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
		"nothing":                            {node: newNode("n", withTaints(busy))},
		"the gate of a NodeJob that is gone": {node: newNode("n", withTaints(busy, ownTaint)), taints: taints(busy)},
		"a gate that its kubelet has closed is somebody's":     {node: newNode("n", withTaints(kubeletTaint))},
		"the gate of a NodeJob that is there":                  {jobs: []*v1alpha1.NodeJob{gate("", "")}, node: newNode("n", withTaints(ownTaint))},
		"its own plan takes off the key of its own":            {jobs: []*v1alpha1.NodeJob{newJob()}, node: newNode("n", withTaints(ownTaint))},
		"unless its gate has another key by now":               {jobs: []*v1alpha1.NodeJob{gate("example.com/boot", "")}, node: newNode("n", withTaints(ownTaint, sharedTaint)), taints: taints(sharedTaint)},
		"a gate that has another effect by now":                {jobs: []*v1alpha1.NodeJob{gate("example.com/boot", v1alpha1.GateNoExecute)}, node: newNode("n", withTaints(sharedTaint)), taints: taints()},
		"one of two that share a gate is gone":                 {jobs: []*v1alpha1.NodeJob{newJob(), gate("example.com/boot", v1alpha1.GateNoSchedule)}, node: newNode("n", withTaints(sharedTaint))},
		"a cordon of a NodeJob that is gone":                   {node: newNode("n", cordonedBy(jobKey)), cordon: &record.Cordon{By: []string{}}},
		"one of two":                                           {jobs: []*v1alpha1.NodeJob{newJob()}, node: newNode("n", cordonedBy("gone.everynode.dev/job", jobKey)), cordon: &record.Cordon{By: []string{jobKey}}},
		"one that somebody has opened":                         {jobs: []*v1alpha1.NodeJob{newJob()}, node: newNode("n", func(n *Node) { n.CordonedBy = []string{"gone.everynode.dev/job", jobKey} }), cordon: &record.Cordon{}},
		"a cordon by hand, and one of a NodeJob that is there": {jobs: []*v1alpha1.NodeJob{newJob()}, node: newNode("n", cordonedBy(jobKey))},
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
