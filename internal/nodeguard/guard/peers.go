// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

// If several NodeGuards guard a node, it can be drained when all of them have released it. To avoid deadlocks, in which two
// nodes wait for each other at different NodeGuards, no NodeGuard releases a node before all of them would, and a release
// that one of them has started takes precedence at the others.

// peerWait is when to check a node again whose check waits for another NodeGuard. No event shows when that NodeGuard
// would release the node.
const peerWait = 5 * time.Second

// PeerView is the decision of one NodeGuard, regardless of others, on a node with a release request that it has not released.
type PeerView struct {
	// Reason and Message are why it holds the node; Reason is "" if it would release it.
	Reason  string
	Message string
	// Checks is true if only the check holds the node, because it has not succeeded.
	Checks bool
}

// holds reports whether the NodeGuard would not release the node.
func (v *PeerView) holds() bool { return v.Reason != "" }

// PeersOf returns the other NodeGuards that count for one. Those of a namespace that is not allowed count only if they were served
// before, with what they have released and still hold: two NodeGuards that do not know of that could wait for each other.
func PeersOf(g *v1alpha1.NodeGuard, all []*v1alpha1.NodeGuard, allowed func(*v1alpha1.NodeGuard) bool) []Peer {
	var found []Peer
	for _, o := range all {
		if o.UID == g.UID || !o.DeletionTimestamp.IsZero() {
			continue
		}
		p := Peer{Guard: o, Name: o.Namespace + "/" + o.Name, Released: o.Status.Released, NotAllowed: !allowed(o)}
		if p.NotAllowed && !IsServed(o, 0) && len(p.Released) == 0 {
			continue
		}
		p.SameTarget = o.Namespace == g.Namespace && o.Spec.Target.DaemonSet != "" && o.Spec.Target.DaemonSet == g.Spec.Target.DaemonSet
		found = append(found, p)
	}
	return found
}

// CanGuard reports whether a NodeGuard has a say about one of the nodes: it has released the node, or its companion is there. Any other
// NodeGuard holds nothing there, whatever its target and its budgets are. When its companion is created, it sees who has released the
// node, and does the same.
func CanGuard(p *Peer, nodes []*kube.Node, hasCompanion func(node string) bool) bool {
	return slices.ContainsFunc(nodes, func(n *kube.Node) bool {
		return slices.ContainsFunc(p.Released, func(o v1alpha1.ReleasedNode) bool { return o.Node == n.Name }) || hasCompanion(n.Name)
	})
}

// RequestingNodes returns the nodes for which other NodeGuards are asked: they request release and are not released.
// breaksGlass reports whether one of them is released because it has the break-glass annotation. Such a release does not
// wait for other NodeGuards, so they need not be asked, however many there are.
func RequestingNodes(in Input) (nodes []*kube.Node, breaksGlass bool) {
	p := newPlanner(&in)
	for _, n := range p.nodes {
		if n.awaitsRelease() {
			nodes = append(nodes, n.Node)
			breaksGlass = breaksGlass || n.breaksGlass()
		}
	}
	return nodes, breaksGlass && p.capacity.entries() < maxReleased
}

// Stances returns the decision of a NodeGuard on each node with a release request, regardless of other NodeGuards. It has a say only while
// its companion is there: a budget without one holds nothing, and any user of the namespace can create it.
// Nodes that another NodeGuard has released count as released here too.
func Stances(in Input) map[string]PeerView {
	p := newPlanner(&in)
	for _, n := range p.nodes {
		if n.peerRelease != nil {
			n.expectRelease()
		}
	}
	stances := map[string]PeerView{}
	for _, n := range p.nodes {
		if n.awaitsRelease() && !n.releasing && n.companion != nil {
			stances[n.Name] = p.stance(n)
		}
	}
	return stances
}

// stance returns the decision on a node, regardless of other NodeGuards. The age of a successful check does not matter:
// after another NodeGuard has released the node, the check runs again.
func (r *releaseRules) stance(n *nodePlan) PeerView {
	for _, rule := range holdRules {
		if !rule.own {
			continue
		}
		if h := rule.applies(r, n); h != nil {
			return PeerView{Reason: h.Reason, Message: h.Message}
		}
	}
	if r.awaitsCheck(n) {
		return PeerView{Reason: v1alpha1.ReasonCheckRunning, Message: "its release.check has not succeeded", Checks: true}
	}
	return PeerView{}
}

// peers are the other NodeGuards.
type peers struct {
	all []Peer
	// first is the first node that another NodeGuard has released and this one not; nil if there is none.
	first *nodePlan
	// releasing is a node that this pass releases and that another NodeGuard guards too; nil if there is none.
	releasing *nodePlan
}

// peerRelease is the first release of a node by another NodeGuard.
type peerRelease struct {
	since time.Time
	guard string
}

// joinPeerReleases notes which nodes other NodeGuards have released.
//
// They only change the order in which this NodeGuard decides. None of them releases a node here, whatever the status of the
// other NodeGuard says.
func (p *planner) joinPeerReleases() {
	for _, peer := range p.in.Peers {
		for _, g := range peer.Released {
			n := p.byName[g.Node]
			if n == nil || n.UID != g.UID || g.Returning {
				continue
			}
			if n.peerRelease == nil || g.Since.Time.Before(n.peerRelease.since) {
				n.peerRelease = &peerRelease{since: g.Since.Time, guard: peer.Name}
			}
		}
	}
}

// byTurn compares two nodes with a release request. A node that another NodeGuard has released comes first, in an order
// that is the same for all NodeGuards. Others follow in the order of their release requests.
func byTurn(a, b *nodePlan) int {
	switch {
	case a.peerRelease != nil && b.peerRelease != nil:
		return cmp.Or(a.peerRelease.since.Compare(b.peerRelease.since), strings.Compare(a.Name, b.Name))
	case a.peerRelease != nil:
		return -1
	case b.peerRelease != nil:
		return 1
	}
	return cmp.Or(a.requestedAt.Compare(b.requestedAt), strings.Compare(a.Name, b.Name))
}

// noteFirst notes the first node that another NodeGuard has released and this one not. A node whose request has ended
// also comes first, until the other NodeGuard has recorded that.
func (ps *peers) noteFirst(queue, nodes []*nodePlan) {
	for _, n := range slices.Concat(queue, nodes) {
		if n.peerRelease != nil && !n.active() {
			ps.first = n
			return
		}
	}
}

// noteRelease notes that this pass releases a node, if another NodeGuard also guards it and has not released it.
func (ps *peers) noteRelease(n *nodePlan) {
	if ps.isShared(n) {
		ps.releasing = n
	}
}

// isShared reports whether another NodeGuard also guards the node and has not released it.
func (ps *peers) isShared(n *nodePlan) bool {
	return slices.ContainsFunc(ps.all, func(p Peer) bool { _, shared := p.Stances[n.Name]; return shared })
}

// holder returns the first NodeGuard that would not release a node; nil if all would, or one has. With ownCheck, the own
// check of this NodeGuard has not succeeded yet. Until then, the checks of others are not waited for, so that neither waits
// for the other to start.
func (ps *peers) holder(n *nodePlan, ownCheck bool) *Peer {
	if n.peerRelease != nil {
		return nil
	}
	i := slices.IndexFunc(ps.all, func(p Peer) bool { v := p.Stances[n.Name]; return v.holds() && !v.Checks })
	if i < 0 && !ownCheck {
		i = slices.IndexFunc(ps.all, func(p Peer) bool { return p.Stances[n.Name].Checks })
	}
	if i < 0 {
		return nil
	}
	return &ps.all[i]
}

// heldByOtherGuard holds a node that another NodeGuard would not release.
func (r *releaseRules) heldByOtherGuard(n *nodePlan) *holding {
	peer := r.peers.holder(n, r.awaitsCheck(n))
	if peer == nil {
		return nil
	}
	stance := peer.Stances[n.Name]
	return &holding{
		Why:     hold.Why{Reason: v1alpha1.ReasonHeldByOtherGuard, Message: fmt.Sprintf("NodeGuard %s holds it (%s): %s", peer.Name, stance.Reason, stance.Message), Until: r.peerRecheckAt(n)},
		release: "NodeGuard " + peer.Name + " would release it too",
	}
}

// peerRecheckAt returns when to decide again on a node that another NodeGuard holds; zero if none does.
func (r *releaseRules) peerRecheckAt(n *nodePlan) time.Time {
	if r.peers.holder(n, r.awaitsCheck(n)) == nil {
		return time.Time{}
	}
	return r.in.Now.Add(peerWait)
}

// mayFollow reports whether a node need not wait for the first of those that other NodeGuards have released: they have
// released this node too, or it retains its place, and it is already unavailable. So a node before it that waits for
// unavailable nodes loses nothing, and any other keeps its position. Otherwise a deadlock is possible, in which the
// first node waits for the repair of this one, and this one for the first.
func (r *releaseRules) mayFollow(n *nodePlan) bool {
	if n.retainsPlace() {
		return true
	}
	if n.peerRelease == nil || !n.isUnhealthy() {
		return false
	}
	places := r.capacity.usedByOthers(n).released
	// Before it are only nodes that other NodeGuards have released too.
	for _, other := range r.capacity.nodes {
		if !other.hasPlace() && (other.isUnhealthy() || r.pastReleaseDeadline(other)) && byTurn(other, n) < 0 {
			places++
		}
	}
	return places < r.capacity.limit()
}
