// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// AtOnce returns on how many of the matching nodes the NodeJob itself allows runs at the same time: at least one.
func AtOnce(nodeJob *v1alpha1.NodeJob, matched int) int {
	p := &policy{in: Input{Job: nodeJob}}
	if slots := maxConcurrent(nodeJob.Spec.Rollout, matched); !p.disrupts() || slots < p.maxUnavailable(matched) {
		return slots
	}
	return p.maxUnavailable(matched)
}

// LongestRun returns how long the first run on a node can take by its own time limits, with all retries.
func LongestRun(nodeJob *v1alpha1.NodeJob) time.Duration {
	p := &policy{in: Input{Job: nodeJob}}
	longest, _ := p.longestRun(1)
	return longest
}
