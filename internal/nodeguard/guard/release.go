// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// queueRequests sorts the nodes with a release request in the order in which they are considered for release.
func (p *planner) queueRequests() {
	for _, n := range p.nodes {
		if n.requestsRelease() {
			p.queue = append(p.queue, n)
		}
	}
	slices.SortFunc(p.queue, byTurn)
	p.peers.noteFirst(p.queue, p.nodes)
	for i, n := range p.queue {
		reserved, recheckAt := p.retainsTurn(n)
		n.enqueue(i, reserved)
		p.plan.wake(recheckAt)
	}
}

// releaseByBreakGlass releases the nodes with the break-glass annotation, so that they count for the others. Only who may
// change the Node sets it. All NodeGuards of the node see it, because it is removed after the last of them has closed the
// node again.
func (p *planner) releaseByBreakGlass() {
	for _, n := range p.queue {
		if n.breaksGlass() && !n.active() && p.capacity.entries() < maxReleased {
			p.release(n, v1alpha1.ReasonBreakGlass, bounded(n.BreakGlass))
		}
	}
}

// releaseOrHold decides on each node with a release request, in the order of the queue. Each decision sees the earlier
// ones, so a release that any NodeGuard has started is completed before another one starts.
func (p *planner) releaseOrHold() {
	for _, n := range p.queue {
		if n.active() || n.releasing {
			continue
		}
		switch h := p.firstHold(n); {
		case h != nil:
			p.hold(n, h)
		case p.pastReleaseDeadline(n):
			p.release(n, v1alpha1.ReasonDeadlineReached, "")
		default:
			p.release(n, v1alpha1.ReasonConditionMet, "")
		}
	}
}

// hold holds a node, and schedules the pass that may release it without an event.
func (p *planner) hold(n *nodePlan, h *holding) {
	n.hold(h)
	p.plan.wake(h.Until)
	if !h.late {
		p.plan.wake(p.deadline(n))
	}
}

// release adds a node to status.released.
func (p *planner) release(n *nodePlan, reason, note string) {
	p.peers.noteRelease(n)
	if !p.in.Live {
		p.plan.Confirm = true
		n.announceRelease()
		return
	}
	since := p.in.Now.Truncate(time.Second)
	if before := n.entry; before != nil && !since.After(before.Since.Time) {
		since = before.Since.Add(time.Second) // the IDs of the two releases must differ
	}
	entry := v1alpha1.ReleasedNode{
		Node: n.Name, UID: n.UID, Since: metav1.NewTime(since),
		RequestedAt: metav1.NewTime(n.requestedAt.Truncate(time.Second)), Reason: reason, Message: note,
	}
	if n.companion != nil {
		entry.CompanionUID = n.companion.UID
	}
	n.release(entry)
	p.plan.Moves = append(p.plan.Moves, Move{Node: n.Name, UID: n.UID, Kind: MoveReleased, Reason: reason, Note: note, Held: p.in.Now.Sub(n.requestedAt)})
}
