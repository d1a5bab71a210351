// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
)

// ignores reports whether a NodeJob needs no pass after a node was cordoned or tainted, became Ready or NotReady,
// rebooted, or was created or deleted. With a hundred NodeJobs, each such change would otherwise cost a hundred plans,
// nearly all of them without changes. Changes of labels and annotations that the NodeJob reads are checked elsewhere,
// and always trigger a pass.
//
// A pass can be skipped in two cases, and only while the NodeJob has nothing to remove from the node:
//
//   - The NodeJob does not match the node, neither before nor after the change. The plan excludes such a node before
//     it reads anything else, and does not count it. A NodeJob that disrupts nodes waits for all control plane nodes,
//     whether or not it selects them.
//   - The NodeJob is at rest, and the node is done with its revision. The plan checks whether a node is done before
//     it checks what prevents a task there. Only attempts that could start, soaks, and nodes at risk before the
//     revision is stable depend on taints, cordons and readiness, and a NodeJob at rest has none of these.
//
// TestWhatANodeJobIgnoresDoesNotChangeItsPlan compares plans.
func (c nodeChange) ignores(job *v1alpha1.NodeJob) bool {
	if !c.toAll || !job.DeletionTimestamp.IsZero() || job.Status.ObservedGeneration != job.Generation {
		return false
	}
	if hasOwnMetadata(job, c.after) || (c.before != nil && hasOwnMetadata(job, c.before)) {
		return false
	}
	switch {
	case !isFor(job, c.after):
		return !waitsFor(job, c.after)
	case c.before == nil, c.replaced, c.rebooted && dependsOnBoot(job):
		return false
	}
	return isFinished(job) && isDone(job, c.after)
}

// hasOwnMetadata reports whether a node has a gate or a cordon that the plan of the NodeJob may have to remove. A
// shared gate also depends on other NodeJobs, so any taint of that key counts.
func hasOwnMetadata(job *v1alpha1.NodeJob, node *corev1.Node) bool {
	key := v1alpha1.RecordKey(job.Namespace, job.Name)
	return slices.Contains(record.CordonedBy(node.Annotations), key) || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == key || t.Key == gateKeyOf(job)
	})
}

// isFor reports whether a node may match a NodeJob, or has anything of it.
func isFor(job *v1alpha1.NodeJob, node *corev1.Node) bool {
	key := v1alpha1.RecordKey(job.Namespace, job.Name)
	_, annotated := node.Annotations[key]
	_, labeled := node.Labels[key]
	_, sealed := node.Labels[record.SealKey(key)]
	if annotated || labeled || sealed {
		return true
	}
	if len(job.Spec.Nodes.Names) > 0 && !slices.Contains(job.Spec.Nodes.Names, node.Name) {
		return false
	}
	if job.Spec.Nodes.Selector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Nodes.Selector)
	return err != nil || selector.Matches(labels.Set(node.Labels))
}

// waitsFor reports whether a NodeJob may wait for a node that it does not match.
func waitsFor(job *v1alpha1.NodeJob, node *corev1.Node) bool {
	return plan.Disrupts(job) && plan.IsControlPlane(node.Labels)
}

// isFinished reports whether all nodes of a NodeJob were done when its status was written, and its revision has passed
// all steps.
func isFinished(job *v1alpha1.NodeJob) bool {
	status := &job.Status
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionComplete) && status.Rollout != nil && !status.Rollout.StableAt.IsZero() &&
		len(status.Failures) == 0 && len(status.Drains) == 0 && len(status.NodeProblems) == 0 && len(status.Rollout.UnrecordedFailures) == 0
}

// dependsOnBoot reports whether the NodeJob has something to do after a reboot of a node that is done.
func dependsOnBoot(job *v1alpha1.NodeJob) bool {
	return job.Spec.Rerun.OnReboot || (job.Spec.Gate != nil && job.Spec.Gate.OnReboot)
}

// isDone reports whether a node is done with the NodeJob's revision and nothing is left to do.
func isDone(job *v1alpha1.NodeJob, node *corev1.Node) bool {
	key := v1alpha1.RecordKey(job.Namespace, job.Name)
	on := record.Read(node.Labels, node.Annotations, key)
	rec := on.Record
	return on.DoneWith(job.Status.Revision, false) && rec != nil &&
		rec.Outcome == record.Succeeded && rec.Revision == on.Label && !rec.Cordoned && rec.Rollback == nil && rec.Drain == nil
}
