// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import "github.com/everynode/everynode/api/v1alpha1"

// IsServed reports whether the manager has created companions for a NodeGuard, according to its status, or to the companions
// that exist. If its namespace is no longer allowed, such a NodeGuard keeps them, and completes what it has begun.
func IsServed(g *v1alpha1.NodeGuard, companions int) bool {
	return g.Status.Revision != "" || companions > 0
}

// planNotAllowed reports that the namespace is not allowed, and does nothing else. It reads only the NodeGuard itself.
func planNotAllowed(in *Input) Plan {
	plan := Plan{Status: *in.Guard.Status.DeepCopy()}
	plan.Status.ObservedGeneration = in.Guard.Generation
	setCondition(in, &plan.Status, condition{v1alpha1.ConditionStalled, in.NotAllowed.Reason, in.NotAllowed.Message})
	return plan
}
