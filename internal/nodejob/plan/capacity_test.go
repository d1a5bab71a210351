// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
)

func stableSince(seconds int) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Status.Revision = rev
		j.Status.Rollout = &v1alpha1.RolloutStatus{Step: "all", StableAt: metav1.NewTime(ago(seconds))}
	}
}

func upToUnavailable(n int32) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.MaxUnavailable = new(intstr.FromInt32(n)) }
}

func succeededAgo(seconds int) func(*Node) {
	return recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(seconds) })
}

// TestStartOrder tests which node starts first if there is only one slot.
func TestStartOrder(t *testing.T) {
	always := rebootingAs(v1alpha1.RebootAlways)
	tests := map[string]struct {
		job      []func(*v1alpha1.NodeJob)
		nodes    []Node
		problems map[types.UID]NodeProblem
		own      string
		want     []string
	}{
		"a rollback comes before a node that is prepared": {
			job: []func(*v1alpha1.NodeJob){
				withRollback,
				cordoning,
				upToUnavailable(2),
			},
			nodes: []Node{newNode("a", cordonedBy(jobKey)), newNode("b", exhaustedWith(nil))},
			want:  []string{"start rollback 1 of rev on b", "Uncordoned a, uncordoned"},
		},
		"the node of the manager comes last if the revision is stable": {
			job: []func(*v1alpha1.NodeJob){always, stableSince(600)}, nodes: []Node{newNode("a"), newNode("b")}, own: "a",
			want: []string{"start attempt 1 of rev on b"},
		},
		"the node of the manager comes before a node whose time has passed": {
			job: []func(*v1alpha1.NodeJob){always, stableSince(600)},
			nodes: []Node{
				newNode("a", recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince = ago(7200) })),
				newNode("b"),
			},
			own:  "b",
			want: []string{"start attempt 1 of rev on b"},
		},
		"a quarantined node that is retried does not come before others": {
			job: []func(*v1alpha1.NodeJob){
				askAgain,
			},
			nodes: []Node{newNode("a"), newNode("b", recorded(record.Failed, attempts(2)), cordonedBy(jobKey))},
			want:  []string{"start attempt 1 of rev on a", "Uncordoned b, uncordoned"},
		},
		"a node that a user has cordoned does not come before others": {
			job: []func(*v1alpha1.NodeJob){cordoning, upToUnavailable(2)}, nodes: []Node{newNode("a"), newNode("b", byHand)},
			want: []string{"Preparing a, cordoned by ns.everynode.dev/job"},
		},
		"a node that a user has uncordoned does not come before others": {
			job: []func(*v1alpha1.NodeJob){
				cordoning,
				upToUnavailable(2),
			},
			nodes: []Node{newNode("a"), newNode("b", func(n *Node) { n.CordonedBy = []string{jobKey} })},
			want:  []string{"Preparing a, cordoned by ns.everynode.dev/job", "Uncordoned b, uncordoned"},
		},
		"a node that a user has cordoned, and that is being drained, comes before others": {
			job: []func(*v1alpha1.NodeJob){
				draining,
				drainsSince("b", 10),
				upToUnavailable(2),
			},
			nodes: []Node{newNode("a"), newNode("b", byHand)},
		},
		"the rerun that is due for the longest comes first": {
			job: []func(*v1alpha1.NodeJob){
				periodSeconds(60),
			},
			nodes: []Node{newNode("a", succeededAgo(4000)), newNode("b", succeededAgo(5000))},
			want:  []string{"start attempt 1 of rev on b"},
		},
		"a rerun that was tried comes after others": {
			job: []func(*v1alpha1.NodeJob){
				periodSeconds(60),
			},
			nodes:    []Node{newNode("a", succeededAgo(5000)), newNode("b", succeededAgo(4000))},
			problems: nameTaken(60, -10),
			want:     []string{"start attempt 1 of rev on b"},
		},
		"a rerun that is prepared comes before others": {
			job: []func(*v1alpha1.NodeJob){periodSeconds(60), cordoning, upToUnavailable(2)},
			nodes: []Node{
				newNode("a", succeededAgo(4000), cordonedBy(jobKey)),
				newNode("b", succeededAgo(5000)),
			},
			want: []string{"start attempt 1 of rev on a"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(append(tt.job, oneAtOnce)...), tt.nodes)
			in.OwnNode, in.NodeProblems = tt.own, tt.problems
			if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// A node that joined after the revision became stable, and runs no workloads yet, leaves the only slot to another node.
func TestAJoiningNodeLeavesTheSlotToOthers(t *testing.T) {
	joined, old := newNode("a", made(5), withTaints(ownTaint)), newNode("z", made(9000))
	withGate := gated(v1alpha1.GateSpec{})
	const onA, onZ = "start attempt 1 of rev on a", "start attempt 1 of rev on z"
	for name, tt := range map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node Node
		pods []Pod
		want []string
	}{
		"when it starts":             {job: withGate, node: joined, want: []string{onA, onZ}},
		"while its task runs":        {job: withGate, node: joined, pods: []Pod{newPod(joined)}, want: []string{onZ}},
		"not if it has other taints": {job: withGate, node: newNode("a", made(5), withTaints(prefers)), want: []string{onA, "GateClosed a, taints [example.com/prefers:PreferNoSchedule ns.everynode.dev/job=everynode:NoSchedule]"}},
		"not if the gate is removed": {job: func(*v1alpha1.NodeJob) {}, node: joined, want: []string{onA, "GateOpened a, taints []"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(tt.job, stableSince(600), oneAtOnce), []Node{tt.node, old}, tt.pods...))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// While it is not known whether the API server still refuses pods, one start of each kind of pod shows it.
func TestOneStartShowsWhetherPodsAreStillRefused(t *testing.T) {
	refusal := &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(5)}
	a, b, c := newNode("a", exhaustedWith(nil)), newNode("b", exhaustedWith(nil)), newNode("c")
	const rollback, attempt = "start rollback 1 of rev on a", "start attempt 1 of rev on c"
	for name, tt := range map[string]struct {
		job                   func(*v1alpha1.NodeJob)
		obstacle, ofRollbacks *hold.Why
		nodes                 []Node
		want                  []string
	}{
		"rollbacks":                     {templated, nil, refusal, []Node{a, b}, []string{rollback}},
		"rollbacks and the task":        {templated, refusal, nil, []Node{a, c}, []string{rollback, attempt}},
		"all pods are of the same kind": {withRollback, refusal, nil, []Node{a, c}, []string{rollback}},
	} {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(tt.job), tt.nodes)
			in.Obstacle, in.RunnerRefused = tt.obstacle, tt.ofRollbacks
			if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMaxSlots : rollout.maxConcurrent cannot allow more nodes than the maximum, and nodes that wait for it say so.
func TestMaxSlots(t *testing.T) {
	var nodes []Node
	for i := range maxSlots + 5 {
		nodes = append(nodes, newNode(fmt.Sprintf("n%05d", i)))
	}
	in := see(newJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Rollout.MaxConcurrent = new(intstr.FromString("100%"))
		j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "all"}}
	}), nodes)
	p := Next(in)
	if len(p.Actions) != maxSlots {
		t.Errorf("%d attempts start, want %d", len(p.Actions), maxSlots)
	}
	if last := p.Nodes[len(nodes)-1]; last.Reason != v1alpha1.ReasonWaitingForSlot ||
		!strings.Contains(last.Message, "at most 1000 nodes of a NodeJob") {
		t.Errorf("the last node waits with %s: %s", last.Reason, last.Message)
	}
}
