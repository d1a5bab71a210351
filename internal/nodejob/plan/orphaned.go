// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// Orphaned is the change that removes from a node what NodeJobs left there that are deleted or have another gate now;
// nil if there is nothing to remove. A node may get such a taint after its NodeJob is deleted, because the API server
// learns of the deletion a moment later. A user may also have force-deleted a NodeJob by removing its finalizer.
func Orphaned(node *Node, jobs []*v1alpha1.NodeJob) *record.Change {
	c := record.Change{UID: node.UID, ResourceVersion: node.ResourceVersion}
	stray := func(t corev1.Taint) bool { return ofEverynode(&t) && !claimed(&t, jobs) }
	if slices.ContainsFunc(node.Taints, stray) {
		c.Taints = &record.Taints{All: slices.DeleteFunc(slices.Clone(node.Taints), stray)}
	}
	gone := func(key string) bool {
		return !slices.ContainsFunc(jobs, func(job *v1alpha1.NodeJob) bool { return v1alpha1.RecordKey(job.Namespace, job.Name) == key })
	}
	if slices.ContainsFunc(node.CordonedBy, gone) {
		by := slices.DeleteFunc(slices.Clone(node.CordonedBy), gone)
		if !node.Unschedulable {
			by = nil // a user has uncordoned it for all
		}
		c.Cordon = &record.Cordon{By: by}
	}
	if !c.Shared() {
		return nil
	}
	return &c
}

// claimed reports whether a taint is or may be the gate of a NodeJob. If it has the default key of a NodeJob, the plan
// of that NodeJob decides about it, unless its gate has another key now.
func claimed(taint *corev1.Taint, jobs []*v1alpha1.NodeJob) bool {
	return slices.ContainsFunc(jobs, func(job *v1alpha1.NodeJob) bool {
		if taint.Key == v1alpha1.RecordKey(job.Namespace, job.Name) {
			return v1alpha1.GateKey(job) == taint.Key
		}
		gate := job.Spec.Gate
		if gate == nil || gate.Key != taint.Key {
			return false
		}
		return string(gate.Effect) == string(taint.Effect) || (gate.Effect == "" && taint.Effect == corev1.TaintEffectNoSchedule)
	})
}
