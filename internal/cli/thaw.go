// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

type thawOptions struct {
	*console.Factory
	client client.WithWatch
	all    bool
}

func newThawCommand(f *console.Factory) *cobra.Command {
	o := &thawOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "thaw [NAME… | --all]",
		Short: "End freezes: delete NodeDisruptionBudgets that freeze has created",
		Long: `End freezes by deleting their NodeDisruptionBudgets. Without a name, it is the freeze with the name "freeze", or the only one.

A NodeDisruptionBudget with windows, or with a limit other than 0, is not a freeze, and is never deleted. One without an end
(spec.expiresAt), which freeze does not create, is only deleted by its name.`,
		Example:           "  kubectl everynode thaw\n  kubectl everynode thaw databases\n  kubectl everynode thaw --all",
		ValidArgsFunction: f.CompleteBudgets,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.all && len(args) > 0 {
				return cmdutil.Failf(cmdutil.ExitUsage, "give the names of freezes, or --all: not both")
			}
			if o.client, err = o.Client(); err != nil {
				return err
			}
			return o.run(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "end all freezes that have an end")
	return cmd
}

func (o *thawOptions) run(ctx context.Context, names []string) error {
	if len(names) == 0 {
		found, err := o.choose(ctx)
		if err != nil {
			return err
		}
		names = found
	}
	err := o.each(ctx, names)
	left, leftErr := cmdutil.Freezes(ctx, o.client, o.Now)
	if leftErr == nil {
		o.Tell(view.Freezes(left, o.Now(), term.Of(o.ErrOut, o.Getenv).Options().Width)...)
	}
	return err
}

// choose returns the names of the freezes that are meant if none is given.
func (o *thawOptions) choose(ctx context.Context) ([]string, error) {
	budgets, err := cmdutil.ListBudgets(ctx, o.client)
	if err != nil {
		return nil, err
	}
	names, endless := freezeNames(budgets)
	switch {
	case len(names) == 0:
		return nil, noFreeze(endless)
	case o.all || len(names) == 1:
		return names, nil
	case slices.Contains(names, freezeName):
		return []string{freezeName}, nil
	}
	return nil, cmdutil.Failf(cmdutil.ExitUsage, "there are several freezes: name one, or give --all: %s", cmdutil.JoinNames(names))
}

// freezeNames returns the names of the freezes that can be meant without a name, and of those that have no end.
func freezeNames(budgets []v1alpha1.NodeDisruptionBudget) (names, endless []string) {
	for i := range budgets {
		switch b := &budgets[i]; {
		case !budget.IsFreeze(&b.Spec) || !b.DeletionTimestamp.IsZero():
		case b.Spec.ExpiresAt == nil && b.Name != freezeName:
			endless = append(endless, b.Name)
		default:
			names = append(names, b.Name)
		}
	}
	return names, endless
}

func noFreeze(endless []string) error {
	if len(endless) > 0 {
		return cmdutil.Failf(cmdutil.ExitNotFound, "there is no freeze that has an end. To delete one without an end, name it: %s", cmdutil.JoinNames(endless))
	}
	return cmdutil.Failf(cmdutil.ExitNotFound, "there is no freeze in this cluster. For other NodeDisruptionBudgets: kubectl everynode budgets")
}

// each ends the freezes. If one cannot be ended, the others still are, and the exit code is the highest one.
func (o *thawOptions) each(ctx context.Context, names []string) error {
	worst := cmdutil.ExitOK
	for _, name := range names {
		err := cmdutil.Explain(o.thaw(ctx, name))
		if len(names) == 1 || ctx.Err() != nil {
			return err
		}
		if err != nil {
			o.Tell(text.Of("nodedisruptionbudget "+name+": ").Tone(text.Bad, "error: ").With(err.Error()))
		}
		worst = max(worst, cmdutil.CodeOf(err))
	}
	return cmdutil.Exit(worst)
}

// thaw deletes a freeze, if it is still the one that was read.
func (o *thawOptions) thaw(ctx context.Context, name string) error {
	b, err := cmdutil.GetBudget(ctx, o.client, name)
	switch {
	case err != nil:
		return err
	case b == nil:
		return budgetNotFound(ctx, o.client, name)
	case !budget.IsFreeze(&b.Spec):
		return cmdutil.Failf(cmdutil.ExitError, "NodeDisruptionBudget %s is not a freeze: it has windows, or a limit other than 0. Nothing was deleted. To delete it all the same: kubectl delete nodedisruptionbudget %s", name, name)
	}
	if err := o.client.Delete(ctx, b, client.Preconditions{UID: &b.UID, ResourceVersion: &b.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeDisruptionBudget %s: %w", name, cmdutil.Explain(err))
	}
	return o.Say(text.Of("nodedisruptionbudget "+name+": ").Tone(text.Strong, "the freeze is ended").With(": " + o.ended(b)))
}

// ended says what a freeze was.
func (o *thawOptions) ended(b *v1alpha1.NodeDisruptionBudget) string {
	if cmdutil.IsExpired(b, o.Now()) {
		return "it had expired already"
	}
	return "what it held starts automatically, as far as other budgets allow"
}
