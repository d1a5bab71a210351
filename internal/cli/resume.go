// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
)

func newResumeCommand(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "resume NAME…",
		Short: "Resume NodeJobs after suspend or abort",
		Long: `Resume NodeJobs after suspend or abort by setting spec.suspend to false. If spec.startingDeadlineSeconds has passed,
it is extended so that attempts can start for one more hour.`,
		Example:           "  kubectl everynode resume somaxconn -n node-setup",
		Args:              cmdutil.AtLeastOneArg("the names of one or more NodeJobs"),
		ValidArgsFunction: f.CompleteSeveralJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachJob(cmd.Context(), f, args, func(ctx context.Context, m *mutation) error {
				return m.change(ctx, func(job *v1alpha1.NodeJob) (decision, error) { return resume(job, f.Now()) })
			})
		},
	}
}

// untilResumed says that a suspended NodeJob starts nothing; "" if it is not suspended.
func untilResumed(job *v1alpha1.NodeJob) string {
	if !job.Spec.Suspend {
		return ""
	}
	return fmt.Sprintf("The NodeJob is suspended. Nothing starts until: kubectl everynode resume %s -n %s", job.Name, job.Namespace)
}

// moreTime is the additional time that resume gives a NodeJob whose startingDeadlineSeconds has passed.
const moreTime = time.Hour

func resume(job *v1alpha1.NodeJob, now time.Time) (decision, error) {
	age := now.Sub(job.CreationTimestamp.Time)
	late := job.Spec.StartingDeadlineSeconds != nil && age >= time.Duration(*job.Spec.StartingDeadlineSeconds)*time.Second
	if !job.Spec.Suspend && !late {
		return decision{nothing: "it is not suspended"}, nil
	}
	var d decision
	if job.Spec.Suspend {
		job.Spec.Suspend = false
		d = decision{did: "resumed: spec.suspend true -> false", commit: "spec.suspend: false"}
	}
	if late {
		before := *job.Spec.StartingDeadlineSeconds
		after := int32((age + moreTime) / time.Second)
		job.Spec.StartingDeadlineSeconds = &after
		more := fmt.Sprintf("spec.startingDeadlineSeconds %d -> %d", before, after)
		if d.did == "" {
			d = decision{did: "resumed: " + more, commit: fmt.Sprintf("spec.startingDeadlineSeconds: %d", after)}
		} else {
			d.did, d.commit = d.did+", "+more, fmt.Sprintf("%s, spec.startingDeadlineSeconds: %d", d.commit, after)
		}
	}
	return d, nil
}
