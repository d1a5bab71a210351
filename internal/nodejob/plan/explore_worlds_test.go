// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// smallWorld is a NodeJob on a few nodes whose histories are explored.
type smallWorld struct {
	name string
	// nodes is how many there are, and faults how many there are in the unit tests.
	nodes, faults int
	// plain is true without gates, published results, dependencies, and a node of the manager: see newAround.
	plain bool
	spec  func(*v1alpha1.NodeJobSpec)
	// begin changes more than the spec, and steps are what can happen besides.
	begin func(*history)
	steps func(*stepper)
}

var smallWorlds = []smallWorld{
	{name: "canary", nodes: 2, faults: 1, plain: true},
}

// job is the spec of the world: a canary that soaks, then all other nodes, one after the other.
func (w *smallWorld) job() v1alpha1.NodeJobSpec {
	spec := v1alpha1.NodeJobSpec{
		Nodes: v1alpha1.NodesSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}},
		Task:  v1alpha1.TaskSpec{Script: "true", TimeoutSeconds: new(int32(60))},
		Retry: v1alpha1.RetrySpec{Limit: new(int32(1)), BackoffSeconds: new(int32(10))},
		Rollout: v1alpha1.RolloutSpec{
			MaxConcurrent: new(intstr.FromInt32(1)), MaxFailures: new(intstr.FromInt32(0)),
			Steps: []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1)), SoakSeconds: 20}, {Name: "all"}},
		},
	}
	if w.spec != nil {
		w.spec(&spec)
	}
	return spec
}
