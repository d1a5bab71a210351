// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestNodeNoLongerSelectedIsNotClosed tests a run with a reboot, which continues after the labels of the node
// have changed. Between two pods of the run the node has no pod.
func TestNodeNoLongerSelectedIsNotClosed(t *testing.T) {
	rebootsAlways := func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Reboot.Policy = v1alpha1.RebootAlways }
	inOldBoot := func(r *record.Record) { r.Reboot.FromBootID = "n-boot" }
	noExecute := v1alpha1.GateSpec{Effect: v1alpha1.GateNoExecute}
	tests := map[string]struct {
		gate v1alpha1.GateSpec
		node Node
	}{
		"the gate of a closed node keeps its old effect": {
			gate: noExecute, node: newNode("n", made(5), inPool("b"), recorded(record.Rebooting, inOldBoot), withTaints(ownTaint)),
		},
		"an open node stays open": {
			gate: noExecute, node: newNode("n", made(5), inPool("b"), recorded(record.Rebooting, inOldBoot)),
		},
		"an open node stays open with scope All": {
			gate: v1alpha1.GateSpec{Nodes: v1alpha1.GateAll}, node: newNode("n", inPool("b"), recorded(record.Rebooting, inOldBoot)),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(inPoolA, gated(tt.gate), rebootsAlways), []Node{tt.node})
			in.GateKeys = []string{v1alpha1.GateKey(in.Job)}
			want := []string{"start reboot 1 of rev on n"}
			if diff := cmp.Diff(want, told(Next(in))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}
