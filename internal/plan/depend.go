// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// Peer is another NodeJob that matters to this one.
type Peer struct {
	// Name as a user writes it: the namespace with it where that is another one.
	Name string
	// Key of its record.
	Key string
	// Selector of its nodes, and the names of those that it is for; none for all.
	Selector    *metav1.LabelSelector
	NodeNames   []string
	Tolerations []corev1.Toleration
	// OS is the operating system of its nodes; "" for any.
	OS corev1.OSName
	// RemoveLabels are as in its spec.
	RemoveLabels []string
	// Revision that its nodes should be done with; "" while that is not known.
	Revision string
	// AnyRevision is true when a node that is done with an earlier revision counts as done.
	AnyRevision bool
	// OnReboot and OnReplace are as in its spec.rerun.
	OnReboot, OnReplace bool
	// On is what nodes carry for it, by their names.
	On map[string]record.NodeRecord
}

// peer is a Peer whose selector is read.
type peer struct {
	*Peer
	selector    labels.Selector
	named       names
	tolerations []corev1.Toleration
}

func readPeers(peers []Peer) []peer {
	read := make([]peer, 0, len(peers))
	for i := range peers {
		selector := labels.Everything()
		if spec := peers[i].Selector; spec != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(spec); err != nil {
				selector = labels.Nothing() // its own status says so
			}
		}
		read = append(read, peer{&peers[i], selector, namesOf(peers[i].NodeNames), task.Tolerations(peers[i].Tolerations)})
	}
	return read
}

// pending is true when the NodeJob is for the node, and not done there.
func (s *planner) pending(p *peer, node *Node) bool {
	return s.isPending(p, node, record.NodeRecord{Label: node.Labels[p.Key], Record: p.On[node.Name].Record})
}

// isPending is pending by what the node carries for the NodeJob. One that a taint keeps off is not for the node,
// but while that joins: taints come and go then.
func (s *planner) isPending(p *peer, node *Node, on record.NodeRecord) bool {
	if p.done(node, on) || !p.named.has(node) || !task.FitsOS(p.OS, node.Labels) || !matchesWith(p.selector, p.RemoveLabels, node, on.Record) {
		return false
	}
	taint := s.untolerated(node, p.tolerations)
	return taint == nil || s.isNewNode(node) || slices.Contains(transientTaints, taint.Key)
}

// done reports whether the NodeJob is done on the node. It is the short form of standing, for other NodeJobs.
func (p *peer) done(node *Node, on record.NodeRecord) bool {
	label, rec := on.Label, on.Record
	if label == "" || (label != p.Revision && !p.AnyRevision) {
		return false
	}
	switch {
	case rec == nil || rec.Revision != label:
		return true // a user has set the label
	case rec.Outcome != record.Succeeded:
		return !rerunContinues(rec)
	case p.OnReplace && differ(rec.MachineID, node.MachineID):
		return false
	}
	return !p.OnReboot || !differ(rec.BootID, node.BootID)
}

// selfPeer is the NodeJob as others see it.
func (s *planner) selfPeer() peer {
	job := s.in.Job
	return readPeers([]Peer{{
		Key: s.key, Selector: job.Spec.NodeSelector, NodeNames: job.Spec.NodeNames, Tolerations: job.Spec.Tolerations, OS: task.OS(&job.Spec), RemoveLabels: job.Spec.RemoveLabels,
		Revision: s.in.Revision, AnyRevision: !valueOr(job.Spec.Rerun.OnChange, true),
		OnReboot: job.Spec.Rerun.OnReboot, OnReplace: onReplace(job),
	}})[0]
}

// unmetDependency names the first NodeJob that must be done on the node before; "" when none must.
func (s *planner) unmetDependency(node *Node) string {
	for i := range s.dependsOn {
		if s.pending(&s.dependsOn[i], node) {
			return s.dependsOn[i].Name
		}
	}
	return ""
}

// FindCycle returns a way along dependsOn from a NodeJob back to itself, by names, beginning and ending with it; nil when
// there is none. needs holds, by name, what each NodeJob of the namespace depends on. It takes time and memory linear in
// what is in needs.
func FindCycle(name string, needs map[string][]string) []string {
	// from holds, for each NodeJob that was reached, the one that it was reached from.
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

// wayBack is the way from a NodeJob to itself by where each was reached from.
func wayBack(name string, from map[string]string) []string {
	way := []string{name}
	for at := from[name]; at != name; at = from[at] {
		way = append(way, at)
	}
	way = append(way, name)
	slices.Reverse(way)
	return way
}
