// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// releaseRequestTaints are the taints by which tools announce that a node will be drained or removed. The candidate
// taint (DeletionCandidateOfClusterAutoscaler) is not one of them: no drain waits for the node yet.
var releaseRequestTaints = map[string]string{
	"ToBeDeletedByClusterAutoscaler": "tainted by cluster-autoscaler",
	"karpenter.sh/disrupted":         "tainted by Karpenter",
	"karpenter.sh/disruption":        "tainted by Karpenter",
}

// ByCordon is the source of the release request of a cordoned node.
const ByCordon = "cordoned"

// ReleaseRequest returns who or what announces that a node will be drained or removed, and since when; "" if nothing does.
func ReleaseRequest(node *Node, now time.Time) (by string, since time.Time) {
	return releaseRequest(node, nil, now)
}

// releaseRequest returns the source of a node's release request, and since when it exists. The time on its budget takes
// precedence. Before that is written, the time of the taint is used, which distinguishes nodes that were cordoned one
// after another while no manager was running. A condition of another tool has the least precedence, since it may be set long
// before the node is cordoned.
func releaseRequest(node *Node, budget *Budget, now time.Time) (by string, since time.Time) {
	by, since = tainted(node, now)
	if by == "" && node.Announced != "" {
		// The time of the condition is not used: the kubelet could have written it, so that its node is released before others.
		by = "condition " + string(node.Announced)
	}
	if node.Unschedulable {
		by = ByCordon
	}
	if node.Deleting {
		by = "deleted"
	}
	if by == "" {
		return "", time.Time{}
	}
	if budget != nil && !budget.RequestedAt.IsZero() {
		since = budget.RequestedAt
	}
	return by, since
}

func tainted(node *Node, now time.Time) (by string, since time.Time) {
	since = now
	for _, taint := range node.Taints {
		text, asks := releaseRequestTaints[taint.Key]
		if asks {
			by = text
		}
		if (asks || taint.Key == corev1.TaintNodeUnschedulable) && taint.TimeAdded != nil && taint.TimeAdded.Time.Before(since) {
			since = taint.TimeAdded.Time
		}
	}
	return by, since
}
