// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// releaseRequestTaints are how tools say that a node is about to go. A candidate (DeletionCandidateOfClusterAutoscaler) is not:
// no drain waits for it yet.
var releaseRequestTaints = map[string]string{
	"ToBeDeletedByClusterAutoscaler": "tainted by cluster-autoscaler",
	"karpenter.sh/disrupted":         "tainted by Karpenter",
	"karpenter.sh/disruption":        "tainted by Karpenter",
}

// releaseRequest says by what a node asks to go, and since when. What is on its budget counts; before, the time of the taint,
// which tells apart nodes that were cordoned one after another while no manager ran.
func releaseRequest(node *Node, budget *Budget, now time.Time) (by string, since time.Time) {
	by, since = tainted(node, now)
	if node.Unschedulable {
		by = "cordoned"
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
