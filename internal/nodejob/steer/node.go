// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// After Retry or Rerun has changed a node, the manager must run the task there. The planner evaluates label and record together
// (record.NodeRecord.DoneWith). By the labels in the record, it recognizes a node that nothing else selects any more.

// Node is what a decision about a node depends on.
type Node struct {
	// NodeRecord is the record of the NodeJob.
	record.NodeRecord
	labels map[string]string
}

// ReadNode reads what labels and annotations of a node say about the NodeJob.
func ReadNode(job *v1alpha1.NodeJob, labels, annotations map[string]string) Node {
	return Node{record.Read(labels, annotations, recordKey(job)), labels}
}

func recordKey(job *v1alpha1.NodeJob) string { return v1alpha1.RecordKey(job.Namespace, job.Name) }

// leave is the decision to change nothing of a node.
func leave(reason string) NodeDecision { return NodeDecision{Nothing: reason} }

// MayChangeNodes refuses changes of records of a NodeJob that is being deleted. The manager needs these records to roll the task
// back.
func MayChangeNodes(job *v1alpha1.NodeJob) error {
	if job.DeletionTimestamp.IsZero() {
		return nil
	}
	return refuse(Unsuitable, "NodeJob %s/%s is being deleted, so its task does not run again. To retry a failed rollback: kubectl everynode retry %[2]s -n %[1]s",
		job.Namespace, job.Name)
}

// revision is the current revision; "" while no manager has observed the current spec.
func revision(job *v1alpha1.NodeJob) string {
	if job.Status.ObservedGeneration != job.Generation {
		return ""
	}
	return job.Status.Revision
}

// anyRevision reports whether a label of any revision says that a node is done. This is assumed while the revision is not known.
func anyRevision(job *v1alpha1.NodeJob) bool {
	onRevisionChange := job.Spec.Rerun.OnRevisionChange
	return revision(job) == "" || (onRevisionChange != nil && !*onRevisionChange)
}

// isOld reports whether the record is of another revision.
func (n Node) isOld(job *v1alpha1.NodeJob) bool {
	return n.Record == nil || (revision(job) != "" && n.Record.Revision != revision(job))
}

// isDone reports whether there is nothing to run. While the revision is not known, that of the record counts.
func (n Node) isDone(job *v1alpha1.NodeJob) bool {
	current := revision(job)
	if current == "" && n.Record != nil {
		current = n.Record.Revision
	}
	return n.DoneWith(current, anyRevision(job))
}

// Rerun requests a run on a node that is done.
func Rerun(job *v1alpha1.NodeJob, node Node) NodeDecision {
	rec, key := node.Record, recordKey(job)
	switch {
	case !node.isOld(job) && rec.Outcome == record.Rebooting:
		return leave("it runs there now: the node is being rebooted")
	case node.isDone(job) && (node.isOld(job) || rec.Outcome.Done()):
		return NodeDecision{Labels: map[string]*string{key: nil}, Did: "rerun requested: label " + key + " removed"}
	case node.isDone(job):
		return forget(job, node) // a user has skipped the node after a failure, which would count again
	case !node.isOld(job) && rec.Outcome == record.Failed:
		return leave("it has failed there; to run it again, use retry")
	}
	return leave("it is not done there, and runs automatically")
}

// forget removes the record with its seal, and the label if the node would be done because of it. It restores the labels that a
// success has removed: without the record they are unknown, and one of them may select the node.
func forget(job *v1alpha1.NodeJob, node Node) NodeDecision {
	key := recordKey(job)
	d := NodeDecision{Annotations: map[string]*string{key: nil}, Labels: map[string]*string{record.SealKey(key): nil}}
	done := []string{"annotation " + key + " removed with its seal"}
	if node.HasLabelOf(revision(job), anyRevision(job)) {
		d.Labels[key] = nil
		done = append(done, "label "+key+" removed")
	}
	for _, removed := range job.Spec.RemoveLabels {
		value, was := node.Record.RemovedLabels[removed]
		if _, is := node.labels[removed]; was && !is {
			d.Labels[removed] = &value
			done = append(done, "label "+removed+"="+value+" restored")
		}
	}
	d.Did = "rerun requested: " + strings.Join(done, ", ")
	return d
}

// MaySkip refuses to skip nodes if the revision is not known with which they would be done.
func MaySkip(job *v1alpha1.NodeJob) error {
	if err := MayChangeNodes(job); err != nil {
		return err
	}
	is := stands(job)
	switch {
	case job.Status.ObservedGeneration != job.Generation, job.Status.Revision == "" && is == nil:
		return refuse(TooEarly, "the current revision is not known yet, because the manager has not observed the current spec: wait, or check with: kubectl everynode status %s -n %s",
			job.Name, job.Namespace)
	case job.Status.Revision == "":
		return refuse(TooEarly, "the current revision is not known (%s): %s", is.Reason, is.Message)
	}
	return nil
}

// stands returns the condition that says how the NodeJob stands; nil if there is none yet.
func stands(job *v1alpha1.NodeJob) *metav1.Condition {
	var complete *metav1.Condition
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		switch c.Type {
		case v1alpha1.ConditionComplete:
			complete = c
		case v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled:
		default:
			continue
		}
		if c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return complete
}

// Skip marks a node as done with the current revision, which MaySkip has checked.
func Skip(job *v1alpha1.NodeJob, node Node) NodeDecision {
	current, key := job.Status.Revision, recordKey(job)
	if node.Label == current {
		return leave("it counts as done with revision " + current + " already")
	}
	return NodeDecision{Labels: map[string]*string{key: &current}, Did: "counts as done without a run: label " + key + "=" + current}
}
