// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/plural"
)

// What events and notifications say about the progress of a rollout. The other texts are those of the conditions.

// RevisionStarted says that the revision of the status begins, and who has last changed the NodeJob.
func RevisionStarted(job *v1alpha1.NodeJob, status *v1alpha1.NodeJobStatus) string {
	return fmt.Sprintf("revision %s begins; nodes to do: %d%s", status.Revision, status.Nodes.Total-status.Nodes.Done, changedBy(job, status.UnattributedGeneration))
}

// Author returns who has last changed the spec. It returns "" if that is unknown, and if something else began the revision:
// unattributed is status.unattributedGeneration.
func Author(job *v1alpha1.NodeJob, unattributed int64) string {
	if unattributed != 0 && unattributed == job.Generation {
		return ""
	}
	return record.ChangedBy(job.Annotations)
}

// unattributed returns status.unattributedGeneration for a status with the revision.
func (in *Input) unattributed() int64 {
	was := &in.Job.Status
	begins := in.Revision != was.Revision && in.Revision != "" && was.Revision != ""
	if begins && was.ObservedGeneration == in.Job.Generation || !begins && was.UnattributedGeneration == in.Job.Generation {
		return in.Job.Generation
	}
	return 0
}

// author is who has caused what happens now.
func (in *Input) author() string { return Author(in.Job, in.unattributed()) }

// changedBy names who has last changed the spec; "" if that is unknown.
func changedBy(job *v1alpha1.NodeJob, unattributed int64) string {
	if by := Author(job, unattributed); by != "" {
		return "; last changed by " + by
	}
	return ""
}

// StepStarted says that the current step of the status begins.
func StepStarted(status *v1alpha1.NodeJobStatus) string {
	nodes := int32(0)
	for _, step := range status.Rollout.Steps {
		if step.Name == status.Rollout.Step {
			nodes = step.Nodes
		}
	}
	return fmt.Sprintf("step %s of revision %s begins; nodes in it: %d", status.Rollout.Step, status.Revision, nodes)
}

// StepCompleted says that a step has passed.
func StepCompleted(status *v1alpha1.NodeJobStatus, step *v1alpha1.StepStatus) string {
	text := fmt.Sprintf("step %s of revision %s is completed: %d of %s done", step.Name, status.Revision, step.Done, plural.CountAre(step.Nodes, "node"))
	if step.Failed > 0 {
		text += fmt.Sprintf(", %d failed", step.Failed)
	}
	return text
}
