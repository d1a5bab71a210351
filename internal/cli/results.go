// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

type resultsOptions struct {
	*console.Factory
	name, namespace string
	by, output      string
}

const outputCSV = "csv"

func newResultsCommand(f *console.Factory) *cobra.Command {
	o := &resultsOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "results NAME",
		Short: "Show what the task found on each node",
		Long: `Show the results that the task wrote to $EVERYNODE_RESULTS on each node, from the records on the nodes: a row for each
node, or with --by the nodes with the same value of a result, of outcome, exitCode or revision, or of a label.`,
		Example: `  kubectl everynode results max-map-count -n node-setup

  # how many nodes have which kernel
  kubectl everynode results node-facts -n node-setup --by kernel

  # for a spreadsheet
  kubectl everynode results node-facts -n node-setup -o csv > facts.csv`,
		Args:              console.ExactArgs(1, "a NodeJob"),
		ValidArgsFunction: f.CompleteJobs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.name = args[0]
			if o.namespace, err = o.Namespace(); err != nil {
				return err
			}
			if o.by != "" && o.output != console.OutputPeople && o.output != console.OutputWide {
				return cmdutil.Failf(cmdutil.ExitUsage, "--by is for the table: leave it out with -o %s", o.output)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.by, "by", "", "group the nodes by a result, by outcome, exitCode or revision, or by a label")
	console.AddOutputFlag(cmd, &o.output, console.OutputWide, outputCSV, console.OutputJSON)
	return cmd
}

func (o *resultsOptions) run(ctx context.Context) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	job, err := cmdutil.GetJob(ctx, c, client.ObjectKey{Namespace: o.namespace, Name: o.name})
	if err != nil {
		return err
	}
	found := view.Results{Revision: job.Status.Revision, Now: o.Now()}
	key := v1alpha1.RecordKey(job.Namespace, job.Name)
	if found.Nodes, err = nodeResults(ctx, c, key); err != nil {
		return err
	}
	return o.show(found)
}

// show prints the results in the selected format.
func (o *resultsOptions) show(found view.Results) error {
	switch {
	case o.output == console.OutputJSON:
		return o.PrintData(o.output, found.Nodes)
	case o.output == outputCSV:
		return o.printCSV(found)
	case len(found.Nodes) == 0:
		o.Tell(text.Of(fmt.Sprintf("no node has a record of NodeJob %s/%s yet; what it does: kubectl everynode status %s -n %s", o.namespace, o.name, o.name, o.namespace)))
		return nil
	case o.by == "":
		return o.Say(found.Lines()...)
	case !found.Has(o.by):
		return cmdutil.Failf(cmdutil.ExitNotFound, "no node has the result or the label %s; the results are %s", o.by, cmp.Or(strings.Join(found.Keys(), ", "), "none"))
	}
	return o.Say(found.Grouped(o.by, o.output == console.OutputWide)...)
}

// nodeResults reads the records under a key from all nodes, by name.
func nodeResults(ctx context.Context, c client.Reader, key string) ([]view.NodeResult, error) {
	results := []view.NodeResult{}
	err := cmdutil.EachNode(ctx, c, func(node *metav1.PartialObjectMetadata) {
		if rec := record.Read(node.Labels, node.Annotations, key).Record; rec != nil {
			results = append(results, view.ResultOf(node.Name, node.Labels, rec))
		}
	})
	slices.SortFunc(results, func(a, b view.NodeResult) int { return cmp.Compare(a.Node, b.Node) })
	return results, err
}

// printCSV writes the table as RFC 4180 has it.
func (o *resultsOptions) printCSV(found view.Results) error {
	return printCSV(o.Out, found.Table())
}

func printCSV(out io.Writer, rows [][]string) error {
	for _, row := range rows {
		for i := range row {
			row[i] = spreadsheetCell(row[i])
		}
	}
	if err := csv.NewWriter(out).WriteAll(rows); err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	return nil
}

// spreadsheetCell returns a value that a spreadsheet does not take for a formula: results are text from nodes. Control
// characters are escaped.
func spreadsheetCell(s string) string {
	s = text.Safe(s)
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}
