// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// planBudgets returns what the NodeDisruptionBudgets of a file would mean for the nodes of the cluster.
func (o *planOptions) planBudgets(ctx context.Context, file *planFile) ([]view.BudgetPlan, error) {
	if len(file.budgets) == 0 {
		return nil, nil
	}
	plans := make([]view.BudgetPlan, 0, len(file.budgets))
	for _, b := range file.budgets {
		p, err := o.dryRunBudget(ctx, b)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	live, err := cmdutil.BudgetsFor(ctx, o.client)
	if err != nil {
		return nil, err
	}
	var nodes []budget.Node
	var page corev1.NodeList
	if err := cmdutil.EachPage(ctx, o.client, &page, func() {
		for i := range page.Items {
			nodes = append(nodes, budget.ViewNode(&page.Items[i]))
		}
	}); err != nil {
		return nil, err
	}
	all := applied(live, file.budgets)
	for i := range plans {
		p := &plans[i]
		p.Now, p.Width = o.Now(), o.Terminal().Options().Width
		p.Outlook = budget.OutlookOf(p.Budget, all, nodes, p.Now)
	}
	return plans, nil
}

// dryRunBudget lets the API server validate a budget and set defaults. If the user may not write, the plan is made from the file alone.
func (o *planOptions) dryRunBudget(ctx context.Context, b *v1alpha1.NodeDisruptionBudget) (view.BudgetPlan, error) {
	p := view.BudgetPlan{Budget: b.DeepCopy()}
	live, err := cmdutil.GetBudget(ctx, o.client, b.Name)
	if err != nil {
		return p, err
	}
	if p.Exists = live != nil; p.Exists {
		p.Budget = live.DeepCopy()
		p.Budget.Spec = b.Spec
		err = o.client.Update(ctx, p.Budget, client.DryRunAll)
	} else {
		err = o.client.Create(ctx, p.Budget, client.DryRunAll)
	}
	note, err := unchecked(err)
	if note != "" {
		p.Notes, p.Budget = append(p.Notes, note), b.DeepCopy()
	}
	return p, err
}
