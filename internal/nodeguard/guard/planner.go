// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/internal/kube"
)

// planner is one pass for a NodeGuard. It moves the nodes from one state to the next, and collects the actions.
type planner struct {
	releaseRules
	plan Plan
	// nodes are the guarded nodes, sorted by name.
	nodes []*nodePlan
	// byName also contains the nodes that are not guarded, and those in status.released that do not exist.
	byName map[string]*nodePlan
	// queue are the nodes with a release request, in the order in which they are considered for release.
	queue []*nodePlan
	// coming are the nodes that have no companion, or one that has ended or terminates, and get another one as soon as possible.
	coming []*nodePlan
}

func newPlanner(in *Input) *planner {
	p := &planner{byName: make(map[string]*nodePlan, len(in.Nodes))}
	p.observed = observe(in)
	plans := make([]nodePlan, len(in.Nodes)) // one allocation, not one for each node
	for i := range in.Nodes {
		plans[i].Node = &in.Nodes[i]
		p.byName[in.Nodes[i].Name] = &plans[i]
	}
	p.join()
	for i := range in.Nodes {
		n := p.byName[in.Nodes[i].Name]
		p.readRequest(n)
		n.seated = in.Seats[n.UID]
		n.guarded = p.guards(n)
		if n.guarded {
			p.nodes = append(p.nodes, n)
		}
	}
	slices.SortFunc(p.nodes, func(a, b *nodePlan) int { return strings.Compare(a.Name, b.Name) })
	p.capacity.nodes, p.capacity.unguarded = p.nodes, p.unguarded()
	p.capacity.max = kube.MaxUnavailable(cmp.Or(in.Guard.Spec.MaxUnavailable, new(intstr.FromInt32(1))), len(p.nodes))
	p.peers = peers{all: in.Peers}
	p.joinPeerReleases()
	return p
}

// unguarded returns the nodes in status.released that are not guarded, sorted by name.
func (p *planner) unguarded() []*nodePlan {
	var nodes []*nodePlan
	for _, g := range p.in.Guard.Status.Released {
		if n := p.byName[g.Node]; !n.guarded {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b *nodePlan) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// join combines what was observed on each node.
func (p *planner) join() {
	for i := range p.in.Guard.Status.Released {
		entry := &p.in.Guard.Status.Released[i]
		if p.byName[entry.Node] == nil {
			p.byName[entry.Node] = &nodePlan{observedNode: observedNode{Node: &kube.Node{Name: entry.Node}}}
		}
		p.byName[entry.Node].load(entry)
	}
	p.joinTargets()
	p.joinCompanions()
	for i := range p.in.Checks {
		pod := &p.in.Checks[i]
		if n := p.byName[pod.Node]; n != nil && p.isOwn(pod.Owner) {
			n.check = pod
		}
	}
}

func (p *planner) joinTargets() {
	for _, pod := range p.in.Target.Pods {
		n := p.byName[pod.Node]
		switch {
		case n != nil && pod.Ready:
			n.targets++
			n.readyTargets++
		case n != nil:
			n.targets++
		case pod.Node == "" && p.in.Target.Template == nil:
			p.capacity.unbound++ // a missing pod of a DaemonSet already counts on the node that it belongs to
		}
	}
}

// joinCompanions selects the oldest companion of a node as its companion, so that all views that contain it agree.
func (p *planner) joinCompanions() {
	for i := range p.in.Companions {
		pod := &p.in.Companions[i]
		n := p.byName[pod.Node]
		switch {
		case n == nil:
		case !p.isOwn(pod.Owner): // of an earlier NodeGuard of the same name
			n.succeeds = true
		case n.companion == nil:
			n.companion = pod
		default:
			if older(pod, n.companion) {
				n.companion, pod = pod, n.companion
			}
			n.surplus = append(n.surplus, pod)
		}
	}
}

func older(a, b *Pod) bool {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(string(a.UID), string(b.UID))) < 0
}

// readRequest reads the release request of a node, and since when it exists. The time on the budget takes precedence.
func (o observed) readRequest(n *nodePlan) {
	n.requestedBy, n.requestedAt = kube.ReleaseRequest(n.Node, o.in.Now)
	if n.requestedBy == "" || o.budget == nil {
		return
	}
	if at, stored := o.budget.RequestedAt[NodeID(n.Name)]; stored {
		n.storedAt, n.requestedAt = at, at
	}
}
