// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// ReadRecord returns the record of the node of that name under a key.
type ReadRecord func(node string, labels, annotations map[string]string, key string) record.NodeRecord

// Peers adds other NodeJobs to the input: those that it depends on, those that share its gate, and the gates of all.
// all are the NodeJobs of the cluster, including this one, and nodes those that their namespaces are limited to; nil for all.
func Peers(in *plan.Input, all []*v1alpha1.NodeJob, nodes map[string]labels.Selector, read ReadRecord) {
	job, inNamespace := in.Job, map[string]*v1alpha1.NodeJob{}
	for _, other := range all {
		if other.Namespace == job.Namespace {
			inNamespace[other.Name] = other
		}
		if other.Spec.Gate != nil {
			in.GateKeys = append(in.GateKeys, v1alpha1.GateKey(other))
		}
		if sharesGate(job, other) {
			in.GatePeers = append(in.GatePeers, peer(job, other, nodes[other.Namespace]))
		}
	}
	slices.Sort(in.GateKeys)
	in.GateKeys = slices.Compact(in.GateKeys)
	if in.Obstacle == nil && job.DeletionTimestamp.IsZero() {
		in.Obstacle = dependencyObstacle(job, inNamespace)
	}
	for _, name := range job.Spec.DependsOn {
		if other := inNamespace[name]; other != nil {
			in.DependsOn = append(in.DependsOn, peer(job, other, in.AllowedNodes))
		}
	}
	readOnPeers(in, read)
}

// readOnPeers reads from the nodes what they store for the other NodeJobs.
func readOnPeers(in *plan.Input, read ReadRecord) {
	peers := slices.Concat(in.DependsOn, in.GatePeers)
	records := make([]record.NodeRecord, 0, len(peers)*len(in.Nodes))
	for i := range in.Nodes {
		node := &in.Nodes[i]
		for p := range peers {
			records = append(records, read(node.Name, node.Labels, node.Annotations, peers[p].Key))
		}
		node.OnPeers = records[len(records)-len(peers) : len(records) : len(records)]
	}
}

// sharesGate reports whether other is another NodeJob whose gate is the same taint.
func sharesGate(job, other *v1alpha1.NodeJob) bool {
	return job.UID != other.UID && job.Spec.Gate != nil && other.Spec.Gate != nil && other.DeletionTimestamp.IsZero() &&
		v1alpha1.GateKey(job) == v1alpha1.GateKey(other) && v1alpha1.GateEffectOf(job) == v1alpha1.GateEffectOf(other)
}

// peer returns another NodeJob as the plan of this one reads it.
func peer(job, other *v1alpha1.NodeJob, nodes labels.Selector) plan.Peer {
	p := plan.Peer{
		Name:            other.Name,
		Suspended:       other.Spec.Suspend,
		Key:             v1alpha1.RecordKey(other.Namespace, other.Name),
		Selector:        other.Spec.Nodes.Selector,
		NodeNames:       other.Spec.Nodes.Names,
		AllowedNodes:    nodes,
		Tolerations:     other.Spec.Nodes.Tolerations,
		OS:              task.OS(&other.Spec),
		RemoveLabels:    other.Spec.RemoveLabels,
		OnReboot:        other.Spec.Rerun.OnReboot,
		OnMachineChange: other.Spec.Rerun.OnMachineChange == nil || *other.Spec.Rerun.OnMachineChange,
	}
	if other.Namespace != job.Namespace {
		p.Name = other.Namespace + "/" + other.Name
	}
	if other.Status.ObservedGeneration == other.Generation {
		p.Revision = other.Status.Revision
	}
	p.AnyRevision = other.Spec.Rerun.OnRevisionChange != nil && !*other.Spec.Rerun.OnRevisionChange
	return p
}

// dependencyObstacle returns a dependency that can never be met; nil if there is none.
func dependencyObstacle(job *v1alpha1.NodeJob, jobs map[string]*v1alpha1.NodeJob) *hold.Why {
	if len(job.Spec.DependsOn) == 0 {
		return nil
	}
	needs := make(map[string][]string, len(jobs))
	for name, other := range jobs {
		needs[name] = other.Spec.DependsOn
	}
	needs[job.Name] = job.Spec.DependsOn
	if circle := plan.FindCycle(job.Name, needs); circle != nil {
		return &hold.Why{
			Reason: v1alpha1.ReasonDependencyCycle,
			Message: fmt.Sprintf("NodeJobs depend on each other in a circle by spec.dependsOn: %s. Take one of them out of another's dependsOn",
				outcome.CleanHead(strings.Join(circle, " -> "), maxCircleBytes)),
		}
	}
	for _, name := range job.Spec.DependsOn {
		if jobs[name] == nil {
			return &hold.Why{
				Reason:  v1alpha1.ReasonDependencyNotFound,
				Message: fmt.Sprintf("spec.dependsOn: NodeJob %s/%s does not exist. Create it, or remove it from spec.dependsOn; this NodeJob then continues automatically", job.Namespace, outcome.CleanHead(name, 80)),
			}
		}
	}
	return nil
}

// maxCircleBytes limits the names of a cycle.
const maxCircleBytes = 512
