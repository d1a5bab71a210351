// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

type reportOptions struct {
	*console.Factory
	name, namespace string
	by, output      string
	fail            bool
}

// shortLabels are what --by also accepts instead of the key of a label. A node is in the group of the first of the labels that it has.
var shortLabels = map[string][]string{
	"zone":   {corev1.LabelTopologyZone},
	"region": {corev1.LabelTopologyRegion},
	// The labels of node pools that the documentation of each platform names.
	"pool": {
		"karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool", "kubernetes.azure.com/agentpool",
		"doks.digitalocean.com/node-pool", "node.openshift.io/nodepool",
	},
}

func newReportCommand(f *console.Factory) *cobra.Command {
	o := &reportOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "report NAME",
		Short: "Show on which nodes task.check says yes",
		Long: `Show the last answer of task.check on each selected node, from the records on the nodes: how many nodes are compliant, and
which are not, since when and why. With --by the nodes are counted by zone, region, pool or a label.

  Compliant     the check has answered yes (exit code 0)
  NonCompliant  it has answered no (1), and has not answered yes since
  Error         the check itself fails (another exit code, or a timeout)
  NotAsked      there is no answer yet
  Expired       the task is no longer needed (spec.expires): the node is not counted

With --fail, the exit code is 8 unless all nodes are compliant.`,
		Example: `  kubectl everynode report sshd-config -n node-setup

  # by zone
  kubectl everynode report sshd-config -n node-setup --by zone

  # for a spreadsheet
  kubectl everynode report sshd-config -n node-setup -o csv > report.csv

  # for a CI system: the exit code is 8 unless all nodes are compliant
  kubectl everynode report sshd-config -n node-setup --fail`,
		Args:              console.ExactArgs(1, "a NodeJob"),
		ValidArgsFunction: f.CompleteJobs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.name = args[0]
			if o.namespace, err = o.Namespace(); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.by, "by", "", "count the nodes by zone, region, pool, or by the key of a label")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"zone", "region", "pool"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVar(&o.fail, "fail", false, "end with the exit code 8 unless all nodes are compliant")
	console.AddOutputFlag(cmd, &o.output, console.OutputWide, outputCSV, console.OutputJSON)
	return cmd
}

func (o *reportOptions) validate() error {
	if problems := validation.IsQualifiedName(o.by); o.by != "" && len(problems) > 0 {
		return cmdutil.Failf(cmdutil.ExitUsage, "--by is not the key of a label: %s. Write zone, region, pool, or a key such as %s",
			strings.Join(problems, "; "), corev1.LabelArchStable)
	}
	return nil
}

func (o *reportOptions) run(ctx context.Context) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	job, err := cmdutil.GetJob(ctx, c, client.ObjectKey{Namespace: o.namespace, Name: o.name})
	if err != nil {
		return err
	}
	if job.Spec.Task.Check == nil {
		return cmdutil.Failf(cmdutil.ExitUsage, "NodeJob %s/%s has no spec.task.check, so there is nothing to report. What its task has found: kubectl everynode results %s -n %s",
			o.namespace, o.name, o.name, o.namespace)
	}
	seen, err := readCluster(ctx, o.Factory, c, o.namespace)
	if err != nil {
		return err
	}
	in := seen.Input(job, nil) // answers are in the records
	found := view.ComplianceOf(in, plan.Next(in), o.labels())
	if err := o.show(found); err != nil {
		return err
	}
	if o.fail && found.Total.Compliant < found.Total.Needed() {
		return cmdutil.Exit(cmdutil.ExitNonCompliant)
	}
	return nil
}

// labels are the keys of the labels by which nodes are counted.
func (o *reportOptions) labels() []string {
	switch short := shortLabels[o.by]; {
	case short != nil:
		return short
	case o.by == "":
		return nil
	}
	return []string{o.by}
}

func (o *reportOptions) show(found view.Compliance) error {
	switch {
	case o.output == console.OutputJSON:
		return o.PrintData(o.output, found)
	case o.output == outputCSV:
		return printCSV(o.Out, found.Table(o.by))
	case len(found.Nodes) == 0:
		o.Tell(text.Of(fmt.Sprintf("NodeJob %s selects no node; why: kubectl everynode status %s -n %s -o wide", found.NodeJob, o.name, o.namespace)))
		return nil
	}
	return o.Say(found.Lines(o.by, o.Now(), o.output == console.OutputWide)...)
}
