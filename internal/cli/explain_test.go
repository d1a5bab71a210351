// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// TestTheOrderOfExplanations checks that a NodeJob that failed on the node is not hidden among those that are not for it.
func TestTheOrderOfExplanations(t *testing.T) {
	var told []explanation
	for name, state := range map[string]plan.State{"a-done": plan.Done, "b-excluded": plan.Excluded, "c-failed": plan.Failed, "d-failed": plan.Failed, "e-waits": plan.Waiting, "f-runs": plan.Running, "a-run": plan.Failed} {
		job := clitest.NodeJob(name)
		if name == "a-run" {
			job.Labels = map[string]string{cmdutil.CreatedByLabel: cmdutil.CreatedByRun}
		}
		told = append(told, explanation{job: job, urgency: view.Urgency(state)})
	}
	told = append(told, explanation{job: clitest.NodeJob("g-not-observed"), urgency: view.UrgencyUnknown})
	slices.SortFunc(told, explanation.compare)
	var names []string
	for _, e := range told {
		names = append(names, e.job.Name)
	}
	want := []string{"c-failed", "d-failed", "f-runs", "e-waits", "g-not-observed", "a-done", "b-excluded", "a-run"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
