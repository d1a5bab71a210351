// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestOneControlPlaneNodeAtATime tests which nodes are disrupted when all of them may be.
func TestOneControlPlaneNodeAtATime(t *testing.T) {
	ofControlPlane := func(n *Node) { n.Labels = map[string]string{"pool": "a", controlPlaneLabel: ""} }
	ofEtcd := func(n *Node) { n.Labels = map[string]string{"pool": "a", etcdLabel: "true"} }
	notReady := func(n *Node) { n.Ready = corev1.ConditionFalse }
	elsewhere := func(n *Node) { n.Labels = map[string]string{"pool": "b", controlPlaneLabel: ""} }
	all := func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromString("100%")) }
	tests := map[string]struct {
		job   func(*v1alpha1.NodeJob)
		nodes []Node
		pods  []Pod
		want  []string
	}{
		"one of three starts": {
			job: rebootingAs(
				v1alpha1.RebootAlways,
			),
			nodes: []Node{newNode("a", ofControlPlane), newNode("b", ofControlPlane), newNode("c", ofControlPlane)},
			want:  []string{"Preparing a, cordoned by ns.everynode.dev/job"},
		},
		"it starts when it is cordoned": {
			job: rebootingAs(
				v1alpha1.RebootAlways,
			),
			nodes: []Node{newNode("a", ofControlPlane, cordonedBy(jobKey)), newNode("b", ofControlPlane)},
			want:  []string{"start attempt 1 of rev on a"},
		},
		"it is uncordoned when another NodeJob has cordoned another one": {
			job: rebootingAs(
				v1alpha1.RebootAlways,
			),
			nodes: []Node{
				newNode("a", ofControlPlane, cordonedBy(jobKey)),
				newNode("b", ofControlPlane, cordonedBy("ns.everynode.dev/other"), labelled(rev)),
			},
			want: []string{"Uncordoned a, uncordoned"},
		},
		"one of three is cordoned": {
			job: cordoning, nodes: []Node{newNode("a", ofControlPlane), newNode("b", ofEtcd), newNode("w")},
			want: []string{"Preparing a, cordoned by ns.everynode.dev/job", "Preparing w, cordoned by ns.everynode.dev/job"},
		},
		"none while another runs the task": {
			job: rebootingAs(
				v1alpha1.RebootAlways,
			),
			nodes: []Node{newNode("a", ofControlPlane), newNode("b", ofControlPlane)},
			pods:  []Pod{newPod(newNode("b"))},
		},
		"none while another is not Ready": {
			job: rebootingAs(
				v1alpha1.RebootAlways,
			),
			nodes: []Node{newNode("a", ofControlPlane), newNode("b", ofControlPlane, notReady, labelled(rev))},
		},
		"none while another is cordoned": {
			job: rebootingAs(
				v1alpha1.RebootAlways,
			),
			nodes: []Node{newNode("a", ofControlPlane), newNode("b", ofControlPlane, byHand, labelled(rev))},
		},
		"none while another that does not match is unavailable": {
			job:   func(j *v1alpha1.NodeJob) { inPoolA(j); rebootingAs(v1alpha1.RebootAlways)(j) },
			nodes: []Node{newNode("a", ofControlPlane), newNode("b", elsewhere, notReady)},
		},
		"it does not wait for a node that its own NodeJob has quarantined": {
			job: func(j *v1alpha1.NodeJob) {
				rebootingAs(v1alpha1.RebootAlways)(j)
				onFailure(v1alpha1.FailureActionCordon)(j)
			},
			nodes: []Node{
				newNode("a", ofControlPlane),
				newNode("b", ofControlPlane, recorded(record.Failed, attempts(2), wasCordoned), cordonedBy(jobKey)),
			},
			want: []string{"Preparing a, cordoned by ns.everynode.dev/job"},
		},
		"none while another one is cordoned for another NodeJob too": {
			job: func(j *v1alpha1.NodeJob) {
				rebootingAs(v1alpha1.RebootAlways)(j)
				onFailure(v1alpha1.FailureActionCordon)(j)
			},
			nodes: []Node{
				newNode("a", ofControlPlane),
				newNode(
					"b",
					ofControlPlane,
					recorded(record.Failed, attempts(2), wasCordoned),
					cordonedBy(jobKey, "ns.everynode.dev/other"),
				),
			},
		},
		"it does not wait for other nodes": {
			job: rebootingAs(v1alpha1.RebootAlways), nodes: []Node{newNode("a", ofControlPlane), newNode("b", notReady, labelled(rev))},
			want: []string{"Preparing a, cordoned by ns.everynode.dev/job"},
		},
		"a node that a user has cordoned starts": {
			job: rebootingAs(v1alpha1.RebootAlways), nodes: []Node{newNode("a", ofControlPlane, byHand), newNode("b", ofControlPlane)},
			want: []string{"start attempt 1 of rev on a"},
		},
		"a node that is not Ready itself starts": {
			job: rebootingAs(
				v1alpha1.RebootAlways,
			),
			nodes: []Node{newNode("a", ofControlPlane, notReady), newNode("b", ofControlPlane, byHand, labelled(rev))},
			want:  []string{"Preparing a, cordoned by ns.everynode.dev/job"},
		},
		"all start if the task needs no maintenance": {
			job: func(*v1alpha1.NodeJob) {}, nodes: []Node{newNode("a", ofControlPlane), newNode("b", ofControlPlane)},
			want: []string{"start attempt 1 of rev on a", "start attempt 1 of rev on b"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(all, tt.job), tt.nodes, tt.pods...))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// Two NodeJobs that only reboot, each another node, plan at the same time and see each other's writes late.
func TestTwoNodeJobsDisruptOneControlPlaneNodeAtATime(t *testing.T) {
	for seed := range int64(100) {
		rng := rand.New(rand.NewSource(seed))
		nodes := make([]Node, 3)
		for i := range nodes {
			nodes[i] = newNode(fmt.Sprint(i), func(n *Node) { n.Labels = map[string]string{controlPlaneLabel: ""} })
		}
		var jobs [2]struct {
			pods    []Pod
			planned *Plan
		}
		started := map[string]bool{}
		for range 200 {
			i := rng.Intn(len(jobs))
			job := newJob(
				rebootingAs(v1alpha1.RebootIfRequested),
				func(j *v1alpha1.NodeJob) { j.Name, j.Spec.Nodes.Names = fmt.Sprint("job-", i), []string{fmt.Sprint(i)} },
			)
			if jobs[i].planned == nil {
				jobs[i].planned = new(Next(see(job, slices.Clone(nodes), jobs[i].pods...)))
				continue
			}
			for _, action := range jobs[i].planned.Actions {
				switch a := action.(type) {
				case Start:
					started[a.Attempt.NodeName] = true
					jobs[i].pods = append(jobs[i].pods, newPod(newNode(a.Attempt.NodeName)))
				case PatchNode:
					for k := range nodes {
						if nodes[k].Name == a.Node && nodes[k].ResourceVersion == a.ResourceVersion {
							nodes[k].CordonedBy, nodes[k].Unschedulable = a.Cordon.By, len(a.Cordon.By) > 0
							nodes[k].ResourceVersion += "'"
						}
					}
				}
			}
			jobs[i].planned = nil
		}
		if len(started) != 1 {
			t.Errorf("seed %d: tasks run on %v, want one node", seed, slices.Sorted(maps.Keys(started)))
		}
	}
}

// Nodes may wait for two rules, each for other nodes: the status names both. Caches list nodes in random order, and the status must
// not change with it.
func TestStatusNamesNodesOfEachBlockingRule(t *testing.T) {
	ofControlPlane := func(n *Node) { n.Labels = map[string]string{"pool": "a", controlPlaneLabel: ""} }
	notReady := func(n *Node) { n.Ready = corev1.ConditionFalse }
	job := newJob(
		rebootingAs(v1alpha1.RebootAlways),
		func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.MaxUnavailable = new(intstr.FromInt32(1)) },
	)
	nodes := []Node{
		newNode(
			"c1",
			ofControlPlane,
		),
		newNode("c2", ofControlPlane, notReady, labelled(rev)),
		newNode("c3", ofControlPlane, notReady, labelled(rev)),
		newNode("w1"),
		newNode("w2", labelled(rev)),
		newNode("w3"),
	}
	want := "; w1: 2 nodes are not Ready, cordoned or at work (c2, c3), and maintenance.maxUnavailable allows 1; c1: control plane node c2 is not Ready, cordoned or at work, and only one is made unavailable at a time"
	for range 2 {
		p := Next(see(job, nodes))
		if c := p.Status.Conditions[1]; c.Status != metav1.ConditionTrue || !strings.HasSuffix(c.Message, want) {
			t.Errorf("condition %+v, want Reconciling: …%s", c, want)
		}
		slices.Reverse(nodes)
	}
}

// No more nodes are cordoned than can be drained.
func TestNodesWaitUncordonedForDrain(t *testing.T) {
	job := newJob(draining, func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromString("100%")) })
	nodes := make([]Node, 0, 3*maxDrains)
	for i := range 3 * maxDrains {
		nodes = append(nodes, newNode(fmt.Sprintf("n%02d", i)))
	}
	p := Next(see(job, nodes))
	if len(p.Actions) != maxDrains {
		t.Errorf("%d nodes are cordoned, want %d", len(p.Actions), maxDrains)
	}
	if last := p.Nodes[len(nodes)-1]; last.Reason != v1alpha1.ReasonWaitingForSlot ||
		last.Message != "it waits until fewer than 10 nodes are being drained" {
		t.Errorf("the last node is %+v", last)
	}
	for i := range maxDrains - 1 {
		cordonedBy(jobKey)(&nodes[i])
	}
	in := see(job, nodes)
	in.Drains = map[types.UID][]DrainPod{}
	if p := Next(in); len(p.Actions) != 1 {
		t.Errorf("with %d cordoned, actions %v, want one more cordon", maxDrains-1, told(p))
	}
}
