// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

func withOS(os string) func(*Node) {
	return func(n *Node) { n.Labels = map[string]string{"pool": "a", corev1.LabelOSStable: os} }
}

// templateFor makes the task a template for an operating system; "" for any.
func templateFor(os corev1.OSName) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		template := &corev1.PodTemplateSpec{}
		if os != "" {
			template.Spec.OS = &corev1.PodOS{Name: os}
		}
		j.Spec.Task = v1alpha1.TaskSpec{Template: template, TimeoutSeconds: j.Spec.Task.TimeoutSeconds}
	}
}

// TestOperatingSystems tests that a node on which the task cannot run is excluded before anything starts there.
func TestOperatingSystems(t *testing.T) {
	const (
		notLinux   = `its label kubernetes.io/os is "windows", and the task runs on linux nodes`
		notWindows = `its label kubernetes.io/os is "linux", and the task runs on windows nodes`
	)
	leftOut := func(message string) NodeState {
		return NodeState{Name: "n", State: Excluded, Reason: v1alpha1.ReasonUnsupportedOS, Message: message}
	}
	starts := NodeState{Name: "n", State: Running, Reason: v1alpha1.ReasonStarting}
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		node Node
		want NodeState
	}{
		"a script runs on Linux":            {newJob(), newNode("n", withOS("linux")), starts},
		"a script does not run on Windows":  {newJob(), newNode("n", withOS("windows")), leftOut(notLinux)},
		"a template runs on any":            {newJob(templateFor("")), newNode("n", withOS("windows")), starts},
		"a template for Windows runs there": {newJob(templateFor(corev1.Windows)), newNode("n", withOS("windows")), starts},
		"a template for Windows runs nowhere else": {
			newJob(templateFor(corev1.Windows)),
			newNode("n", withOS("linux")),
			leftOut(notWindows),
		},
		"a failed Windows node is excluded": {
			newJob(), newNode("n", withOS("windows"), recorded(record.Failed, attempts(2))), leftOut(notLinux),
		},
		"a node of another pool is reported as not selected": {
			newJob(func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}}
			}),
			newNode("n", withOS("windows")),
			NodeState{
				Name:    "n",
				State:   Excluded,
				Reason:  v1alpha1.ReasonNotSelected,
				Message: "spec.nodes.selector does not match its labels",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(tt.job, []Node{tt.node}))
			if diff := cmp.Diff([]NodeState{tt.want}, p.Nodes); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
			if got, want := len(p.Actions) > 0, tt.want == starts; got != want {
				t.Errorf("actions %v, want some: %v", told(p), want)
			}
			if p.Status.Nodes.Failed > 0 {
				t.Errorf("it counts as failed: %+v", p.Status.Nodes)
			}
		})
	}
}

func TestNoMatchingNodesNamesOperatingSystem(t *testing.T) {
	p := Next(see(newJob(), []Node{newNode("b", withOS("windows")), newNode("a", withOS("windows"))}))
	const want = "2 nodes are excluded by the operating system (such as a): scripts and commands run on Linux only. For others use spec.task.template with spec.os"
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionComplete)
	if c == nil || c.Message != want {
		t.Errorf("condition %+v, want the message %q", c, want)
	}
}

// A Windows node must not wait for a NodeJob with a task for Linux, neither for its gate nor in dependsOn.
func TestNoWaitForNodeJobOfAnotherOS(t *testing.T) {
	const shared = "setup.example/closed"
	node := newNode(
		"n",
		withOS("windows"),
		withTaints(corev1.Taint{Key: shared, Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule}),
	)
	for os, want := range map[corev1.OSName]bool{corev1.Linux: true, corev1.Windows: false, "": false} {
		t.Run("a sharer of the gate for "+string(os), func(t *testing.T) {
			job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Gate = &v1alpha1.GateSpec{Key: shared} })
			in := see(job, []Node{node})
			in.GatePeers = []Peer{{Name: "other", Key: "ns.everynode.dev/other", Revision: "d", OS: os}}
			readOnPeers(&in)
			opened := len(Next(in).Actions) > 0
			if opened != want {
				t.Errorf("opened %v, want %v", opened, want)
			}
		})
		t.Run("a dependency for "+string(os), func(t *testing.T) {
			in := see(newJob(templateFor(corev1.Windows)), []Node{newNode("n", withOS("windows"))})
			in.DependsOn = []Peer{{Name: "other", Key: "ns.everynode.dev/other", Revision: "d", OS: os}}
			readOnPeers(&in)
			starts := len(Next(in).Actions) > 0
			if starts != want {
				t.Errorf("starts %v, want %v", starts, want)
			}
		})
	}
}
