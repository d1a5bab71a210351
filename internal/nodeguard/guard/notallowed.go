// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// MaxServed is how many NodeGuards of a namespace are served. Each can have a say about each node, so that a decision asks all of them.
const MaxServed = 64

// BeyondMaximum returns the NodeGuards that are not served because there are MaxServed older ones in their namespace, by UID.
func BeyondMaximum(all []*v1alpha1.NodeGuard) map[types.UID]bool {
	sorted := slices.DeleteFunc(slices.Clone(all), func(g *v1alpha1.NodeGuard) bool { return !g.DeletionTimestamp.IsZero() })
	slices.SortFunc(sorted, func(a, b *v1alpha1.NodeGuard) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	served, beyond := map[string]int{}, map[types.UID]bool{}
	for _, g := range sorted {
		if served[g.Namespace]++; served[g.Namespace] > MaxServed {
			beyond[g.UID] = true
		}
	}
	return beyond
}

// TooManyNodeGuards returns the obstacle of a NodeGuard beyond the maximum.
func TooManyNodeGuards(namespace string) *hold.Why {
	return &hold.Why{
		Reason: v1alpha1.ReasonTooManyNodeGuards,
		Message: fmt.Sprintf("at most %d NodeGuards of a namespace are served, the oldest first, and namespace %s has more: delete those that are not needed (kubectl -n %[2]s get nodeguards), or create this one in another namespace",
			MaxServed, namespace),
	}
}

// PlanTooSlow reports that a decision was not made in time, and does nothing else. namespace is the one whose NodeGuards needed the most time.
func PlanTooSlow(in *Input, namespace string, most time.Duration) Plan {
	plan := Plan{Status: *in.Guard.Status.DeepCopy()}
	plan.Status.ObservedGeneration = in.Guard.Generation
	setCondition(in, &plan.Status, *stalled(v1alpha1.ReasonDecisionsTooSlow, fmt.Sprintf(
		"a decision takes longer than %s, so no node is released: most of the time is needed for the NodeGuards of namespace %s (kubectl -n %[2]s get nodeguards). Delete those that are not needed there, or find out why the API server is slow",
		most, namespace)))
	return plan
}

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
