// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/plan"
)

// viewPod returns the pod as the plan reads it, including our own writes that the cache may not show yet.
func viewPod(pod seenPod) plan.Pod {
	view := observe.Pod(pod.Pod)
	view.RecordedOn = pod.recordedOn
	view.Finalized = view.Finalized && !pod.finalized
	if pod.DeletionTimestamp == nil {
		view.DeleteRequested = pod.stopped
	}
	return view
}
