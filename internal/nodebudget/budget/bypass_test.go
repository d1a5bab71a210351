// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestBypasses(t *testing.T) {
	const frozen = "NodeDisruptionBudget c allows no disruption (maxUnavailable 0), and has no end"
	tests := map[string]struct {
		budget  *v1alpha1.NodeDisruptionBudget
		deleted string
		want    []Bypass
	}{
		"a freeze":                {newBudget("c", "0"), "n1", []Bypass{{"c", "n1", frozen}}},
		"a freeze of other nodes": {inPool("y", newBudget("c", "0")), "n1", nil},
		"a closed window": {with(newBudget("c"), func(s *spec) { s.Windows = onSundays }), "n1", []Bypass{
			{"c", "n1", "NodeDisruptionBudget c is closed until its next window opens at 2026-11-29T02:00:00Z"},
		}},
		"an open budget":             {newBudget("c", "1"), "n1", nil},
		"a limit that is reached":    {newBudget("c", "1"), "n2", nil},
		"an audit":                   {with(newBudget("c", "0"), func(s *spec) { s.Enforcement = v1alpha1.BudgetReport }), "n1", nil},
		"no seat was deleted":        {newBudget("c", "0"), "", nil},
		"a node that does not exist": {newBudget("c", "0"), "n9", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, newBudget("b", "1"), tt.budget)
			f.Deleted = map[types.UID]bool{types.UID(tt.deleted): true}
			f.evict("n1")
			if diff := cmp.Diff(tt.want, Next(&f.Input).Bypasses); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
