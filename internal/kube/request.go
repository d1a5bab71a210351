// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

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

// AsksByTaint reports whether a taint announces that its node will be drained or removed.
func AsksByTaint(taint *corev1.Taint) bool { return releaseRequestTaints[taint.Key] != "" }

// ByCordon is the source of the release request of a cordoned node.
const ByCordon = "cordoned"

// ReleaseRequest returns who or what announces that a node will be drained or removed, and since when; "" if nothing does. The time is
// that of the taint, which distinguishes nodes that were cordoned one after another while no manager was running. A condition of another
// tool has the least precedence, since it may be set long before the node is cordoned.
func ReleaseRequest(node *Node, now time.Time) (by string, since time.Time) {
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
