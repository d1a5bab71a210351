// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

type explainOptions struct {
	*console.Factory
	// key has no name if all NodeJobs are meant.
	key    client.ObjectKey
	node   string
	client client.WithWatch
}

func newExplainCommand(f *console.Factory) *cobra.Command {
	o := &explainOptions{Factory: f}
	return &cobra.Command{
		Use:   "explain [NAME] NODE",
		Short: "Explain why a task has run on a node, or why it has not",
		Long: `Explain why a task has run on a node or why it has not, when it ran and how that ended, what it published, and what
would make it run. With a node alone: a sentence for each NodeJob of the cluster, for each NodeGuard that holds or has
released the node, and for its NodeDisruptionBudgets: whether the node counts as unavailable or waits, for which nodes
and since when, and what opens next.

It plans as the manager does, from the objects of the API: the manager need not run. Of a node that waits for
maintenance.maxUnavailable it names the nodes that use the budget.`,
		Example: `  kubectl everynode explain max-map-count node-3 -n node-setup

  # all that concerns a node
  kubectl everynode explain node-3`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 {
				return nil
			}
			return console.ExactArgs(2, "a NodeJob and a node, or a node alone")(cmd, args)
		},
		ValidArgsFunction: f.CompleteJobOrNode,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			// With a node alone, the name of the NodeJob is "".
			if o.key, o.client, err = o.Target(strings.Join(args[:len(args)-1], "")); err != nil {
				return err
			}
			o.node = args[len(args)-1]
			return o.run(cmd.Context())
		},
	}
}

func (o *explainOptions) run(ctx context.Context) error {
	var job *v1alpha1.NodeJob
	if o.key.Name != "" {
		found, err := cmdutil.GetJob(ctx, o.client, o.key)
		if err != nil {
			return err
		}
		job = found
	}
	seen, err := readCluster(ctx, o.Factory, o.client, o.key.Namespace)
	if err != nil {
		return err
	}
	o.Tell(view.Warning(managerAway(ctx, o.client), term.Of(o.ErrOut, o.Getenv).Options().Width)...)
	i, err := nodeIndex(seen.Nodes, o.node)
	switch {
	case err != nil:
		return err
	case job == nil:
		if err := o.sayFreezes(seen, i); err != nil {
			return err
		}
		return o.all(ctx, seen, i)
	}
	e, err := o.explain(ctx, seen, job, i)
	if err != nil {
		return err
	}
	if err := o.sayFreezes(seen, i); err != nil {
		return err
	}
	if note := seen.limits[job.Namespace]; note != "" {
		o.Tell(text.Of(note))
	}
	return o.Say(e.Lines()...)
}

// sayFreezes prints the freezes that select the i-th node.
func (o *explainOptions) sayFreezes(seen clusterView, i int) error {
	found := cmdutil.FreezesOn(seen.Budgets, seen.Nodes[i:i+1], seen.Now)
	for k := range found {
		found[k].Node = seen.Nodes[i].Name
	}
	return sayFreezes(o.Factory, found)
}

// explain returns the explanation of a NodeJob for the i-th node.
func (o *explainOptions) explain(ctx context.Context, seen clusterView, job *v1alpha1.NodeJob, i int) (view.Explain, error) {
	if cmdutil.NotObserved(job) {
		return view.Explain{}, fmt.Errorf("NodeJob %s/%s: %w", job.Namespace, job.Name, cmdutil.ErrNotObserved)
	}
	in, p, err := planOf(ctx, o.client, seen.Cluster, job)
	if err != nil {
		return view.Explain{}, err
	}
	e := view.ExplainNode(in, p, i, o.Terminal().Options().Width)
	if i < len(p.Nodes) {
		one := in
		one.Nodes = in.Nodes[i : i+1]
		e.Exempt = cmdutil.ExemptOf(seen.Budgets, &one, p.Nodes[i:i+1])
	}
	return e, nil
}

// all prints a sentence for each NodeJob, and for each NodeGuard that holds or has released the node.
func (o *explainOptions) all(ctx context.Context, seen clusterView, i int) error {
	width := o.Terminal().Options().Width
	var told []explanation
	for _, job := range seen.Jobs {
		said := explanation{job: job, urgency: view.UrgencyUnknown}
		said.sentence = job.Namespace + "/" + job.Name + ": " + cmdutil.ErrNotObserved.Error()
		if !cmdutil.NotObserved(job) {
			e, err := o.explain(ctx, seen, job, i)
			switch {
			case cmdutil.CodeOf(err) == cmdutil.ExitForbidden:
				said.sentence = job.Namespace + "/" + job.Name + ": not known: " + err.Error()
			case err != nil:
				return err
			default:
				said.sentence, said.urgency = e.Sentence(), view.Urgency(e.State.State)
			}
		}
		told = append(told, said)
	}
	slices.SortFunc(told, explanation.compare)
	var lines []text.Line
	for _, said := range told {
		lines = append(lines, text.Wrap(nil, text.Plain, said.sentence, width)...)
	}
	o.tellScope(seen, len(told))
	var guards v1alpha1.NodeGuardList
	if err := o.client.List(ctx, &guards); err != nil {
		o.Tell(text.Of("could not check whether a NodeGuard holds the node: " + cmdutil.Explain(err).Error()))
	}
	lines = append(lines, view.Guards(guards.Items, &seen.Nodes[i], seen.Now, width)...)
	lines = append(lines, o.budgets(ctx, seen, i)...)
	if len(lines) == 0 {
		return nil
	}
	return o.Say(lines...)
}

// budgets says what the NodeDisruptionBudgets mean for the i-th node; nothing in a cluster without them.
func (o *explainOptions) budgets(ctx context.Context, seen clusterView, i int) []text.Line {
	if len(seen.Budgets) == 0 {
		return nil
	}
	b := cmdutil.BudgetsOn(seen.Budgets, &seen.Nodes[i], seen.Now)
	if err := cmdutil.ReadSeat(ctx, o.client, &b); err != nil {
		o.Tell(text.Of("could not read the seat of the node: " + cmdutil.Explain(err).Error()))
	}
	return b.Lines(o.Terminal().Options().Width)
}

// explanation is what is said about a NodeJob for a node.
type explanation struct {
	job      *v1alpha1.NodeJob
	urgency  int
	sentence string
}

// compare orders explanations: NodeJobs that failed on the node come first, and commands that were run once come last.
func (e explanation) compare(other explanation) int {
	later := map[bool]int{true: 1}
	return cmp.Or(later[cmdutil.IsRun(e.job)]-later[cmdutil.IsRun(other.job)], cmp.Compare(e.urgency, other.urgency),
		cmp.Compare(e.job.Namespace, other.job.Namespace), cmp.Compare(e.job.Name, other.job.Name))
}

// tellScope prints which NodeJobs are meant if this is not obvious.
func (o *explainOptions) tellScope(seen clusterView, jobs int) {
	where := "this cluster"
	if seen.namespaced != nil {
		where = "namespace " + o.key.Namespace
		o.Tell(text.Of("only NodeJobs of " + where + " are considered: " + seen.namespaced.Error()))
	}
	for _, namespace := range slices.Sorted(maps.Keys(seen.limits)) {
		if note := seen.limits[namespace]; note != "" {
			o.Tell(text.Of(note))
		}
	}
	if jobs == 0 {
		o.Tell(text.Of("there is no NodeJob in " + where))
	}
}
