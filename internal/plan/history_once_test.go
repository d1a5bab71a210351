// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

// This file defines what a history knows about pods that are retained for their logs.

// someOnce lets only every fifth history retain its pods for a while, so that the other histories do not change.
func (h *history) someOnce(seed int64) {
	if (seed%5+5)%5 == 4 {
		h.job.Spec.RetainPodsSeconds = 30
	}
}

// keep releases a pod and retains it.
func (h *history) keep(pod Pod) {
	live := h.pods[pod.Name]
	if live == nil || live.UID != pod.UID {
		return
	}
	h.checkRelease(pod)
	if h.job.Spec.RetainPodsSeconds == 0 || !h.job.DeletionTimestamp.IsZero() {
		h.break_("retainPodsSeconds", "pod %s is retained", pod.Name)
	}
	h.say("pod %s is retained", pod.Name)
	live.Finalized, live.Recorded, live.released = false, true, true
	h.cache.pods[pod.Name] = live.Pod
}
