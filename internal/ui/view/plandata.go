// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// PlanData is a plan for programs. docs/reference/outputs.md documents its fields. Do not change or remove existing fields.
type PlanData struct {
	// Namespace and Name are those of the NodeJob.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Exists reports whether a NodeJob with this name exists.
	Exists bool `json:"exists"`
	// Revision is what the NodeJob would have; absent if it is not known. PreviousRevision is its current revision.
	Revision         string `json:"revision,omitempty"`
	PreviousRevision string `json:"previousRevision,omitempty"`
	// Notes are what could not be determined, for example because you may not read an object.
	Notes []string `json:"notes,omitempty"`
	// Stalled has the reason and message of what prevents the NodeJob from running on any node; nil if nothing does.
	Stalled *StalledData `json:"stalled,omitempty"`
	// MaxConcurrent is the number of nodes on which it would run at once.
	MaxConcurrent int `json:"maxConcurrent"`
	// Steps are the steps of the rollout.
	Steps []StepData `json:"steps"`
	// Nodes has an entry for each node of the cluster.
	Nodes []NodeData `json:"nodes"`
	// Drains has an entry for each node that would be drained.
	Drains []DrainData `json:"drains,omitempty"`
	// Conflicts are labels and annotations of publish that exist on nodes and could not be published there. Those with adopt: Always are not
	// among them; those with adopt: SameValue are conflicts only if the task reports another value.
	Conflicts []ConflictData `json:"conflicts,omitempty"`
	// Check is what task.check says on the nodes; nil without --on-nodes.
	Check *Compliance `json:"check,omitempty"`
}

// ConflictData is a label or annotation in spec.publish that exists on a node and is not managed by the NodeJob.
type ConflictData struct {
	// Node is its name.
	Node string `json:"node"`
	// Kind is label or annotation.
	Kind string `json:"kind"`
	// Key and Value are what exists on the node.
	Key   string `json:"key"`
	Value string `json:"value"`
	// PublishedBy is the key of the record of the NodeJob that has published it.
	PublishedBy string `json:"publishedBy,omitempty"`
}

// StalledData is what prevents a NodeJob from running anywhere.
type StalledData struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// StepData is a step of the rollout, with its nodes in order.
type StepData struct {
	// Name of the step.
	Name string `json:"name"`
	// AwaitsPromotion reports whether a user must promote the rollout to this step.
	AwaitsPromotion bool `json:"awaitsPromotion,omitempty"`
	// SoakSeconds is how long its nodes must stay Ready.
	SoakSeconds int64 `json:"soakSeconds,omitempty"`
	// Nodes are its nodes in the order of the rollout.
	Nodes []string `json:"nodes"`
}

// NodeData is what the NodeJob would do on a node.
type NodeData struct {
	// Node is its name.
	Node string `json:"node"`
	// State is Excluded, Waiting, Running (it would start now, or runs), Done or Failed.
	State string `json:"state"`
	// Reason and Message are as in the status.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Step is the name of its step.
	Step string `json:"step,omitempty"`
}

// DrainData is a node that would be drained.
type DrainData struct {
	// Node is its name.
	Node string `json:"node"`
	// PodsToEvict are the pods as namespace/name.
	PodsToEvict []string `json:"podsToEvict,omitempty"`
	// Blocked has the pod and a message for each pod that could not be evicted now.
	Blocked []BlockedData `json:"blocked,omitempty"`
}

// BlockedData is a pod that could not be evicted now.
type BlockedData struct {
	Pod string `json:"pod"`
	// Message describes what blocks the eviction.
	Message string `json:"message"`
}

// Data returns the plan for programs.
func (p Plan) Data() PlanData {
	d := PlanData{
		Namespace: p.Job.Namespace, Name: p.Job.Name, Exists: p.Exists, Revision: p.Revision, PreviousRevision: p.Was, Notes: p.Notes,
		MaxConcurrent: max(p.Plan.Slots, 1), Steps: make([]StepData, 0, len(p.Plan.Steps)), Nodes: make([]NodeData, 0, len(p.Plan.Nodes)),
		Stalled: p.stalled(), Drains: p.Drained, Conflicts: p.Conflicts, Check: p.Compliance,
	}
	for i := range p.Plan.Nodes {
		s := &p.Plan.Nodes[i]
		reason := s.Reason
		if p.isAssumed(s) {
			reason = v1alpha1.ReasonAssumedDone
		}
		d.Nodes = append(d.Nodes, NodeData{Node: s.Name, State: string(s.State), Reason: reason, Message: s.Message})
	}
	for k := range p.Plan.Steps {
		d.Steps = append(d.Steps, p.stepData(k, d.Nodes))
	}
	return d
}

// stepData returns the k-th step.
func (p Plan) stepData(k int, nodes []NodeData) StepData {
	step := &p.Plan.Steps[k]
	d := StepData{Name: step.Name, AwaitsPromotion: k > p.ceiling(), SoakSeconds: int64(step.Soak / time.Second), Nodes: make([]string, 0, len(step.Nodes))}
	for _, i := range step.Nodes {
		nodes[i].Step = step.Name
		d.Nodes = append(d.Nodes, nodes[i].Node)
	}
	return d
}
