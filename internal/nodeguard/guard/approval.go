// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// awaitingApproval holds a node whose release must be approved and is not.
func (r *releaseRules) awaitingApproval(n *nodePlan) *holding {
	if r.in.Guard.Spec.Release.Approval != v1alpha1.ApprovalRequired || r.pastReleaseDeadline(n) {
		return nil
	}
	if _, approved := withoutApproval(n.Approved, r.key()); approved {
		return nil
	}
	return &holding{
		Why:     hold.Why{Reason: v1alpha1.ReasonAwaitingApproval, Message: "its release is not approved", Until: r.peerRecheckAt(n)},
		release: fmt.Sprintf("it is approved: kubectl annotate node %s %s=%s", n.Name, v1alpha1.ApproveReleaseAnnotation, r.key()),
	}
}

// approvalToRemove returns which annotations, set by users for a release, to remove from a returning node; nil if there
// are none. They were for this release, not for the next request. They are also removed from a node that is no longer
// guarded, because it may be guarded again later.
func (o observed) approvalToRemove(n *nodePlan) *RemoveApproval {
	if n.stage != returning || n.requestsRelease() {
		return nil
	}
	rest, approved := withoutApproval(n.Approved, o.key())
	glass := n.BreakGlass != "" && !o.retainsBreakGlass(n)
	if !approved && !glass {
		return nil
	}
	return &RemoveApproval{Node: n.Name, ResourceVersion: n.ResourceVersion, Approved: rest, BreakGlass: glass}
}

// retainsBreakGlass reports whether the break-glass annotation of a returning node must stay, because another NodeGuard has
// released the node and not recorded the end of that yet. A break-glass release does not wait for its turn. If a NodeGuard
// did not see the annotation, a node that it released earlier could wait for this one, and this one for that node.
func (o observed) retainsBreakGlass(n *nodePlan) bool {
	return n.stage == returning && !n.requestsRelease() && n.BreakGlass != "" && slices.ContainsFunc(o.in.Peers, func(p Peer) bool {
		return slices.ContainsFunc(p.Released, func(r v1alpha1.ReleasedNode) bool { return r.Node == n.Name && r.UID == n.UID && !r.Returning })
	})
}

// withoutApproval removes a NodeGuard from a list of approvals, and reports whether the list contained it.
func withoutApproval(list, key string) (rest string, approved bool) {
	var others []string
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); name {
		case "":
		case key:
			approved = true
		default:
			others = append(others, name)
		}
	}
	return strings.Join(others, ","), approved
}
