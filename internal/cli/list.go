// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

type listOptions struct {
	*console.Factory
	allNamespaces bool
	output        string
	namespace     string
}

func newListCommand(f *console.Factory) *cobra.Command {
	o := &listOptions{Factory: f}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List NodeJobs with how far they are",
		Example: `  # those of a namespace, and those of all
  kubectl everynode list -n node-setup
  kubectl everynode list -A

  # with what each waits for
  kubectl everynode list -A -o wide`,
		Args:              console.ExactArgs(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list those of all namespaces")
	console.AddOutputFlag(cmd, &o.output, console.OutputWide, console.OutputName, console.OutputJSON, console.OutputYAML)
	return cmd
}

func (o *listOptions) run(ctx context.Context) error {
	key, c, err := o.Target("")
	if err != nil {
		return err
	}
	if !o.allNamespaces {
		o.namespace = key.Namespace
	}
	jobs, err := cmdutil.ListJobs(ctx, c, o.namespace)
	if err != nil {
		return err
	}
	slices.SortFunc(jobs, func(a, b v1alpha1.NodeJob) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	switch {
	case o.output != console.OutputPeople && o.output != console.OutputWide:
		return o.PrintObject(o.output, &v1alpha1.NodeJobList{Items: jobs})
	case len(jobs) == 0:
		o.Tell(text.Of(o.none(ctx, c)))
		return nil
	}
	list := view.List{Jobs: jobs, Namespaces: o.allNamespaces, Wide: o.output == console.OutputWide, Now: o.Now()}
	if err := o.Say(list.Lines()...); err != nil {
		return err
	}
	width := term.Of(o.ErrOut, o.Getenv).Options().Width
	if away := view.Warning(managerAway(ctx, c), width); away != nil {
		o.Tell(away...)
	} else {
		o.Tell(list.Unobserved(width)...)
	}
	o.Tell(view.Freezes(freezes(ctx, o.Factory, c), o.Now(), width)...)
	return nil
}

// none returns the message for an empty list. It names other namespaces that have NodeJobs.
func (o *listOptions) none(ctx context.Context, c client.Client) string {
	if o.allNamespaces {
		return "there is no NodeJob in this cluster"
	}
	message := "there is no NodeJob in namespace " + o.namespace
	if others, err := cmdutil.ListJobs(ctx, c, ""); err == nil && len(others) > 0 {
		message += fmt.Sprintf("; there are %d in other namespaces: -A lists them", len(others))
	}
	return message
}
