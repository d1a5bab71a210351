// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import "k8s.io/apimachinery/pkg/types"

// observed is the input of a plan. Its methods answer what depends only on the input and on one node. They change neither
// of them, and have no access to the plan.
type observed struct {
	in *Input
	// overlapping is the name of a budget that Everynode did not create and that selects the companions; "" if none does.
	overlapping string
	// budget is the PodDisruptionBudget of the companions; nil if there is none.
	budget *Budget
}

func observe(in *Input) observed {
	o := observed{in: in}
	for _, f := range in.Foreign {
		if f.Selector != nil && f.Selector.Matches(in.Labels) {
			o.overlapping = f.Name
			break
		}
	}
	for i := range in.Budgets {
		if b := &in.Budgets[i]; b.Name == BudgetName(in.Guard.Name) && o.isOwn(b.Owner) {
			o.budget = b
		}
	}
	return o
}

// key is the name of the NodeGuard as approvals contain it.
func (o observed) key() string { return o.in.Guard.Namespace + "/" + o.in.Guard.Name }

// isOwn reports whether this NodeGuard created an object, and not an earlier one of the same name.
func (o observed) isOwn(owner types.UID) bool { return owner == o.in.Guard.UID }
