// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
)

// After retry or rerun has written to a node, the manager must run the task there. The manager evaluates label and
// record together (internal/plan, standing). By the labels in the record, it recognizes a node that nothing else
// selects any more.

// nodeMetadata is the metadata of a node on which a command bases its decision.
type nodeMetadata struct {
	record.NodeRecord
	labels map[string]string
}

// nodeActions decides what to write to the nodes of a NodeJob.
type nodeActions struct {
	job *v1alpha1.NodeJob
	key string
}

func newNodeActions(job *v1alpha1.NodeJob) nodeActions {
	return nodeActions{job, v1alpha1.RecordKey(job.Namespace, job.Name)}
}

// revision is the current revision. It is empty while no manager has observed the current spec.
func (a nodeActions) revision() string {
	if a.job.Status.ObservedGeneration != a.job.Generation {
		return ""
	}
	return a.job.Status.Revision
}

// counts reports whether a node with this label value is done. While the revision is not known, any value counts.
func (a nodeActions) counts(label string) bool {
	onRevisionChange := a.job.Spec.Rerun.OnRevisionChange
	return label != "" && (a.revision() == "" || label == a.revision() || (onRevisionChange != nil && !*onRevisionChange))
}

// isOld reports whether a record is of another revision.
func (a nodeActions) isOld(rec *record.Record) bool {
	return rec == nil || (a.revision() != "" && rec.Revision != a.revision())
}

// isDone reports whether there is nothing to run. A rerun that was disrupted is not done, although it has the label of
// the earlier run.
func (a nodeActions) isDone(on nodeMetadata) bool {
	rec := on.Record
	rerunning := !a.isOld(rec) && rec.Rerun && rec.Outcome != record.Failed
	return a.counts(on.Label) && !rerunning
}

// requestRetry writes the request of a retry to the record of a node.
func (a nodeActions) requestRetry(on nodeMetadata, alone bool) nodeChange {
	rec := *on.Record
	rec.RetryRequested, rec.RunsAlone = true, alone
	encoded := record.Encode(rec)
	seal, did := record.Seal(encoded), "retry requested"
	if alone && a.othersWait() {
		did += "; other nodes wait until the run there has ended (--with-others: they do not wait)"
	}
	return nodeChange{annotations: map[string]*string{a.key: &encoded}, labels: map[string]*string{record.SealKey(a.key): &seal}, did: did}
}

// othersWait reports whether a retry on a node that runs alone makes other nodes wait: during a rollout.
func (a nodeActions) othersWait() bool {
	rollout := a.job.Status.Rollout
	return rollout == nil || rollout.StableAt.IsZero()
}

// forget removes the record with its seal, and the label if the node would be done because of it. It restores the
// labels that a success has removed: without the record they are unknown, and one of them may select the node.
func (a nodeActions) forget(on nodeMetadata, did string) nodeChange {
	c := nodeChange{annotations: map[string]*string{a.key: nil}, labels: map[string]*string{record.SealKey(a.key): nil}}
	said := []string{"annotation " + a.key + " removed with its seal"}
	set := func(key string, value *string, what string) {
		c.labels[key], said = value, append(said, what)
	}
	if a.counts(on.Label) {
		set(a.key, nil, "label "+a.key+" removed")
	}
	for _, key := range a.job.Spec.RemoveLabels {
		value, was := on.Record.RemovedLabels[key]
		if _, is := on.labels[key]; was && !is {
			set(key, &value, "label "+key+"="+value+" restored")
		}
	}
	c.did = did + strings.Join(said, ", ")
	return c
}
