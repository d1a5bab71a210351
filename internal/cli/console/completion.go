// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// completionTimeout limits how long a user waits after pressing Tab.
const completionTimeout = 3 * time.Second

// CompleteJobs completes the name of a NodeJob, which is the only argument.
func (f *Factory) CompleteJobs(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.names(cmd.Context(), toComplete, cmdutil.JobNames)
}

// CompleteJobThenNodes completes the name of a NodeJob, and then names of nodes.
func (f *Factory) CompleteJobThenNodes(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return f.CompleteJobs(cmd, args, toComplete)
	}
	return f.CompleteNodes(cmd, args[1:], toComplete)
}

// CompleteNodes completes the names of nodes that are not in args yet.
func (f *Factory) CompleteNodes(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	found, directive := f.names(cmd.Context(), toComplete, func(ctx context.Context, c client.Client, _ string) []string { return cmdutil.NodeNames(ctx, c) })
	return slices.DeleteFunc(found, func(n string) bool { return slices.Contains(args, n) }), directive
}

// CompleteNodeList returns a completion of names of nodes in the value of a flag: a list that is separated by commas. A name
// may begin with one of the characters in marks, such as "!".
func (f *Factory) CompleteNodeList(marks string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		before := toComplete[:strings.LastIndexByte(toComplete, ',')+1]
		name := strings.TrimLeft(toComplete[len(before):], marks)
		prefix := toComplete[:len(toComplete)-len(name)]
		listed := strings.FieldsFunc(before, func(r rune) bool { return r == ',' || strings.ContainsRune(marks, r) })
		found, directive := f.CompleteNodes(cmd, listed, name)
		for i := range found {
			found[i] = prefix + found[i]
		}
		return found, directive
	}
}

// CompleteBudgets completes the names of NodeDisruptionBudgets that are not in args yet.
func (f *Factory) CompleteBudgets(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	found, directive := f.names(cmd.Context(), toComplete, func(ctx context.Context, c client.Client, _ string) []string { return cmdutil.BudgetNames(ctx, c) })
	return slices.DeleteFunc(found, func(n string) bool { return slices.Contains(args, n) }), directive
}

// CompleteOtherJobs completes the names of NodeJobs that are not in args yet.
func (f *Factory) CompleteOtherJobs(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	found, directive := f.CompleteJobs(cmd, nil, toComplete)
	return slices.DeleteFunc(found, func(n string) bool { return slices.Contains(args, n) }), directive
}

// CompleteSteps completes the steps of the NodeJob that is the first argument.
func (f *Factory) CompleteSteps(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return f.names(cmd.Context(), toComplete, func(ctx context.Context, c client.Client, namespace string) []string {
		var job v1alpha1.NodeJob
		if len(args) == 0 || c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: args[0]}, &job) != nil {
			return nil
		}
		var steps []string
		for _, step := range job.Spec.Rollout.Steps {
			steps = append(steps, step.Name)
		}
		return steps
	})
}

// names lists names from the cluster. It ignores errors: if the list fails, there is nothing to complete.
func (f *Factory) names(ctx context.Context, prefix string, ask func(context.Context, client.Client, string) []string) ([]string, cobra.ShellCompDirective) {
	key, c, err := f.Target("")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	return slices.DeleteFunc(ask(ctx, c, key.Namespace), func(name string) bool { return !strings.HasPrefix(name, prefix) }),
		cobra.ShellCompDirectiveNoFileComp
}

// CompleteJobOrNode completes NodeJobs and nodes as the first argument, since it may be either, and nodes after that.
func (f *Factory) CompleteJobOrNode(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		jobs, _ := f.CompleteJobs(cmd, args, toComplete)
		nodes, directive := f.CompleteNodes(cmd, nil, toComplete)
		return append(jobs, nodes...), directive
	case 1:
		return f.CompleteNodes(cmd, nil, toComplete)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
