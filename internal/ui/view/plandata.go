// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// PlanData is a plan for programs. docs/cli.md documents its fields. Do not change or remove existing fields.
type PlanData struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Exists reports whether a NodeJob with this name exists. PreviousRevision is its revision.
	Exists           bool   `json:"exists"`
	Revision         string `json:"revision,omitempty"`
	PreviousRevision string `json:"previousRevision,omitempty"`
	// Notes are what could not be determined.
	Notes []string `json:"notes,omitempty"`
	// Stalled is the reason why nothing would run; nil if there is none.
	Stalled *StalledData `json:"stalled,omitempty"`
	// MaxConcurrent is the number of nodes on which it would run at once.
	MaxConcurrent int         `json:"maxConcurrent"`
	Steps         []StepData  `json:"steps"`
	Nodes         []NodeData  `json:"nodes"`
	Drains        []DrainData `json:"drains,omitempty"`
	// Conflicts are labels and annotations that exist on nodes and could not be published there.
	Conflicts []ConflictData `json:"conflicts,omitempty"`
	// Check is what task.check says on the nodes; nil without --on-nodes.
	Check *Compliance `json:"check,omitempty"`
}

// ConflictData is a label or annotation in spec.publish that exists on a node and is not managed by the NodeJob.
type ConflictData struct {
	Node string `json:"node"`
	// Kind is label or annotation.
	Kind  string `json:"kind"`
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
	Name string `json:"name"`
	// AwaitsPromotion reports whether a user must promote the rollout to this step.
	AwaitsPromotion bool     `json:"awaitsPromotion,omitempty"`
	SoakSeconds     int64    `json:"soakSeconds,omitempty"`
	Nodes           []string `json:"nodes"`
}

// NodeData is what the NodeJob would do on a node.
type NodeData struct {
	Node    string `json:"node"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	Step    string `json:"step,omitempty"`
}

// DrainData is a node that would be drained.
type DrainData struct {
	Node string `json:"node"`
	// PodsToEvict are the namespaces and names of the pods.
	PodsToEvict []string      `json:"podsToEvict,omitempty"`
	Blocked     []BlockedData `json:"blocked,omitempty"`
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
