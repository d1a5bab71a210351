// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestExcludedNodes checks that a NodeJob that is complete says on which selected nodes it does not run, and why.
func TestExcludedNodes(t *testing.T) {
	const gpu, windows = "it has the taint gpu=yes:NoExecute", `its label kubernetes.io/os is "windows", and the task runs on linux nodes`
	done := newNode("done", recorded(record.Succeeded))
	tainted := func(name string) Node { return newNode(name, func(n *Node) { n.Taints = []corev1.Taint{busy} }) }
	special := newNode("special", func(n *Node) {
		n.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoExecute}}
	})
	other := newNode("other", func(n *Node) { n.Labels[corev1.LabelOSStable] = "windows" })
	busyNodes := func(nodes int32, names ...string) v1alpha1.ExcludedNodes {
		return v1alpha1.ExcludedNodes{
			Message: "it has the taint " + busy.ToString(),
			Reason:  v1alpha1.ReasonUntoleratedTaint,
			Nodes:   nodes,
			Names:   names,
		}
	}
	tests := map[string]struct {
		nodes   []Node
		want    []v1alpha1.ExcludedNodes
		message string
	}{
		"none": {[]Node{done}, nil, "1 of 1 node is done"},
		"one by a taint": {
			[]Node{done, tainted("a")},
			[]v1alpha1.ExcludedNodes{busyNodes(1, "a")},
			"1 of 1 node is done; 1 node is excluded by a taint",
		},
		"most nodes first": {[]Node{other, special, tainted("d"), tainted("b"), done, tainted("c"), tainted("a")}, []v1alpha1.ExcludedNodes{
			busyNodes(4, "a", "b", "c"),
			{Message: gpu, Reason: v1alpha1.ReasonUntoleratedTaint, Nodes: 1, Names: []string{"special"}},
			{Message: windows, Reason: v1alpha1.ReasonUnsupportedOS, Nodes: 1, Names: []string{"other"}},
		}, "1 of 1 node is done; 5 nodes are excluded by a taint, 1 node is excluded by the operating system"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status := Next(see(newJob(), tt.nodes)).Status
			if diff := cmp.Diff(tt.want, status.Excluded); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := int32(len(tt.nodes)) - 1; status.Nodes.Excluded != want {
				t.Errorf("%d nodes are excluded, want %d", status.Nodes.Excluded, want)
			}
			if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionComplete); c.Message != tt.message {
				t.Errorf("got %q, want %q", c.Message, tt.message)
			}
		})
	}
}

// TestNodesThatAreNotSelectedDoNotChangeTheStatus checks that an autoscaler of other nodes causes no writes.
func TestNodesThatAreNotSelectedDoNotChangeTheStatus(t *testing.T) {
	job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Nodes.Names = []string{"done"} })
	nodes := []Node{newNode("done", recorded(record.Succeeded))}
	before := Next(see(job, nodes)).Status
	after := Next(see(job, append(nodes, newNode("joins", func(n *Node) { n.Taints = []corev1.Taint{busy} })))).Status
	if diff := cmp.Diff(before, after); diff != "" || after.Nodes.Excluded != 0 {
		t.Errorf("the status changes (-before +after):\n%s", diff)
	}
}

// TestExcludedNodesAreBounded covers a cluster in which each node has a taint of its own.
func TestExcludedNodesAreBounded(t *testing.T) {
	nodes := []Node{newNode("done", recorded(record.Succeeded))}
	for i := range 5000 {
		nodes = append(nodes, newNode(fmt.Sprintf("n-%04d", i), func(n *Node) {
			n.Taints = []corev1.Taint{{Key: "own", Value: fmt.Sprint(i), Effect: corev1.TaintEffectNoSchedule}}
		}))
	}
	status := Next(see(newJob(), nodes)).Status
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionComplete)
	if len(status.Excluded) != maxExcluded || status.Nodes.Excluded != 5000 ||
		c.Message != "1 of 1 node is done; 5000 nodes are excluded by a taint" {
		t.Errorf("%d reasons, %d nodes, %q", len(status.Excluded), status.Nodes.Excluded, c.Message)
	}
}
