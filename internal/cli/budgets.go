// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

type budgetsOptions struct {
	*console.Factory
	output string
}

func newBudgetsCommand(f *console.Factory) *cobra.Command {
	o := &budgetsOptions{Factory: f}
	cmd := &cobra.Command{
		Use:     "budgets [NAME]",
		Aliases: []string{"budget", "ndb"},
		Short:   "Show NodeDisruptionBudgets: what they allow, and which nodes use them or wait",
		Long: `Show all NodeDisruptionBudgets: how many nodes they select, how many disruptions may begin now, when windows open and close, and which
nodes use the budget or wait for it, since when, and because of what. With a name, show this one with all of its rules.`,
		Example:           "  kubectl everynode budgets\n  kubectl everynode budgets production",
		Args:              atMostOneName("the name of a NodeDisruptionBudget"),
		ValidArgsFunction: f.CompleteBudgets,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), strings.Join(args, ""))
		},
	}
	console.AddOutputFlag(cmd, &o.output, console.OutputName, console.OutputJSON, console.OutputYAML)
	return cmd
}

func (o *budgetsOptions) run(ctx context.Context, name string) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	width := o.Terminal().Options().Width
	if name != "" {
		b, err := cmdutil.GetBudget(ctx, c, name)
		switch {
		case err != nil:
			return err
		case b == nil:
			return budgetNotFound(ctx, c, name)
		}
		return o.print(b, view.Budget{Budget: b, Now: o.Now(), Width: width}.Lines)
	}
	budgets, err := cmdutil.ListBudgets(ctx, c)
	if err != nil {
		return err
	}
	if len(budgets) == 0 && o.output == console.OutputPeople {
		o.Tell(text.Of("there is no NodeDisruptionBudget in this cluster"))
		return nil
	}
	o.Tell(view.Freezes(cmdutil.Mistakes(budgets, o.Now()), o.Now(), width)...)
	return o.print(&v1alpha1.NodeDisruptionBudgetList{Items: budgets}, view.Budgets{Items: budgets, Now: o.Now(), Width: width}.Lines)
}

// print prints an object for programs, or the lines for people.
func (o *budgetsOptions) print(object runtime.Object, lines func() []text.Line) error {
	if o.output != console.OutputPeople {
		return o.PrintObject(o.output, object)
	}
	return o.Say(lines()...)
}

// budgetNotFound returns an error that names the existing NodeDisruptionBudgets, as far as the user may list them.
func budgetNotFound(ctx context.Context, c client.Client, name string) error {
	message := "there is no NodeDisruptionBudget " + name
	if names := cmdutil.BudgetNames(ctx, c); len(names) > 0 {
		message += "; there are " + cmdutil.JoinNames(cmdutil.Nearest(name, names))
	}
	return cmdutil.Failf(cmdutil.ExitNotFound, "%s", message)
}
