// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"time"
)

// A NodeJob of the same name was deleted before, and its last pods have not ended.

// earlierPods are the nodes on which these pods are, and since when they should have ended.
type earlierPods map[string]time.Time

// someEarlier leaves pods of an earlier NodeJob on nodes in every ninth history, so that the others do not change.
func (h *history) someEarlier(seed int64) {
	if (seed%9+9)%9 == 5 {
		h.earlierPods = earlierPods{"n0": h.now, "n3": h.now.Add(20 * time.Second)}
	}
}

// endEarlier ends the pods of the earlier NodeJob sooner or later.
func (h *history) endEarlier() {
	for _, name := range sortedKeys(h.earlierPods) {
		if !h.faults || h.more.Intn(12) == 0 {
			h.say("the pod of an earlier NodeJob on %s ends", name)
			delete(h.earlierPods, name)
		}
	}
}

// busyWithEarlier are the nodes that the manager observes these pods on.
func (h *history) busyWithEarlier() map[string]time.Time { return maps.Clone(h.earlierPods) }

// checkEarlier checks that nothing starts beside a pod of an earlier NodeJob.
func (h *history) checkEarlier(node string) {
	if _, there := h.earlierPods[node]; there {
		h.break_("rule 1", "%s starts beside a pod of an earlier NodeJob", node)
	}
}

// delayedByEarlier reports whether such a pod has kept a node waiting for nearly as long as the deadline, or longer.
func (h *history) delayedByEarlier(node string, deadline time.Duration) bool {
	since, there := h.earlierPods[node]
	return there && !h.now.Before(since.Add(deadline))
}
