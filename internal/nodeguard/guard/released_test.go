// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A released node is unavailable until it is Ready and its pods are ready again.
func TestAvailableAgain(t *testing.T) {
	tests := map[string]struct {
		in   Input
		want bool
	}{
		"everything is ready": {scene(going(0, true), releaseEnds), true},
		"its companion is not ready": {
			scene(going(0, true), releaseEnds, func(in *Input) { in.Companions[0].Ready = false }),
			false,
		},
		"its companion is missing": {
			scene(going(0, true), releaseEnds, func(in *Input) { in.Companions = in.Companions[1:] }),
			false,
		},
		"its pod of the target is not ready": {
			scene(going(0, true), releaseEnds, func(in *Input) { in.Target.Pods[0].Ready = false }),
			false,
		},
		"it is not Ready": {scene(going(0, true), releaseEnds, func(in *Input) { in.Nodes[0].Ready = false }), false},
		"its companion may still be deleted for it": {scene(going(0, true)), false},
		"its companion is another one": {
			scene(going(0, true), func(in *Input) { in.Companions[0].UID = "new" }),
			true,
		},
		"it is released, and its companion is not deleted yet": {
			scene(going(0, false), cordoned(0), func(in *Input) { in.Nodes[2].Ready = false }),
			false,
		},
		"its approval is not removed": {
			scene(going(0, true), releaseEnds, func(in *Input) { in.Nodes[0].Approved = "storage/disks" }),
			false,
		},
		"its break-glass annotation is not removed": {
			scene(going(0, true), releaseEnds, func(in *Input) { in.Nodes[0].BreakGlass = "fire" }),
			false,
		},
		"it requests release again, and is held": {scene(going(0, true), cordoned(0), func(in *Input) {
			releaseEnds(in)
			in.Nodes[2].Ready = false
		}), true},
		"its target was removed from it": {scene(going(0, false), cordoned(0), func(in *Input) {
			in.Target.Template, in.Target.Pods, in.Companions = nil, in.Target.Pods[1:], in.Companions[1:]
		}), false},
		"a taint excludes its target": {scene(going(0, true), releaseEnds, func(in *Input) {
			in.Nodes[0].Taints = []corev1.Taint{{Key: "disk-full", Effect: corev1.TaintEffectNoExecute}}
			in.Target.Pods = in.Target.Pods[1:]
		}), false},
		"its target no longer selects it": {scene(going(0, true), releaseEnds, func(in *Input) {
			in.Target.Template.NodeSelector, in.Target.Pods = map[string]string{"disks": "yes"}, in.Target.Pods[1:]
		}), true},
		"its target no longer selects it, and its approval is not removed": {scene(going(0, true), releaseEnds, func(in *Input) {
			in.Target.Template.NodeSelector, in.Target.Pods = map[string]string{"disks": "yes"}, in.Target.Pods[1:]
			in.Nodes[0].Approved = "storage/disks"
		}), false},
		"its Node was deleted": {
			scene(going(0, false), func(in *Input) { in.Nodes, in.Companions = in.Nodes[1:], in.Companions[1:] }),
			true,
		},
		"its Node was deleted, and its companion exists": {scene(going(0, false), func(in *Input) { in.Nodes = in.Nodes[1:] }), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(tt.in)
			if got := len(p.Status.Released) == 0; got != tt.want {
				t.Errorf("available again: %v, want %v; %+v", got, tt.want, p.Moves)
			}
		})
	}
}

// Annotations that a user set for one release do not apply to the next one.
func TestApprovalsAreRemoved(t *testing.T) {
	for name, tt := range map[string]struct {
		in   Input
		want *RemoveApproval
	}{
		"an approval": {scene(going(0, true), releaseEnds, func(in *Input) { in.Nodes[0].Approved = "a/b,storage/disks" }),
			&RemoveApproval{Node: "n1", ResourceVersion: "1", Approved: "a/b"}},
		"break glass": {scene(going(0, true), releaseEnds, func(in *Input) { in.Nodes[0].BreakGlass = "fire" }),
			&RemoveApproval{Node: "n1", ResourceVersion: "1", BreakGlass: true}},
		"an approval, as soon as the node is returning": {scene(going(0, true), func(in *Input) { in.Nodes[0].Approved, in.Companions = "storage/disks", in.Companions[1:] }),
			&RemoveApproval{Node: "n1", ResourceVersion: "1"}},
		"an approval of a node that is no longer guarded": {scene(going(0, true), releaseEnds, func(in *Input) {
			in.Target.Template.NodeSelector, in.Target.Pods = map[string]string{"disks": "yes"}, in.Target.Pods[1:]
			in.Nodes[0].Approved, in.Nodes[0].BreakGlass = "storage/disks", "fire"
		}), &RemoveApproval{Node: "n1", ResourceVersion: "1", BreakGlass: true}},
		"an approval of a node that was recreated": {scene(going(0, true), func(in *Input) { in.Nodes[0].UID, in.Nodes[0].Approved = "another", "storage/disks" }), nil},
		"an approval for another NodeGuard":        {scene(going(0, true), releaseEnds, func(in *Input) { in.Nodes[0].Approved = "a/b" }), nil},
		"an approval before the release request":   {scene(func(in *Input) { in.Nodes[0].Approved = "storage/disks" }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got *RemoveApproval
			for _, a := range Next(tt.in).Actions {
				if consume, is := a.(RemoveApproval); is {
					got = &consume
				}
			}
			if (got == nil) != (tt.want == nil) || (got != nil && *got != *tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}
