// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// A task that disrupts its node does not start while another tool works there: it would evict the pods of that tool, and the tool would
// evict the task. The manager does not know what works on a node. It takes a node for in use, as long as it is cordoned, if
//
//   - its seat was evicted (NodeBudget.Drained), and it is not cordoned for a NodeJob, or
//   - the last attempt was evicted there, and the node has not rebooted since then.
//
// A node that was left so must be uncordoned, or named in the annotation everynode.dev/take-over of the NodeJob.

// inUse is what prevents a start on a node on which another tool works.
func (c *capacity) inUse(w *nodePlan) block {
	node := w.node
	if w.start.phase != task.Task || !c.disrupts() || c.takesOver(node.Name) {
		return block{}
	}
	did, who := "", node.CordonedWith
	switch {
	case wasEvicted(node) && node.Unschedulable:
		did = "has evicted the task there"
	case c.isDrained(node):
		did = "has drained it"
	default:
		return block{}
	}
	if len(node.CordonedBy) > 0 {
		who = "" // the manager has cordoned it
	}
	return block{
		cause: causeInUse,
		Why: hold.Why{Reason: v1alpha1.ReasonNodeInUse, Message: fmt.Sprintf(
			"something else%s %s and may still work on it; the task starts when the node is uncordoned. If nothing works there: kubectl uncordon %s, or kubectl -n %s annotate nodejob %s %s=%s --overwrite",
			bracketed(who), did, node.Name, c.in.Job.Namespace, c.in.Job.Name, v1alpha1.TakeOverAnnotation, node.Name)},
	}
}

// isDrained reports whether something that is not a NodeJob has drained a node, according to its seat.
func (c *capacity) isDrained(node *Node) bool {
	b := c.in.Budgets[node.UID]
	return b.Drained && len(node.CordonedBy) == 0 && !b.Claimed && !c.hasBegun(node)
}

// wasEvicted reports whether something has evicted the pod of the last attempt on a node, which has not rebooted since then.
func wasEvicted(node *Node) bool {
	rec := node.On.Record
	return rec != nil && rec.Outcome == record.Disrupted && rec.Reason == v1alpha1.ReasonEvicted && rec.BootID == node.BootID
}

// takesOver reports whether the annotation of the NodeJob names a node.
func (p *policy) takesOver(name string) bool {
	names := strings.Split(p.in.Job.Annotations[v1alpha1.TakeOverAnnotation], ",")
	return slices.ContainsFunc(names, func(n string) bool { return strings.TrimSpace(n) == name })
}

func bracketed(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
