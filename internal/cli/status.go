// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/eta"
	"github.com/everynode/everynode/internal/ui/view"
)

type statusOptions struct {
	*console.Factory
	key     client.ObjectKey
	watch   bool
	timeout time.Duration
	output  string
	// results adds the results to the table of nodes.
	results bool
	client  client.WithWatch
	// nodes and budgets are what the last estimate was made from, at estimatedAt. They are read again after estimateEvery.
	nodes       []metav1.PartialObjectMetadata
	budgets     []*v1alpha1.NodeDisruptionBudget
	estimatedAt time.Time
	// rows are the nodes of the tree, which were read at readAt within readFor, and notSelected the number of other nodes.
	rows        []view.NodeRow
	notSelected int
	// exempt are the matching nodes that join.
	exempt  []budget.Exempt
	readAt  time.Time
	readFor time.Duration
}

// estimateEvery is how often the nodes are read for the estimate of a rollout that is followed.
const estimateEvery = time.Minute

func newStatusCommand(f *console.Factory) *cobra.Command {
	o := &statusOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show how far a NodeJob is, what runs, what failed, what it waits for",
		Long: `Show how far a NodeJob is: its steps, what runs, what failed with the last lines that it printed, what it waits for
and until when.

With --watch, it continues until the NodeJob is complete (exit code 0), waits for a user (9: it awaits promotion, is suspended,
or matches no node), is Stalled (10), or was deleted (12; 0 if its deletion had begun before). On a terminal, the view is updated
in place; otherwise it prints one line for each change.`,
		Example: `  kubectl everynode status max-map-count -n node-setup

  # each node, with what the task found there
  kubectl everynode status max-map-count -n node-setup -o wide --results

  # until it is done, in a script
  kubectl everynode status max-map-count -n node-setup --watch --timeout 30m`,
		Args:              console.ExactArgs(1, "the name of a NodeJob (to list all: kubectl everynode list)"),
		ValidArgsFunction: f.CompleteJobs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.key, o.client, err = o.Target(args[0]); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "continue until it is complete, does not continue without help, or is deleted")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "with --watch: end with exit code 11 after this long; 0 for never")
	cmd.Flags().BoolVar(&o.results, "results", false, "with -o wide: add the results that the task wrote on each node")
	console.AddOutputFlag(cmd, &o.output, console.OutputWide, console.OutputName, console.OutputJSON, console.OutputYAML)
	return cmd
}

func (o *statusOptions) validate() error {
	if o.timeout < 0 || (o.timeout > 0 && !o.watch) {
		return cmdutil.Failf(cmdutil.ExitUsage, "--timeout is for --watch, and not below 0")
	}
	if o.results && (o.output != console.OutputWide || o.watch) {
		return cmdutil.Failf(cmdutil.ExitUsage, "--results is for the table of nodes: add -o wide, and leave out --watch")
	}
	return nil
}

func (o *statusOptions) run(ctx context.Context) error {
	job, err := cmdutil.GetJob(ctx, o.client, o.key)
	switch {
	case err != nil:
		return err
	case o.watch:
		return o.follow(ctx, job)
	case o.forPrograms():
		return o.PrintObject(o.output, job)
	}
	shown, err := o.view(ctx, job, true)
	if o.output != console.OutputWide || cmdutil.NotObserved(job) {
		return o.Say(shown.Lines()...)
	}
	if err != nil {
		return err
	}
	shown.NotSelected = o.notSelected
	table := view.NodeTable(o.Now(), job.Status.Revision, o.rows, o.results)
	return o.Say(append(append(shown.Lines(), nil), table...)...)
}

// readTree reads the nodes of the tree, and the pods of the NodeJob. Without the permission to read nodes, or what their states follow
// from, there are none, and only the pods that have not ended are read.
func (o *statusOptions) readTree(ctx context.Context, job *v1alpha1.NodeJob) (pods []corev1.Pod, podsErr, err error) {
	o.rows, o.notSelected, o.exempt, o.readAt = nil, 0, nil, o.Now()
	defer func() { o.readFor = o.Now().Sub(o.readAt) }()
	seen, err := readCluster(ctx, o.Factory, o.client, o.key.Namespace)
	if err != nil {
		pods, podsErr = cmdutil.PodsNamed(ctx, o.client, job, cmdutil.NotEnded)
		return pods, podsErr, err
	}
	if pods, podsErr = cmdutil.PodsNamed(ctx, o.client, job); podsErr != nil {
		return nil, podsErr, podsErr
	}
	in := seen.Input(job, pods)
	in, p, err := cmdutil.PlanDrains(ctx, o.client, in, plan.Next(in))
	if err == nil {
		o.rows, o.notSelected = view.NodeRows(in, p), view.NotSelected(p.Nodes)
		o.exempt = cmdutil.ExemptOf(seen.Budgets, &in, p.Nodes)
	}
	return pods, nil, err
}

func (o *statusOptions) forPrograms() bool {
	return o.output != console.OutputPeople && o.output != console.OutputWide
}

// view creates a view of a NodeJob. If its pods or nodes cannot be read, the rest is still shown. The nodes of the tree are read if tree
// is true. Otherwise, they are as they were read last.
func (o *statusOptions) view(ctx context.Context, job *v1alpha1.NodeJob, tree bool) (_ view.Status, err error) {
	s := view.Status{Job: job, Now: o.Now(), Width: o.Terminal().Options().Width, Unicode: o.Terminal().Unicode, All: o.output == console.OutputWide}
	var pods []corev1.Pod
	var podsErr error
	if tree && !cmdutil.NotObserved(job) {
		pods, podsErr, err = o.readTree(ctx, job)
	} else {
		pods, podsErr = cmdutil.PodsNamed(ctx, o.client, job, cmdutil.NotEnded)
	}
	if podsErr != nil {
		s.RunningUnknown = "what runs cannot be seen: " + cmdutil.Explain(podsErr).Error()
	}
	s.Rows, s.Exempt, s.Running = o.rows, o.exempt, cmdutil.Attempts(job, pods)
	s.NoManager = managerAway(ctx, o.client)
	s.Freezes = freezes(ctx, o.Factory, o.client)
	s.Estimate = o.estimate(ctx, job)
	return s, err
}

// estimate returns when the rollout ends; nil if that cannot be estimated, or the user may not read nodes or budgets.
func (o *statusOptions) estimate(ctx context.Context, job *v1alpha1.NodeJob) *eta.Estimate {
	if !cmdutil.CanEstimate(job) {
		return nil
	}
	if now := o.Now(); o.estimatedAt.IsZero() || now.Sub(o.estimatedAt) >= estimateEvery {
		o.nodes, o.estimatedAt = nil, now
		err := cmdutil.EachNode(ctx, o.client, func(node *metav1.PartialObjectMetadata) { o.nodes = append(o.nodes, *node) })
		budgets, budgetsErr := cmdutil.ListBudgets(ctx, o.client)
		noBudgets := cmdutil.IsUnreadable(budgetsErr) && cmdutil.CodeOf(budgetsErr) != cmdutil.ExitForbidden
		if err != nil || budgetsErr != nil && !noBudgets {
			o.nodes = nil
		}
		o.budgets = nil
		for i := range budgets {
			o.budgets = append(o.budgets, &budgets[i])
		}
	}
	return cmdutil.Estimate(job, o.budgets, o.nodes, o.Now())
}
