// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
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

// BreaksGlass reports whether a node is released because it has the break-glass annotation. Such a release does not
// wait for other NodeGuards, so they need not be asked, however many there are.
func BreaksGlass(in Input) bool {
	s := newSurvey(in)
	return len(s.released) < maxReleased && slices.ContainsFunc(s.nodes, func(w *nodePlan) bool {
		return w.requestsRelease() && !w.active() && w.BreakGlass != ""
	})
}

// CanGuard reports whether a NodeGuard may decide on one of the nodes, based on a cheap check: it has released the
// node, or has a budget for it, or its DaemonSet (nil if it has none) selects the node. Any other NodeGuard does not
// hold the node yet. When it creates its first budget for the node, it sees who has released it, and does the same.
func CanGuard(g *v1alpha1.NodeGuard, daemonSet *corev1.PodSpec, nodes []*Node, hasBudget func(name string) bool) bool {
	return slices.ContainsFunc(nodes, func(n *Node) bool {
		return slices.ContainsFunc(g.Status.Released, func(o v1alpha1.ReleasedNode) bool { return o.Node == n.Name }) ||
			(daemonSet != nil && targetSelects(daemonSet, n)) ||
			hasBudget(BudgetName(g.Name, n.Name))
	})
}

// RequestingNodes returns the nodes for which other NodeGuards are asked: they request release and are not released.
func RequestingNodes(in Input) []*Node {
	s := newSurvey(in)
	var nodes []*Node
	for _, w := range s.nodes {
		if w.requestsRelease() && !w.active() {
			nodes = append(nodes, w.Node)
		}
	}
	return nodes
}

// Stances returns the decision of a NodeGuard on each node with a release request, regardless of other NodeGuards.
// Nodes that another NodeGuard has released count as released here too.
func Stances(in Input) map[string]PeerView {
	s := newSurvey(in)
	since, _ := s.releasedByPeers()
	for name := range since {
		s.byName[name].releasing, s.byName[name].expected = true, true
	}
	stances := map[string]PeerView{}
	for _, w := range s.nodes {
		if w.requestsRelease() && !w.active() && !w.releasing {
			stances[w.Name] = s.stance(w)
		}
	}
	return stances
}

func (s *planner) stance(w *nodePlan) PeerView {
	h := s.ruledOut()
	if h == nil {
		h = s.maxUnavailableReached(w)
	}
	switch {
	case h != nil:
		return PeerView{Reason: h.reason, Message: h.message}
	case s.isChecked(w) && !s.saidYes(w):
		return PeerView{Reason: v1alpha1.ReasonCheckRunning, Message: "its release.check has not succeeded", Checks: true}
	case s.isChecked(w):
		return PeerView{} // its age does not matter: after another NodeGuard has released the node, the check runs again
	}
	if h = s.unmet(w); h != nil {
		return PeerView{Reason: h.reason, Message: h.message}
	}
	return PeerView{}
}

// saidYes reports whether no check is waited for: it has succeeded for this release request, or none is needed.
func (s *planner) saidYes(w *nodePlan) bool {
	pod := w.check
	return !w.Ready || s.pastReleaseDeadline(w) || (pod != nil && !pod.Terminating && pod.RequestedAt == token(w.requestedAt) && pod.Phase == corev1.PodSucceeded)
}

// heldByPeer holds a node that another NodeGuard would not release; nil if all would, or one has. The check of another
// NodeGuard is waited for only after the check of this one has succeeded, so that neither waits for the other to start.
func (s *planner) heldByPeer(w *nodePlan) *hold {
	if _, started := s.peerReleases[w.Name]; started {
		return nil
	}
	holds := func(p Peer) bool { return p.Stances[w.Name].Reason != "" && !p.Stances[w.Name].Checks }
	i := slices.IndexFunc(s.in.Peers, holds)
	if i < 0 && (!s.isChecked(w) || s.saidYes(w)) {
		i = slices.IndexFunc(s.in.Peers, func(p Peer) bool { return p.Stances[w.Name].Checks })
	}
	if i < 0 {
		return nil
	}
	s.plan.wake(s.in.Now.Add(peerWait))
	name, stance := s.in.Peers[i].Name, s.in.Peers[i].Stances[w.Name]
	return &hold{
		reason:  v1alpha1.ReasonHeldByOtherGuard,
		message: fmt.Sprintf("NodeGuard %s holds it (%s): %s", name, stance.Reason, stance.Message),
		release: "NodeGuard " + name + " would release it too",
	}
}

// isShared reports whether another NodeGuard also guards the node and has not released it.
func (s *planner) isShared(w *nodePlan) bool {
	return slices.ContainsFunc(s.in.Peers, func(p Peer) bool { _, shared := p.Stances[w.Name]; return shared })
}

// peerRelease is a node that another NodeGuard has released, and this one has not.
type peerRelease struct{ node, guard string }

// queue returns the nodes with a release request, oldest first, and the first of those that another NodeGuard has
// released.
func (s *planner) queue() ([]*nodePlan, *peerRelease) {
	var queue []*nodePlan
	for _, w := range s.nodes {
		if w.requestsRelease() {
			queue = append(queue, w)
		}
	}
	since, by := s.releasedByPeers()
	s.peerReleases = since
	slices.SortFunc(queue, func(a, b *nodePlan) int {
		sinceA, begunA := since[a.Name]
		sinceB, begunB := since[b.Name]
		if begunA != begunB {
			if begunA {
				return -1
			}
			return 1
		}
		if begunA { // an order that is the same for all NodeGuards
			return cmp.Or(sinceA.Compare(sinceB), strings.Compare(a.Name, b.Name))
		}
		return cmp.Or(a.requestedAt.Compare(b.requestedAt), strings.Compare(a.Name, b.Name))
	})
	// A node whose request has ended also comes first, until the other NodeGuard has recorded that.
	for _, w := range slices.Concat(queue, s.nodes) {
		if _, other := since[w.Name]; other && !w.active() {
			return queue, &peerRelease{w.Name, by[w.Name]}
		}
	}
	return queue, nil
}

// mayFollow reports whether a node need not wait for the first of those that other NodeGuards have released: they have
// released this node too, or it retains its place, and it is already unavailable. So a node before it that waits for
// unavailable nodes loses nothing, and any other keeps its position. Otherwise a deadlock is possible, in which the
// first node waits for the repair of this one, and this one for the first.
func (s *planner) mayFollow(w *nodePlan) bool {
	if w.retainsPlace() {
		return true
	}
	since, started := s.peerReleases[w.Name]
	if !started || !w.isUnhealthy() {
		return false
	}
	places := s.others(w).released
	for name, before := range s.peerReleases {
		other := s.byName[name]
		if other != w && !s.isReleased(other) && (other.isUnhealthy() || s.pastReleaseDeadline(other)) && cmp.Or(before.Compare(since), strings.Compare(name, w.Name)) < 0 {
			places++
		}
	}
	return places < min(s.max, maxReleased)
}

// releasedByPeers returns since when, and by which other NodeGuard, guarded nodes are released.
func (s *planner) releasedByPeers() (since map[string]time.Time, by map[string]string) {
	since, by = map[string]time.Time{}, map[string]string{}
	for _, peer := range s.in.Peers {
		for _, g := range peer.Released {
			w := s.byName[g.Node]
			if w == nil || w.UID != g.UID || g.Returning {
				continue
			}
			if before, known := since[g.Node]; !known || g.Since.Time.Before(before) {
				since[g.Node], by[g.Node] = g.Since.Time, peer.Name
			}
		}
	}
	return since, by
}
