// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// TestPodsThatTheManagerCouldNotEvict checks that a plan of the command line knows what blocks a drain, although only the manager
// requests evictions.
func TestPodsThatTheManagerCouldNotEvict(t *testing.T) {
	job := &v1alpha1.NodeJob{}
	blocked := []v1alpha1.BlockedPod{{Pod: "shop/web-0", Message: "a budget"}}
	job.Status.Drains = []v1alpha1.NodeDrain{
		{Node: "other", Blocked: []v1alpha1.BlockedPod{{Pod: "shop/web-1"}}},
		{Node: "n", Blocked: blocked},
	}
	pods := []plan.DrainPod{{Namespace: "shop", Name: "web-0"}, {Namespace: "shop", Name: "web-1"}, {Namespace: "blog", Name: "web-0"}}
	noteBlocked(job, "n", pods)
	want := []plan.DrainPod{
		{Namespace: "shop", Name: "web-0", Blocked: "a budget"},
		{Namespace: "shop", Name: "web-1"},
		{Namespace: "blog", Name: "web-0"},
	}
	if diff := cmp.Diff(want, pods); diff != "" {
		t.Error(diff)
	}
}
