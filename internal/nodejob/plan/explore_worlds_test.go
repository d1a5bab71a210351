// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// smallWorld is a NodeJob on a few nodes whose histories are explored.
type smallWorld struct {
	name string
	// nodes is how many there are.
	nodes int
	// plain is true without gates, published results, dependencies, and a node of the manager: see newAround.
	plain bool
	spec  func(*v1alpha1.NodeJobSpec)
	// staged are the nodes of the staging step, and of other NodeJobs.
	staged []string
	// deletes is true if a deletion of the NodeJob is no fault.
	deletes bool
	// begin changes more than the spec, and steps are what can happen besides.
	begin func(*history)
	steps func(*stepper)
}

var smallWorlds = []smallWorld{
	{name: "canary", nodes: 2, plain: true},
	{name: "three_nodes", nodes: 3, plain: true, spec: func(s *v1alpha1.NodeJobSpec) {
		staging := v1alpha1.RolloutStep{Name: "staging", Selector: stageSelector()}
		s.Rollout.Steps = slices.Insert(s.Rollout.Steps, 1, staging)
	}, staged: []string{"n1"}},
	{name: "rollback", nodes: 2, plain: true, spec: rollsBack},
	{name: "deletion", nodes: 2, plain: true, spec: rollsBack, deletes: true},
	{name: "maintenance", nodes: 2, spec: func(s *v1alpha1.NodeJobSpec) {
		s.Maintenance.Drain = &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(60))}
		s.Maintenance.MaxUnavailable = new(intstr.FromInt32(1))
	}, steps: (*stepper).evictions},
	{name: "reboot", nodes: 2, spec: func(s *v1alpha1.NodeJobSpec) {
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
		s.Maintenance.Reboot = v1alpha1.RebootSpec{
			Policy: v1alpha1.RebootAlways, MinReadySeconds: new(int32(10)), TimeoutSeconds: new(int32(90)),
		}
		s.Maintenance.MaxUnavailable = new(intstr.FromInt32(1))
	}},
	{name: "check_before", nodes: 2, spec: func(s *v1alpha1.NodeJobSpec) {
		s.Maintenance.Cordon = true
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, Before: true}
	}, begin: func(h *history) { h.asks = true }},
	{name: "drift", nodes: 2, spec: func(s *v1alpha1.NodeJobSpec) {
		s.Task.Check = &v1alpha1.CheckSpec{
			ScriptBlock:   v1alpha1.ScriptBlock{Script: "true"},
			PeriodSeconds: int32(driftPeriod / time.Second),
			OnDrift:       v1alpha1.DriftRun,
		}
		s.Rollout.Steps[0].SoakSeconds = 0
	}, begin: func(h *history) { h.watches = true }},
	{name: "reruns", nodes: 2, spec: func(s *v1alpha1.NodeJobSpec) {
		s.Rerun.OnReboot = true
		s.Rollout.Steps[0].SoakSeconds = 0
	}},
	{name: "depends_on", nodes: 2, staged: []string{"n0", "n1"}, begin: func(h *history) { h.dep = "d1" }, steps: (*stepper).dependency},
	{name: "gate", nodes: 2, spec: func(s *v1alpha1.NodeJobSpec) { s.Gate = &v1alpha1.GateSpec{} }, begin: withGate},
	{name: "shared_gate", nodes: 2, spec: func(s *v1alpha1.NodeJobSpec) {
		s.Gate = &v1alpha1.GateSpec{Key: sharedGate}
	}, begin: func(h *history) {
		withGate(h)
		h.other = "o1"
	}, staged: []string{"n0", "n1"}, steps: (*stepper).peer},
	{name: "budget", nodes: 2, spec: cordonsFirst, begin: budgeted, steps: (*stepper).budget},
	{name: "window", nodes: 2, spec: func(s *v1alpha1.NodeJobSpec) {
		cordonsFirst(s)
		s.Rollout.Steps[0].SoakSeconds = 0
	}, begin: func(h *history) {
		budgeted(h)
		h.open, h.every = 4*time.Minute, 5*time.Minute
	}},
	{name: "namespace", nodes: 2, spec: cordonsFirst, steps: (*stepper).namespace},
	{name: "refused_pods", nodes: 2, plain: true, spec: rollsBack, steps: (*stepper).refusals},
	{
		name:  "compromised_node",
		nodes: 2,
		spec:  cordonsFirst,
		begin: func(h *history) { h.on[compromised] = true },
		steps: (*stepper).villain,
	},
	{name: "tenant", nodes: 2, spec: cordonsFirst, begin: func(h *history) { h.plot = h.rng }, steps: (*stepper).tenant},
}

func rollsBack(s *v1alpha1.NodeJobSpec) {
	s.Retry.Limit = new(int32(0))
	s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, TimeoutSeconds: new(int32(40))}
	s.OnFailure.Action = v1alpha1.FailureActionCordon
}

func cordonsFirst(s *v1alpha1.NodeJobSpec) {
	s.Maintenance.Cordon = true
	s.Maintenance.MaxUnavailable = new(intstr.FromInt32(1))
}

func withGate(h *history) {
	h.policy = true
	h.gateSince[h.job.Spec.Gate.Key] = h.now
}

func budgeted(h *history) {
	h.budgeter = budgeter{
		rolls: h.rng, limit: 1, tasks: true, begun: map[types.UID]bool{}, without: map[types.UID]bool{}, taken: map[types.UID]bool{},
		granted: map[types.UID]bool{}, held: map[types.UID]bool{},
	}
}

// job is the spec of the world: a canary that soaks, then all other nodes, one after the other.
func (w *smallWorld) job() v1alpha1.NodeJobSpec {
	spec := v1alpha1.NodeJobSpec{
		Nodes: v1alpha1.NodesSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}},
		Task:  v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, TimeoutSeconds: new(int32(60))},
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

// What can happen only in some worlds.

// evictions are those of the pods of others: the API server refuses them until a user does something about it.
func (s *stepper) evictions() {
	if drains := s.last.DrainPodRequests; s.faults > 0 && len(drains) > 0 {
		s.add(1, func(w *explored) {
			for uid, pods := range w.workloads {
				pods = slices.Clone(pods)
				for i := range pods {
					pods[i].Blocked, pods[i].TriedAt = "a budget", w.now
				}
				w.workloads[uid] = pods
			}
		}, "all evictions are refused")
	}
}

// dependency is the NodeJob on which the world depends.
func (s *stepper) dependency() {
	for _, name := range sortedKeys(s.nodes) {
		if s.awaited(s.nodes[name]) {
			s.add(0, func(w *explored) { w.othersEvent(1, w.nodes[name]) }, "the dependency is done on %s", name)
		}
	}
	if s.dep == "d1" {
		s.add(1, func(w *explored) { w.throws.Show(0); w.othersEvent(3, nil) }, "the dependency changes its task")
	}
}

// peer is another NodeJob with the same gate.
func (s *stepper) peer() {
	for _, name := range sortedKeys(s.nodes) {
		if s.otherPending(s.nodes[name]) {
			s.add(0, func(w *explored) { w.othersEvent(0, w.nodes[name]) }, "the other NodeJob is done on %s", name)
		}
	}
	if s.other == "o1" {
		s.add(1, func(w *explored) { w.throws.Show(0); w.othersEvent(2, nil) }, "the other NodeJob changes its task")
	}
}

// budget is the NodeDisruptionBudget for all nodes, and the tools that take nodes from it.
func (s *stepper) budget() {
	if s.frozen {
		s.add(0, func(w *explored) { w.frozen = false }, "a user opens the budget")
	} else {
		s.add(1, func(w *explored) { w.frozen = true }, "a user freezes the budget")
	}
	if !s.unknown {
		s.add(1, func(w *explored) { w.unknown = true }, "what the budget allows is unknown")
	}
	if len(s.taken) > 0 {
		s.add(0, (*explored).giveBack, "the other tool ends its work")
	}
	for _, name := range sortedKeys(s.nodes) {
		if s.grants(s.nodes[name].UID) {
			s.add(1, func(w *explored) { w.take(w.nodes[name]) }, "another tool takes and drains %s", name)
			s.add(1, func(w *explored) { w.throws.Show(0); w.take(w.nodes[name]) }, "another tool takes %s", name)
		}
	}
}

// namespace is an administrator who no longer allows the namespace.
func (s *stepper) namespace() {
	if s.denied {
		s.add(0, func(w *explored) { w.denied = false }, "the namespace is allowed again")
	} else {
		s.add(1, func(w *explored) { w.denied = true }, "the namespace is not allowed any more")
	}
}

// refusals are pods that the API server rejects.
func (s *stepper) refusals() {
	if s.refuses != nil {
		s.add(0, func(w *explored) { w.refuses, w.refused = nil, "" }, "the API server rejects nothing any more")
		return
	}
	s.add(0, func(w *explored) { w.throws.Show(0, 1); w.refuseMore() }, "the API server rejects pods of rollbacks")
	for i := range len(s.nodes) {
		s.add(0, func(w *explored) { w.throws.Show(i, 4); w.refuseMore() }, "the API server rejects the pods of node %d", i)
	}
}

// villain is a node that does what its kubelet may.
func (s *stepper) villain() {
	if s.bad == "" {
		for _, name := range sortedKeys(s.nodes) {
			s.add(0, func(w *explored) { w.bad = w.nodes[name].UID }, "%s is compromised", name)
		}
		return
	}
	for _, throws := range [][]int{
		{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {2, 2}, {3, 1, 0}, {3, 2, 2}, {4, 1}, {4, 2}, {6}, {7}, {8, 0, 0, 0}, {8, 0, 0, 1},
		{8, 0, 1}, {8, 0, 2, 0, 3}, {8, 0, 2, 1, 3, 0, 0, 3, 0},
	} {
		s.add(1, func(w *explored) { w.throws.Show(throws...); w.misbehave() }, "the compromised node acts: %v", throws)
	}
}

// tenant is a user with all rights in the namespace.
func (s *stepper) tenant() {
	for kind := range 6 {
		for sealed := range 2 {
			s.add(1, func(w *explored) { w.throws.Show(kind, sealed); w.forgeStatus() }, "the tenant writes status %d, %d", kind, sealed)
		}
		s.add(1, func(w *explored) { w.throws.Show(0, kind%4, 0, kind%2, kind%2, kind%3); w.forgePod() }, "the tenant creates pod %d", kind)
	}
	for i, name := range s.podNames() {
		for kind := range 4 {
			if s.pods[name].Finalized {
				s.add(1, func(w *explored) { w.throws.Show(i, kind); w.changePod() }, "the tenant changes pod %d: %d", i, kind)
			}
		}
	}
}
