// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestSoak tests which nodes count in a soak, and whose soak it is. maxFailures is 0, so a node that counts as failed stops the
// rollout.
func TestSoak(t *testing.T) {
	soaked, soakedB := first(intstr.FromInt32(1)), poolB(60)
	soaked.SoakSeconds = 60
	canary, inB := []v1alpha1.RolloutStep{soaked, rest}, []v1alpha1.RolloutStep{soakedB, rest}
	status := func(changes ...func(*rolloutState)) func(*rolloutState) {
		return func(r *rolloutState) {
			for _, change := range changes {
				change(r)
			}
		}
	}
	soaking := func(r *rolloutState) { r.SoakingSince = metav1.Time{Time: ago(20)} }
	over := func(nodes ...types.UID) func(*rolloutState) {
		return func(r *rolloutState) { r.SoakedAt, r.SoakedNodes = metav1.Time{Time: ago(60)}, nodes }
	}
	soakingWith := func(nodes ...types.UID) func(*rolloutState) {
		return func(r *rolloutState) { soaking(r); r.SoakedNodes = nodes }
	}
	before := func(r *rolloutState) { r.NotReadyBefore = []types.UID{"a-uid"} }
	waited := func(r *rolloutState) { r.WaitingForReadySince = metav1.Time{Time: ago(3600)} }
	atRisk := func(r *rolloutState) {
		r.AtRisk = []v1alpha1.NodeAtRisk{{Node: "a", UID: "a-uid", MachineID: "a-machine"}}
	}
	notReady := func(n *Node) { n.Ready = corev1.ConditionFalse }
	scaledDown := func(n *Node) {
		n.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectPreferNoSchedule}}
	}
	spot := func(n *Node) {
		n.Taints = []corev1.Taint{{Key: "aws-node-termination-handler/spot-itn", Effect: corev1.TaintEffectPreferNoSchedule}}
	}
	done := func(name string, changes ...func(*Node)) Node {
		return newNode(name, append([]func(*Node){made(9000), recorded(record.Succeeded)}, changes...)...)
	}
	ran := func(name string, changes ...func(*Node)) Node {
		n := done(name, changes...)
		n.On.Label = ""
		return n
	}
	z := newNode("z", made(5000))
	start := func(name string) []string { return []string{"start attempt 1 of rev on " + name} }
	tests := map[string]struct {
		steps  []v1alpha1.RolloutStep
		change func(*v1alpha1.NodeJob)
		was    func(*rolloutState)
		nodes  []Node
		want   []string
		// soaks is true if the soak continues or begins, failed if a node counts as failed, waits if the soak waits for a node to
		// become Ready.
		soaks, failed, waits bool
		// again is true if a soak that continued or was over does not count any more.
		again bool
		// wantBefore are the nodes that are not Ready for another reason.
		wantBefore []types.UID
	}{
		"a canary turned NotReady": {
			steps:  canary,
			was:    soaking,
			nodes:  []Node{done("a", notReady), z},
			failed: true,
		},
		"a canary that is scaled down is replaced": {
			steps:      canary,
			was:        soaking,
			nodes:      []Node{done("a", notReady, scaledDown), z},
			want:       start("z"),
			wantBefore: []types.UID{"a-uid"},
		},
		"a canary on a reclaimed machine is replaced": {
			steps:      canary,
			was:        soaking,
			nodes:      []Node{done("a", notReady, spot), z},
			want:       start("z"),
			wantBefore: []types.UID{"a-uid"},
		},
		"a canary that a user drains is replaced": {
			steps:      canary,
			was:        soaking,
			nodes:      []Node{done("a", notReady, byHand), z},
			want:       start("z"),
			wantBefore: []types.UID{"a-uid"},
		},
		"a canary that is deleted is replaced": {
			steps:      canary,
			was:        soaking,
			nodes:      []Node{done("a", notReady, deletingSince(9)), z},
			want:       start("z"),
			wantBefore: []types.UID{"a-uid"},
		},
		"a canary that was deleted is replaced": {
			steps: canary,
			was:   status(soaking, before),
			nodes: []Node{z},
			want:  start("z"),
		},
		"a canary that leaves in good health soaks": {
			steps: canary,
			was:   soaking,
			nodes: []Node{done("a", scaledDown), z},
			soaks: true,
		},
		"a canary that another NodeJob has cordoned": {
			steps:  canary,
			was:    soaking,
			nodes:  []Node{done("a", notReady, cordonedBy("ns.everynode.dev/other")), z},
			failed: true,
		},
		"the removal began after it had turned NotReady": {
			steps:  canary,
			was:    status(soaking, atRisk),
			nodes:  []Node{done("a", notReady, scaledDown), z},
			failed: true,
		},
		"its removal was cancelled while it was not Ready": {
			steps:      inB,
			was:        status(soaking, before),
			nodes:      []Node{done("a", notReady, inPool("b")), done("b", inPool("b")), z},
			soaks:      true,
			wantBefore: []types.UID{"a-uid"},
		},
		"the soak goes on with the other nodes of the step": {
			steps:      inB,
			was:        soaking,
			nodes:      []Node{done("a", notReady, scaledDown, inPool("b")), done("b", inPool("b")), z},
			soaks:      true,
			wantBefore: []types.UID{"a-uid"},
		},
		"the last node of a step leaves, and is waited for": {
			steps:      inB,
			was:        soaking,
			nodes:      []Node{done("a", notReady, scaledDown, inPool("b")), z},
			waits:      true,
			wantBefore: []types.UID{"a-uid"},
		},
		"but not for longer than the deadline": {
			steps:  inB,
			was:    status(waited, before),
			nodes:  []Node{done("a", notReady, scaledDown, inPool("b")), z},
			failed: true,
		},
		"the soak begins with the node that stays": {
			steps:      inB,
			nodes:      []Node{done("a", notReady, scaledDown, inPool("b")), done("b", inPool("b")), z},
			soaks:      true,
			wantBefore: []types.UID{"a-uid"},
		},
		"a node that joined just before the soak, and has never been Ready": {
			steps:      inB,
			was:        status(soaking, before),
			nodes:      []Node{done("a", made(60), notReady, inPool("b")), done("b", inPool("b")), z},
			soaks:      true,
			wantBefore: []types.UID{"a-uid"},
		},
		"the soak does not wait for it": {
			steps:      inB,
			was:        before,
			nodes:      []Node{done("a", made(60), notReady, inPool("b")), done("b", inPool("b")), z},
			soaks:      true,
			wantBefore: []types.UID{"a-uid"},
		},
		"it turned NotReady again later": {
			steps: inB, was: soaking, nodes: []Node{done("a", made(60), notReady, inPool("b")), done("b", inPool("b")), z}, failed: true,
		},
		"a canary that was not Ready before the task is waited for": {
			steps: canary, was: before, nodes: []Node{done("a", notReady), z}, waits: true, wantBefore: []types.UID{"a-uid"},
		},
		"a node that a user skips because it is not Ready": {
			steps: inB,
			was:   soaking,
			nodes: []Node{newNode("a", made(9000), notReady, inPool("b"), labelled(rev)), done("b", inPool("b")), z},
			soaks: true,
		},
		"a node that is not Ready when the task starts": {
			steps: canary, nodes: []Node{newNode("a", made(9000), notReady)}, want: start("a"), wantBefore: []types.UID{"a-uid"},
		},
		"a retry does not excuse a node": {
			steps: canary,
			nodes: []Node{newNode("a", made(9000), notReady, recorded(record.Failed))},
			want:  []string{"start attempt 2 of rev on a"},
		},

		"a soak that is over is not repeated": {
			steps: canary, change: promotedTo("first"), was: over("a-uid"), nodes: []Node{done("a", notReady), z},
		},
		"nor for a node that is due again": {
			steps:  canary,
			change: func(j *v1alpha1.NodeJob) { promotedTo("first")(j); periodSeconds(60)(j) },
			was:    over("a-uid"),
			nodes: []Node{
				newNode("a", made(9000), recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(900) })),
				z,
			},
			want: start("a"),
		},
		"the next canary soaks if the first was deleted": {
			steps: canary, change: promotedTo("first"), was: over("gone"), nodes: []Node{done("a"), z}, soaks: true, again: true,
		},
		"a canary that a user runs again soaks again": {
			steps: canary,
			was:   over("a-uid"),
			nodes: []Node{ran("a"), z},
			want:  []string{"Published a, recorded"},
			again: true,
		},
		"a canary on another machine soaks again": {
			steps: canary,
			was:   over("a-uid"),
			nodes: []Node{done("a", func(n *Node) { n.MachineID = "another" }), z},
			want:  start("a"),
			again: true,
		},
		"the soak of a canary that was deleted is not that of the next one": {
			steps: canary, was: soakingWith("gone"), nodes: []Node{done("a"), z}, soaks: true, again: true,
		},
		"the soak of a step continues with its other nodes": {
			steps: inB, was: soakingWith("gone", "a-uid"), nodes: []Node{done("a", inPool("b")), done("b", inPool("b")), z}, soaks: true,
		},
		"the soak of a step stays that of its other nodes": {
			steps:  inB,
			change: promotedTo("b"),
			was:    over("gone", "a-uid"),
			nodes:  []Node{done("a", inPool("b")), done("b", inPool("b")), z},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(inSteps(tt.steps...))
			if tt.change != nil {
				tt.change(job)
			}
			r := stateOf(tt.steps[0].Name)
			if tt.was != nil {
				tt.was(&r)
			}
			job.Status.Revision = rev
			r.write(&job.Status)
			p := Next(see(job, tt.nodes))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			got := readRollout(&p.Status)
			if over := !got.SoakedAt.IsZero(); over != (!r.SoakedAt.IsZero() && !tt.again) {
				t.Errorf("the soak is over: %v", over)
			}
			if continues := got.SoakingSince.Equal(&r.SoakingSince); !r.SoakingSince.IsZero() && tt.soaks && continues == tt.again {
				t.Errorf("the soak continues: %v", continues)
			}
			failed := slices.ContainsFunc(p.Nodes, func(st NodeState) bool { return st.State == Failed })
			if soaks, waits := !got.SoakingSince.IsZero(), !got.WaitingForReadySince.IsZero(); soaks != tt.soaks || waits != tt.waits ||
				failed != tt.failed {
				t.Errorf(
					"it soaks: %v, want %v; waits: %v, want %v; a node failed: %v, want %v",
					soaks,
					tt.soaks,
					waits,
					tt.waits,
					failed,
					tt.failed,
				)
			}
			if diff := cmp.Diff(tt.wantBefore, got.NotReadyBefore); diff != "" {
				t.Errorf("not Ready for another reason (-want +got):\n%s", diff)
			}
		})
	}
}
