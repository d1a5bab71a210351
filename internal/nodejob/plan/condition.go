// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// PublishesConditions reports whether spec.publish has a condition.
func PublishesConditions(spec *v1alpha1.NodeJobSpec) bool {
	return slices.ContainsFunc(spec.Publish, func(entry v1alpha1.PublishedResult) bool { return entry.Condition != "" })
}

// publishesConditions reports whether nodes get conditions. A NodeJob that is being deleted removes them at once.
func (p *policy) publishesConditions() bool {
	return p.in.Job.DeletionTimestamp.IsZero() && PublishesConditions(&p.in.Job.Spec)
}

// condition is the status of the conditions of a node in spec.publish. They are for display: no decision is made from them.
func (w *nodePlan) condition() corev1.ConditionStatus {
	switch w.State {
	case Done:
		return corev1.ConditionTrue
	case Failed:
		return corev1.ConditionFalse
	case Waiting, Running, Excluded:
	}
	return corev1.ConditionUnknown
}
