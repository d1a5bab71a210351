// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// validateDiff rejects options that do not apply to a comparison.
func (o *resultsOptions) validateDiff() error {
	switch {
	case o.diff == "":
		return nil
	case o.diffPrevious:
		return cmdutil.Failf(cmdutil.ExitUsage, "--diff compares with another NodeJob and --diff-previous with an earlier revision: use one of them")
	case o.by != "":
		return cmdutil.Failf(cmdutil.ExitUsage, "--by groups the results of one NodeJob: leave it out with --diff")
	case o.diff == o.name:
		return cmdutil.Failf(cmdutil.ExitUsage, "--diff %s is the same NodeJob: name another one, or use --diff-previous to compare with its previous revision", o.diff)
	}
	return o.validateDiffOutput("--diff")
}

// validateDiffOutput rejects formats that a comparison does not have. flag is the flag that requests it.
func (o *resultsOptions) validateDiffOutput(flag string) error {
	if o.output != console.OutputPeople && o.output != console.OutputJSON {
		return cmdutil.Failf(cmdutil.ExitUsage, "-o %s is not supported with %s: give %s, or leave it out", o.output, flag, console.OutputJSON)
	}
	return nil
}

// runDiff compares the results with those of another NodeJob of the same namespace.
func (o *resultsOptions) runDiff(ctx context.Context, c client.Reader, nodes []view.NodeResult) error {
	other, err := cmdutil.GetJob(ctx, c, client.ObjectKey{Namespace: o.namespace, Name: o.diff})
	if err != nil {
		return err
	}
	others, err := nodeResults(ctx, c, v1alpha1.RecordKey(other.Namespace, other.Name), lastResult)
	if err != nil {
		return err
	}
	return o.showDiff(difference{name: o.name, other: o.diff, both: o.name + " and " + o.diff}, nodes, others)
}

// difference names what is compared: the columns of the table, and both in a sentence.
type difference struct{ name, other, both string }

func (o *resultsOptions) showDiff(between difference, nodes, others []view.NodeResult) error {
	differences := view.CompareResults(nodes, others)
	if err := o.printDiff(between, differences); err != nil {
		return err
	}
	if len(differences) == 0 {
		o.Tell(text.Of(fmt.Sprintf("no differences between %s on %s", between.both, plural.Count(len(nodes), "node"))))
		return nil
	}
	return cmdutil.Exit(cmdutil.ExitDiffers)
}

func (o *resultsOptions) printDiff(between difference, differences []view.ResultDifference) error {
	switch {
	case o.output == console.OutputJSON:
		return o.PrintData(o.output, differences)
	case len(differences) == 0:
		return nil
	}
	return o.Say(view.DifferenceTable(between.name, between.other, differences)...)
}
