// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"math/rand"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// A kubelet reports the end of a container, with its exit code and outcome, before the end of the pod. In this gap the
// outcome can be recorded already, and everything can happen to the pod.

// gap is what a history knows about it.
type gap struct {
	// gaps is true if kubelets report the end of a container first.
	gaps bool
	// odds decides what happens in gaps, so that histories without gaps do not change.
	odds *rand.Rand
}

// newGap gives every second history gaps, except those that are kept because of another reason.
func newGap(seed int64) gap {
	odds := rand.New(rand.NewSource(seed + 1<<43))
	return gap{gaps: odds.Intn(2) == 0 && !slices.Contains(kept, seed) || slices.Contains(keptGaps, seed), odds: odds}
}

// keptGaps are kept histories with gaps.
var keptGaps = []int64{}

// inGap reports whether the container of a pod has ended, and its phase does not say so.
func inGap(pod *simPod) bool { return pod.inGap && !over(&pod.Pod) }

// openGap reports the end of the container of a pod without the end of the pod, in some cases.
func (h *history) openGap(pod *simPod) {
	if !h.gaps || pod.Runs == task.Reboot || h.odds.Intn(4) == 0 {
		return
	}
	h.say("and the phase of the pod does not say so yet")
	pod.inGap, pod.Concluded, pod.finally, pod.Phase = true, true, pod.Phase, corev1.PodRunning
}

// closeGap is what a kubelet does with a pod whose container has ended.
func (h *history) closeGap(pod *simPod, node *Node) {
	luck := 9
	if h.faults {
		luck = h.odds.Intn(12)
	}
	switch {
	case luck < 4:
		return // it takes its time
	case luck == 4 && pod.Concluded:
		h.say("the kubelet of %s has forgotten how %s ended", node.Name, pod.Name)
		pod.hidden, pod.Exit, pod.Concluded = pod.Exit, nil, false
		return
	case pod.hidden != nil:
		pod.remember()
		return
	case luck == 5:
		pod.Disrupted, pod.DisruptedReason = h.by(node), "TerminationByKubelet"
		h.end(pod, corev1.PodFailed, nil, "is evicted at last")
	case luck == 6:
		pod.PastDeadline = true
		h.end(pod, corev1.PodFailed, nil, "is past its deadline at last")
	case luck == 7 && pod.recorded:
		h.end(pod, corev1.PodFailed, nil, "is lost at last")
		pod.Exit, pod.Concluded = &Exit{Code: 137, Lost: true}, false
	default:
		h.end(pod, pod.finally, nil, "at last")
	}
}

// remember restores what a kubelet had forgotten.
func (pod *simPod) remember() {
	if pod.hidden != nil {
		pod.Exit, pod.Concluded, pod.hidden = pod.hidden, true, nil
	}
}

// says reports whether the record of a node is that of a pod.
func says(node *Node, pod *simPod) bool {
	rec := node.On.Record
	return rec != nil && (rec.PodUID == pod.UID || rec.Rollback != nil && rec.Rollback.PodUID == pod.UID)
}

// checkRecordedOnce checks that what is on record of a pod is not recorded again from a later status of it.
func (h *history) checkRecordedOnce(node *Node, pod *simPod) {
	switch {
	case !pod.recorded || h.isBad(node):
	case says(node, pod):
		h.break_("rule 2", "pod %s is recorded a second time", pod.Name)
	case h.recordedOn[pod.UID] == node.UID:
		h.break_("retry", "pod %s is recorded again on %s after its record was removed", pod.Name, node.Name)
	}
}

// releaseQueued releases pods in the background, some of them much later.
func (h *history) releaseQueued() {
	for _, uid := range slices.Sorted(maps.Keys(h.queued)) {
		if !h.faults || h.odds.Intn(3) == 0 {
			h.say("pod %s is released in the background", h.queued[uid].Name)
			h.release(h.queued[uid])
		}
	}
}

// checkAwaited checks that no node waits for a pod that is released in the background.
func (h *history) checkAwaited(p Plan) {
	waits := map[string]bool{}
	for i := range p.Nodes {
		node := h.cache.nodes[p.Nodes[i].Name]
		waits[node.Name] = p.Nodes[i].Reason == v1alpha1.ReasonPodTerminating || h.reboots(&node)
	}
	for _, action := range p.Actions {
		if a, ok := action.(FinalizePod); ok && !a.Awaited && (waits[a.Pod.NodeName] || h.deleting()) {
			h.break_("rule 2", "pod %s is released in the background, and %s waits for it", a.Pod.Name, a.Pod.NodeName)
		}
	}
}

// checkEnded checks that a pod is not deleted before its kubelet has ended it, if nothing is wrong with the kubelet.
func (h *history) checkEnded(pod *simPod) {
	node := h.nodes[pod.NodeName]
	seen := h.cache.nodes[pod.NodeName]
	waits := inGap(pod) && pod.recordedInGap && h.told.Before(pod.recordedAt.Add(time.Minute))
	if waits && node != nil && seen.UID == node.UID && says(&seen, pod) && !h.deleting() && !h.isBad(node) {
		h.break_("rule 2", "pod %s is released before it has ended", pod.Name)
	}
}
