// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// A user can request a retry on one node before any other node starts (record.Record.RunsAlone), to see whether the task
// works now.

// staysAlone reports whether other nodes also wait after the record of an attempt has replaced the one that made them
// wait: the run continues.
func (rec *recorder) staysAlone(node *Node, next *record.Record) bool {
	prev := node.On.Record
	return prev != nil && prev.RunsAlone && prev.Revision == next.Revision && !rec.replaced(node) && next.Outcome != record.Succeeded
}

// isRetriedFirst reports whether a user has requested that the node is retried before others, and the run has not ended.
func (j *job) isRetriedFirst(node *Node) bool {
	rec := node.On.Record
	return rec != nil && rec.RunsAlone && rec.Revision == j.in.Revision && !j.replaced(node)
}

// runsAlone reports whether other nodes wait for the run of a node. They do not wait for a node that can only continue
// after something else: that may be one of them. They do not wait either once the revision is stable, or once the node
// has kept them waiting for rollout.progressDeadlineSeconds, not even while another of its attempts runs.
func (ro *rollout) runsAlone(w *nodePlan) bool {
	if !ro.stableAt.IsZero() || w.progressDeadlineExceeded || !ro.isRetriedFirst(w.node) {
		return false
	}
	switch {
	case w.State == Running:
		return true
	case w.start.phase == task.Task, w.start.phase == task.CheckBefore, w.start.phase == task.CheckExpires, w.checking:
		b := ro.stepBlock(w)
		return !b.blocks()
	}
	return w.cause == causeBackoff || w.cause == causeTerminatingPod
}

// firstAlone returns the first node for whose run others wait; nil if there is none.
func (ro *rollout) firstAlone() *nodePlan {
	for i := range ro.nodes {
		if ro.runsAlone(&ro.nodes[i]) {
			return &ro.nodes[i]
		}
	}
	return nil
}

// aloneBlock blocks the start of a task on a node while another node runs alone. A node that is already cordoned or
// drained for its run continues: it is unavailable, and the other node may wait for that.
func (ro *rollout) aloneBlock(w *nodePlan) block {
	if ro.alone == nil || ro.wasPrepared(w.node) || ro.runsAlone(w) {
		return block{}
	}
	return block{
		cause: causeRunsAlone,
		Why:   hold.Why{Reason: v1alpha1.ReasonWaitingForRetry, Message: "a user has requested that node " + ro.alone.Name + " is retried before other nodes start"},
	}
}
