// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
)

// awaitingApproval holds a node whose release must be approved and is not.
func (r *releaseRules) awaitingApproval(n *nodePlan) *hold {
	if r.in.Guard.Spec.Release.When != v1alpha1.ReleaseWhenApproval || r.pastReleaseDeadline(n) {
		return nil
	}
	if _, approved := withoutApproval(n.Approved, r.key()); approved {
		return nil
	}
	return &hold{
		reason:    v1alpha1.ReasonAwaitingApproval,
		message:   "its release is not approved",
		release:   fmt.Sprintf("it is approved: kubectl annotate node %s %s=%s", n.Name, v1alpha1.ApproveReleaseAnnotation, r.key()),
		recheckAt: r.peerRecheckAt(n),
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
	if !approved && n.BreakGlass == "" {
		return nil
	}
	return &RemoveApproval{Node: n.Name, ResourceVersion: n.ResourceVersion, Approved: rest, BreakGlass: n.BreakGlass != ""}
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
