// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// isAssumedDone reports whether a node counts as done without a run: it matches spec.nodes.assumeDone, joined before the
// NodeJob was created, and nothing is stored there under the key of the NodeJob. A node that a user has reset therefore runs the task,
// and so does a new node whose template has the label. An audit asks all nodes.
func (as *assessor) isAssumedDone(node *Node) bool {
	return as.assumedDone != nil && !task.IsAudit(as.in.Job) && !node.On.Present && node.Created.Before(as.in.Job.CreationTimestamp.Time) &&
		as.assumedDone.Matches(labels.Set(node.Labels))
}

// staysAssumed reports whether the revision has not succeeded yet on a node that was assumed to be done, although the
// record of an attempt replaces that record: a success ends that, and a failure ends the state of being done. A node on which the
// check before the task says yes is assumed to be done if no attempt of the revision has started there.
func (j *job) staysAssumed(node *Node, next *record.Record) bool {
	if next.IsAnswer() && next.FirstStartedAt.IsZero() {
		return true
	}
	prev := node.On.Record
	return prev != nil && prev.Assumed && prev.Revision == next.Revision && !j.replaced(node) &&
		(next.Outcome == record.Disrupted || next.Outcome == record.Rebooting || next.Outcome == record.Needed)
}

// readAssumeDone returns the selector of spec.nodes.assumeDone; nil if there is none.
func (j *job) readAssumeDone() labels.Selector {
	spec := j.in.Job.Spec.Nodes.AssumeDone
	if spec == nil {
		return nil
	}
	if spec.Selector == nil {
		return labels.Nothing()
	}
	return j.readSelector(spec.Selector, "spec.nodes.assumeDone.selector")
}

// assumeDone writes the record of a node that counts as done without a run. Until that is written, the node is not
// done. Nothing is written while the NodeJob is suspended, so that a user can check the plan before.
func (as *assessor) assumeDone(w *nodePlan) {
	b := block{Why: hold.Why{Reason: v1alpha1.ReasonAssumedDone, Message: "it matches spec.nodes.assumeDone, and counts as done without a run"}}
	if !as.mayMarkDone(w, b) {
		return
	}
	mark := as.cordons.markOf(w.node, v1alpha1.ReasonAssumedDone, "it matches spec.nodes.assumeDone")
	now := as.recorder.recordedAt()
	mark.Record = &record.Record{
		Revision: as.in.Revision, Digest: as.in.Digest, Label: as.in.Revision, Outcome: record.Succeeded, Assumed: true, NeverStarted: true,
		Reason: v1alpha1.ReasonAssumedDone, Message: "it matched spec.nodes.assumeDone", FinishedAt: now, RecordedAt: now,
		BootID: w.node.BootID, MachineID: w.node.MachineID, Retry: as.retry,
		ChangedBy: as.in.author(),
	}
	as.recorder.completes(w.node, &Pod{}, &mark.Change)
	as.mark(w, mark)
}

// mayMarkDone makes the node wait for the write that makes it done without a run, and reports whether that may be planned now.
func (as *assessor) mayMarkDone(w *nodePlan, b block) bool {
	if s := suspended(as.job, startRequest{}); s.blocks() {
		b.cause, b.Message = s.cause, b.Message+" when the NodeJob is resumed"
	}
	if p := nodeHasProblem(as.job, startRequest{node: w.node}); p.blocks() && !b.blocks() {
		b = p
	}
	w.waitFor(b)
	return !b.blocks() && as.in.Revision != "" && !w.node.Deleting
}
