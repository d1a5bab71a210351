// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// resultReader returns what is shown of the record of a node; false for nothing.
type resultReader func(node string, labels map[string]string, rec *record.Record) (view.NodeResult, bool)

// lastResult reads the last attempt, of any revision.
func lastResult(node string, labels map[string]string, rec *record.Record) (view.NodeResult, bool) {
	return view.ResultOf(node, labels, rec), true
}

// previousResult reads the last attempt of the revision before this one.
func previousResult(revision string) resultReader {
	return func(node string, labels map[string]string, rec *record.Record) (view.NodeResult, bool) {
		return view.PreviousResultOf(node, labels, rec, revision)
	}
}

// shown returns which results the options select.
func (o *resultsOptions) shown(job *v1alpha1.NodeJob) resultReader {
	revision := job.Status.Revision
	switch {
	case o.previous:
		return previousResult(revision)
	case o.diffPrevious: // only attempts of the current revision, if it is known
		return func(node string, labels map[string]string, rec *record.Record) (view.NodeResult, bool) {
			return view.ResultOf(node, labels, rec), rec.Revision == revision || revision == ""
		}
	}
	return lastResult
}

// validatePrevious rejects options that do not apply to the previous revision.
func (o *resultsOptions) validatePrevious() error {
	switch {
	case o.previous && (o.diff != "" || o.diffPrevious):
		return cmdutil.Failf(cmdutil.ExitUsage, "--previous shows the results of one revision: leave it out to compare")
	case o.previous && o.output == outputJUnit:
		return cmdutil.Failf(cmdutil.ExitUsage, "-o %s is a report on the current revision: leave out --previous", outputJUnit)
	case o.diffPrevious && o.by != "":
		return cmdutil.Failf(cmdutil.ExitUsage, "--by groups the results of one revision: leave it out with --diff-previous")
	case o.diffPrevious:
		return o.validateDiffOutput("--diff-previous")
	}
	return nil
}

// runDiffPrevious compares the results of the current revision with those of the revision before.
func (o *resultsOptions) runDiffPrevious(ctx context.Context, c client.Reader, job *v1alpha1.NodeJob, nodes []view.NodeResult) error {
	others, err := nodeResults(ctx, c, v1alpha1.RecordKey(job.Namespace, job.Name), previousResult(job.Status.Revision))
	if err != nil {
		return err
	}
	if len(others) == 0 {
		return cmdutil.Failf(cmdutil.ExitNotFound, "%s", o.noPrevious())
	}
	return o.showDiff(difference{name: "CURRENT", other: "PREVIOUS", both: "the current and the previous revision"}, nodes, others)
}

func (o *resultsOptions) noPrevious() string {
	return fmt.Sprintf("no node has results of an earlier revision of NodeJob %s/%s", o.namespace, o.name)
}
