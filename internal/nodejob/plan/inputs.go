// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// inputPause is the least time between the end of a run and a rerun because of rerun.onNodeFieldChange. A node can change its own
// annotations and many of its labels at any time, and would otherwise run the task without a pause.
const inputPause = 60 * time.Second

// afterInputPause is when a node reruns the task because of rerun.onNodeFieldChange, which does not delay the next scheduled run.
func (r *recordReader) afterInputPause(rec *record.Record, due time.Time) time.Time {
	at := r.past(rec.EndedAt()).Add(inputPause)
	if due.IsZero() {
		return at
	}
	return earlier(at, due)
}

// inputsReason is why a node reruns the task because of rerun.onNodeFieldChange.
const inputsReason = "the values that task.env takes from the Node have changed (rerun.onNodeFieldChange); it starts at least 60 s after the last run"

// readNodeValues reads the values that task.env takes from a node.
func readNodeValues(spec *v1alpha1.NodeJobSpec, node *Node) task.NodeValues {
	return task.ReadNodeValues(spec.Task.Env, task.NodeFields{
		Labels: node.Labels, Annotations: node.Annotations, ProviderID: node.ProviderID, Architecture: node.Architecture,
	})
}

func (j *job) nodeValues(node *Node) task.NodeValues { return readNodeValues(&j.in.Job.Spec, node) }

// nodeValueMissing blocks a node that does not have a value that task.env takes from it, or has an invalid one. A node may remove
// its values itself, so others do not wait for it.
func nodeValueMissing(j *job, r startRequest) block {
	if r.phase == task.Reboot {
		return block{}
	}
	if v := j.nodeValues(r.node); v.Reason != "" {
		return block{cause: causeNode, Why: hold.Why{Reason: v.Reason, Message: v.Message}}
	}
	return block{}
}

// inputsChanged reports whether the values that task.env takes from a node differ from those of the last run. The names of the
// variables belong to the revision, so only runs of the same revision may be compared. Missing and invalid values are no change.
func inputsChanged(job *v1alpha1.NodeJob, node *Node, rec *record.Record) bool {
	return differ(rec.Inputs, readNodeValues(&job.Spec, node).Hash())
}
