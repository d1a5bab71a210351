// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budgetcontroller

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestNewlyUnavailable(t *testing.T) {
	status := func(generation int64, nodes ...string) *v1alpha1.NodeDisruptionBudgetStatus {
		s := &v1alpha1.NodeDisruptionBudgetStatus{ObservedGeneration: generation}
		for _, node := range nodes {
			s.Unavailable = append(s.Unavailable, v1alpha1.UnavailableNode{Node: node})
		}
		return s
	}
	for name, tt := range map[string]struct {
		is, before *v1alpha1.NodeDisruptionBudgetStatus
		want       []v1alpha1.UnavailableNode
	}{
		"the nodes of a new budget have no seats yet": {status(1, "a", "b"), status(0), nil},
		"a node is unavailable, and another one was":  {status(1, "a", "b"), status(1, "a"), []v1alpha1.UnavailableNode{{Node: "b"}}},
		"a node is available again":                   {status(1), status(1, "a"), nil},
	} {
		if diff := cmp.Diff(
			tt.want,
			newlyUnavailable(tt.is, tt.before),
		); diff != "" &&
			len(tt.want)+len(newlyUnavailable(tt.is, tt.before)) > 0 {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}
