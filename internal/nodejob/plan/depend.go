// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Peer is another NodeJob that affects this one.
type Peer struct {
	// Name is the name as a user writes it, with the namespace if that is a different one.
	Name string
	// Key is the key of its record.
	Key string
	// Selector and NodeNames select its nodes; without NodeNames, all nodes that match the selector.
	Selector  *metav1.LabelSelector
	NodeNames []string
	// AllowedNodes are the nodes that its namespace is limited to; nil for all.
	AllowedNodes labels.Selector
	Tolerations  []corev1.Toleration
	// OS is the operating system of its nodes; "" for any.
	OS corev1.OSName
	// RemoveLabels is the value from its spec.
	RemoveLabels []string
	// Suspended is the value from its spec.
	Suspended bool
	// Revision is the revision that its nodes should be done with; "" if it is not known.
	Revision string
	// AnyRevision is true if a node that is done with an earlier revision counts as done.
	AnyRevision bool
	// OnReboot and OnMachineChange are the values from its spec.rerun.
	OnReboot, OnMachineChange bool
}

// peer is a Peer with a parsed selector.
type peer struct {
	*Peer
	// index is its index in Node.OnPeers.
	index       int
	selector    labels.Selector
	named       names
	tolerations []corev1.Toleration
	// holdsAll is true if no node starts before it has run anywhere.
	holdsAll bool
}

// readPeers parses peers whose records are in Node.OnPeers from the index first on.
func readPeers(peers []Peer, first int) []peer {
	read := make([]peer, 0, len(peers))
	for i := range peers {
		selector := labels.Everything()
		if spec := peers[i].Selector; spec != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(spec); err != nil {
				selector = labels.Nothing() // the status of that NodeJob reports it
			}
		}
		read = append(read, peer{&peers[i], first + i, selector, namesOf(peers[i].NodeNames), task.Tolerations(peers[i].Tolerations), false})
	}
	return read
}

// pending reports whether the node matches the NodeJob, and is not done there.
func (j *job) pending(p *peer, node *Node) bool {
	return j.isPending(p, node, &node.OnPeers[p.index])
}

// isPending is pending for the record that the node has for the NodeJob. A node with an untolerated taint does not
// match, except while it joins: taints are added and removed then.
func (j *job) isPending(p *peer, node *Node, on *record.NodeRecord) bool {
	if p.done(node, on) || !p.named.has(node) || !hold.AllowsNode(p.AllowedNodes, node.Labels) || !task.FitsOS(p.OS, node.Labels) || !matchesWith(p.selector, p.RemoveLabels, node, on.Record) {
		return false
	}
	taint := j.untolerated(node, p.tolerations)
	return taint == nil || j.isNewNode(node) || slices.Contains(transientTaints, taint.Key)
}

// done reports whether the NodeJob is done on the node. It is the short form of readRecord, for other NodeJobs.
func (p *peer) done(node *Node, on *record.NodeRecord) bool {
	rec := on.Record
	switch {
	case !on.DoneWith(p.Revision, p.AnyRevision):
		return false
	case !on.HasLabelOfSuccess():
		return true // a user has set the label
	case p.OnMachineChange && differ(rec.MachineID, node.MachineID):
		return false
	}
	return !p.OnReboot || !differ(rec.BootID, node.BootID)
}

// selfPeer is the NodeJob as a Peer of other NodeJobs.
func (j *job) selfPeer() peer {
	job := j.in.Job
	return readPeers([]Peer{{
		Key: j.key, AllowedNodes: j.in.AllowedNodes, Selector: job.Spec.Nodes.Selector, NodeNames: job.Spec.Nodes.Names, Tolerations: job.Spec.Nodes.Tolerations, OS: task.OS(&job.Spec), RemoveLabels: job.Spec.RemoveLabels,
		Revision: j.in.Revision, AnyRevision: j.anyRevision(),
		OnReboot: job.Spec.Rerun.OnReboot, OnMachineChange: onMachineChange(job),
	}}, 0)[0]
}

// unmetDependency returns the first NodeJob that must be done on the node before this one starts; nil if there is none.
func (j *job) unmetDependency(node *Node) *peer {
	for i := range j.dependsOn {
		if p := &j.dependsOn[i]; p.holdsAll || j.pending(p, node) {
			return p
		}
	}
	return nil
}

// readDependencies parses the NodeJobs of spec.dependsOn. One that is suspended and has never run holds all nodes, also those that it does
// not select. Otherwise, who may create a suspended NodeJob could start others, by creating one with a name on which they wait. Only a
// record counts as a run: a kubelet can write the label and the annotation of its node, but not the seal.
func readDependencies(in Input) []peer {
	read := readPeers(in.DependsOn, 0)
	for i := range read {
		read[i].holdsAll = read[i].Suspended && !slices.ContainsFunc(in.Nodes, func(n Node) bool { return n.OnPeers[i].Record != nil })
	}
	return read
}

// FindCycle returns a path along dependsOn from a NodeJob back to itself, as names, with its own name first and last;
// nil if there is no cycle. needs maps the name of each NodeJob of the namespace to its dependencies. Time and memory
// are linear in the size of needs.
func FindCycle(name string, needs map[string][]string) []string {
	// from maps each NodeJob that was reached to the one that it was reached from.
	from := map[string]string{}
	for reached := []string{name}; len(reached) > 0; {
		at := reached[len(reached)-1]
		reached = reached[:len(reached)-1]
		for _, next := range needs[at] {
			if _, seen := from[next]; seen {
				continue
			}
			from[next] = at
			if next == name {
				return wayBack(name, from)
			}
			reached = append(reached, next)
		}
	}
	return nil
}

// wayBack is the path from a NodeJob to itself, built from the predecessor of each.
func wayBack(name string, from map[string]string) []string {
	way := []string{name}
	for at := from[name]; at != name; at = from[at] {
		way = append(way, at)
	}
	way = append(way, name)
	slices.Reverse(way)
	return way
}
