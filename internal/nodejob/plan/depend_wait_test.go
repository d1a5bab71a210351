// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestStepsThatWaitForADependency tests what a step does while a NodeJob that it depends on is not done on its nodes. Nodes
// with the label stage=yes wait for it.
func TestStepsThatWaitForADependency(t *testing.T) {
	waits := func(n *Node) { n.Labels = map[string]string{"pool": "b", "stage": "yes"} }
	controlPlane := func(n *Node) { n.Labels = map[string]string{controlPlaneLabel: ""} }
	one := first(intstr.FromInt32(1))
	all := func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxFailures = new(intstr.FromString("100%")) }
	none := func(*v1alpha1.NodeJob) {}
	tests := map[string]struct {
		steps   []v1alpha1.RolloutStep
		mayFail func(*v1alpha1.NodeJob)
		// since is how long the step has waited, in seconds; 0 if it has not.
		since int
		nodes []Node
		pods  []Pod
		want  []string
		// reason of the first node.
		reason string
		// wantSince is how long it has waited after the pass; -1 if it does not wait.
		wantSince int
		stalled   bool
	}{
		"a node that can start is the canary": {
			steps: []v1alpha1.RolloutStep{one, rest}, mayFail: none, nodes: []Node{newNode("a", made(900), waits), newNode("b", made(9))},
			want: []string{"start attempt 1 of rev on b"}, reason: v1alpha1.ReasonWaitingForDependency, wantSince: -1,
		},
		"a control plane node is not preferred for that": {
			steps: []v1alpha1.RolloutStep{
				one,
				rest,
			},
			mayFail:   none,
			nodes:     []Node{newNode("a", made(900), waits), newNode("b", made(9), controlPlane)},
			reason:    v1alpha1.ReasonWaitingForDependency,
			wantSince: 0,
		},
		"it waits for less than the deadline": {
			steps: []v1alpha1.RolloutStep{
				one,
				rest,
			},
			mayFail:   none,
			since:     3599,
			nodes:     []Node{newNode("a", made(9000), waits), newNode("b", made(90), waits)},
			reason:    v1alpha1.ReasonWaitingForDependency,
			wantSince: 3599,
		},
		"the rollout is Stalled after the deadline": {
			steps: []v1alpha1.RolloutStep{
				one,
				rest,
			},
			mayFail:   none,
			since:     3600,
			nodes:     []Node{newNode("a", made(9000), waits), newNode("b", made(90), waits)},
			reason:    v1alpha1.ReasonProgressDeadlineExceeded,
			wantSince: 3600,
			stalled:   true,
		},
		"another canary starts after the deadline if maxFailures allows it": {
			steps: []v1alpha1.RolloutStep{
				one,
				rest,
			},
			mayFail:   mayFailNodes(1),
			since:     3600,
			nodes:     []Node{newNode("a", made(9000), waits), newNode("b", made(90), controlPlane)},
			want:      []string{"start attempt 1 of rev on b"},
			reason:    v1alpha1.ReasonProgressDeadlineExceeded,
			wantSince: 3600,
		},
		"each canary that waits counts": {
			steps: []v1alpha1.RolloutStep{
				one,
				rest,
			},
			mayFail: mayFailNodes(1),
			since:   3600,
			nodes: []Node{
				newNode("a", made(9000), waits),
				newNode("b", made(90), waits),
				newNode("c", made(80), waits),
				newNode("d", made(70), controlPlane),
			},
			reason:    v1alpha1.ReasonProgressDeadlineExceeded,
			wantSince: 3600,
			stalled:   true,
		},
		"the status says so if all nodes wait": {
			steps: []v1alpha1.RolloutStep{
				one,
				rest,
			},
			mayFail:   all,
			since:     3600,
			nodes:     []Node{newNode("a", made(9000), waits), newNode("b", made(90), waits)},
			reason:    v1alpha1.ReasonProgressDeadlineExceeded,
			wantSince: 3600,
			stalled:   true,
		},
		"a step with a selector passes without the node that waits": {
			steps:   []v1alpha1.RolloutStep{poolB(0), rest},
			mayFail: mayFailNodes(1),
			since:   3600,
			nodes: []Node{
				newNode("a", made(9000), waits),
				newNode("b", made(9000), recorded(record.Succeeded), inPool("b")),
				newNode("c", made(9000)),
			},
			want:      []string{"start attempt 1 of rev on c"},
			reason:    v1alpha1.ReasonProgressDeadlineExceeded,
			wantSince: -1,
		},
		"a step that waits for another node as well has not waited": {
			steps: []v1alpha1.RolloutStep{poolB(0), rest}, mayFail: none, since: 3600,
			nodes: []Node{newNode("a", made(9000), waits), newNode("b", made(9000), inPool("b"))}, pods: []Pod{newPod(newNode("b"))},
			reason: v1alpha1.ReasonWaitingForDependency, wantSince: -1,
		},
		"a step that begins waits from this pass on, because no event triggers another one": {
			steps: []v1alpha1.RolloutStep{
				one,
				rest,
			},
			mayFail:   none,
			nodes:     []Node{newNode("a", made(9), waits), newNode("b", made(90), recorded(record.Succeeded))},
			reason:    v1alpha1.ReasonWaitingForDependency,
			wantSince: 0,
		},
		"it continues when the dependency is done": {
			steps: []v1alpha1.RolloutStep{
				one,
				rest,
			},
			mayFail:   none,
			since:     9000,
			nodes:     []Node{newNode("a", made(9000), waits, func(n *Node) { n.Labels[depKey] = "d1" })},
			want:      []string{"start attempt 1 of rev on a"},
			reason:    v1alpha1.ReasonStarting,
			wantSince: -1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(inSteps(tt.steps...), tt.mayFail)
			job.Status.Revision, job.Status.Rollout = rev, &v1alpha1.RolloutStatus{
				Step:          tt.steps[0].Name,
				StepStartedAt: metav1.Time{Time: ago(900)},
			}
			if tt.since > 0 {
				job.Status.ControllerState.Rollout.WaitingForDependencySince = metav1.Time{Time: ago(tt.since)}
			}
			in := see(job, tt.nodes, tt.pods...)
			in.DependsOn = []Peer{{Name: "dep", Key: depKey, Selector: stageSelector(), Revision: "d1"}}
			readOnPeers(&in)
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" || p.Nodes[0].Reason != tt.reason || isStalled(p.Status) != tt.stalled {
				t.Errorf(
					"a is %s: %s, stalled: %v; actions (-want +got):\n%s",
					p.Nodes[0].Reason,
					p.Nodes[0].Message,
					isStalled(p.Status),
					diff,
				)
			}
			want := metav1.Time{}
			if tt.wantSince >= 0 {
				want = metav1.Time{Time: ago(tt.wantSince)}
			}
			if got := p.Status.ControllerState.Rollout.WaitingForDependencySince; !got.Equal(&want) {
				t.Errorf("it waits since %v, want %v", got, want)
			}
		})
	}
}

// A node that counts as failed because of a dependency makes the revision stable if it is the last. It still counts after that: otherwise
// the NodeJob would be Stalled for a second only, and wait for ever with the message that no action is needed.
func TestAStableRevisionIsPlannedAgainAfterFailuresOfProgress(t *testing.T) {
	waits := newNode("a", made(9000), func(n *Node) { n.Labels["stage"] = "yes" })
	job := newJob(inSteps(rest), mayFailNodes(1))
	job.Status.Revision, job.Status.Rollout = rev, &v1alpha1.RolloutStatus{Step: rest.Name, StepStartedAt: metav1.Time{Time: ago(4000)}}
	job.Status.ControllerState.Rollout.WaitingForDependencySince = metav1.Time{Time: ago(3600)}
	in := see(job, []Node{waits, newNode("b", made(9000), recorded(record.Succeeded))})
	in.DependsOn = []Peer{{Name: "dep", Key: depKey, Selector: stageSelector(), Revision: "d1"}}
	readOnPeers(&in)
	p := Next(in)
	if want := in.Now.Add(time.Second); p.WakeAt.IsZero() || p.WakeAt.After(want) {
		t.Errorf("the next pass is at %v, want %v", p.WakeAt, want)
	}
	for range 2 {
		if p.Status.Rollout.StableAt.IsZero() || p.Nodes[0].Reason != v1alpha1.ReasonProgressDeadlineExceeded || !isStalled(p.Status) {
			t.Fatalf("the revision is stable at %v, and a is %s", p.Status.Rollout.StableAt, p.Nodes[0].Reason)
		}
		in.Job.Status, in.Now = p.Status, in.Now.Add(time.Second)
		p = Next(in)
	}
	in.Nodes[0].Labels[depKey] = "d1"
	readOnPeers(&in)
	in.Job.Status = p.Status
	if p = Next(in); p.Nodes[0].Reason != v1alpha1.ReasonStarting || !p.Status.ControllerState.Rollout.WaitingForDependencySince.IsZero() {
		t.Errorf("the dependency is done, and a is %s", p.Nodes[0].Reason)
	}
}
