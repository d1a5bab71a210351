// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// What a history does with the actions of a plan.

func (h *history) do(action Action) {
	defer h.about(h.target(action))()
	switch a := action.(type) {
	case Start:
		h.start(a)
	case Record:
		h.record(a)
	case PatchNode:
		h.mark(a)
	case Evict:
		h.evict(a)
	case Claim:
		h.claim(a)
	case Stop:
		h.say("pod %s is stopped (%s)", a.Pod.Name, a.Reason)
		if pod := h.pods[a.Pod.Name]; pod != nil && pod.DeleteRequested.IsZero() {
			pod.DeleteRequested = h.now
			seen, known := h.cache.pods[pod.Name]
			if h.isMade(pod) {
				seen, known = pod.Pod, true
			}
			if seen.DeleteRequested = h.now; known { // of a pod that was changed meanwhile, the manager sees nothing new
				h.cache.pods[pod.Name] = seen
			}
		}
	case FinalizePod:
		if made := h.made[a.Pod.UID]; a.Unrecorded && made != nil {
			h.trouble(
				a.Pod.NodeUID,
				v1alpha1.ReasonPodForceDeleted,
				"pod "+a.Pod.Name+" says that it is recorded",
				10*time.Second,
				300*time.Second,
			)
		}
		h.releaseInTime(a.Pod, a.Awaited)
	case RetainPod:
		h.keep(a.Pod)
	case CleanUpNode:
		h.forget(a)
	case RemoveFinalizer:
		h.finish()
	default:
		h.break_("closed set of actions", "%T was not expected", action)
	}
}

// target is the node that an action changes.
func (h *history) target(action Action) *Node {
	switch a := action.(type) {
	case Start:
		return h.nodes[a.Attempt.NodeName]
	case Record:
		return h.nodes[a.Node]
	case PatchNode:
		return h.nodes[a.Node]
	case Evict:
		return h.nodes[a.Node]
	case Claim:
		return h.nodes[a.Node]
	case CleanUpNode:
		return h.nodes[a.Node]
	case FinalizePod:
		return h.nodes[a.Pod.NodeName]
	case RetainPod:
		return h.nodes[a.Pod.NodeName]
	}
	return nil
}

func (h *history) start(a Start) {
	name := task.PodName(h.key, h.job, a.Attempt)
	if other := h.pods[name]; other != nil && !h.isMade(other) {
		h.say("pod %s, which was changed by another client, still exists, and is deleted", name)
		h.removeOther(other)
		h.trouble(a.Attempt.NodeUID, v1alpha1.ReasonPodNameTaken, "the name of the pod is taken", time.Second, 15*time.Second)
		return
	}
	if h.pods[name] != nil || h.forged[name] != nil {
		h.break_("rule 1", "pod %s is made a second time", name)
		return
	}
	if !h.mayBeMade(a.Attempt) {
		return
	}
	h.checkStart(a.Attempt)
	h.say("%s %d of %s starts on %s", a.Attempt.Phase, a.Attempt.Number, a.Attempt.Revision, a.Attempt.NodeName)
	willSucceed := h.rng.Intn(3) > 0 || !h.faults
	raw := task.Pod(h.job, task.Source{}, a.Attempt, task.Options{Key: h.key})
	raw.UID = h.nextUID("pod")
	pod := &simPod{
		willSucceed: willSucceed,
		Pod:         metadataOf(raw),
		raw:         raw,
		leaves:      a.Attempt.BootID,
		machine:     a.Attempt.MachineID,
		boot:        a.Attempt.BootID,
	}
	pod.Created, pod.Finalized, pod.Phase = h.now, true, corev1.PodPending
	h.made[pod.UID] = pod
	pod.asked, pod.disrupts = h.job.Spec.Maintenance.Reboot.Policy, h.disrupts()
	h.pods[name], h.cache.pods[name] = pod, pod.Pod
	h.untroubled(a.Attempt.NodeUID, v1alpha1.ReasonPodNameTaken, v1alpha1.ReasonPodForbidden)
	h.begins(a.Attempt)
	h.noteBegin(a.Attempt.NodeUID, a.Attempt.Phase)
	h.started(a.Attempt)
}

// real is the node that a write changes; nil if it was deleted or replaced.
func (h *history) real(name string, uid types.UID) *Node {
	if node := h.nodes[name]; node != nil && node.UID == uid {
		return node
	}
	return nil
}

func (h *history) record(a Record) {
	node := h.real(a.Node, a.UID)
	if node == nil {
		h.say("%s no longer exists, so nothing is recorded", a.Node)
		return
	}
	if h.isFull(node) {
		return
	}
	before := *node
	if !h.change(node, a.Change) {
		return
	}
	decoded, err := record.Decode(record.Encode(*a.Record))
	if err != nil {
		h.break_("record", "%v", err)
		return
	}
	h.say("recorded on %s: %s", a.Node, tell(a))
	h.checkRecord(node, a)
	switch {
	case a.KeepLabel:
	case decoded.Outcome == record.Succeeded:
		node.On.Label = decoded.Revision
		delete(h.bare, node.UID)
		delete(h.declared, node.UID)
	case a.DropLabel:
		node.On.Label = ""
	}
	h.write(node, &decoded)
	h.endBudget(node)
	h.checkChange(&before, node, a.Change)
	h.noteEnd(node.UID, a.Record.Revision, a.Record.Retry)
	if a.KeepLabel && node.On.Label == "" {
		h.ask(node) // the user has removed the label meanwhile to request a rerun
	}
	h.checkWish(&before, node)
	if pod := h.made[a.Pod.UID]; pod != nil {
		h.checkRecordedOnce(&before, pod)
		pod.recorded, pod.recordedInGap, pod.recordedAt = true, a.Pod.Concluded && !over(&a.Pod), h.told
		h.recordedOn[pod.UID] = node.UID
		h.noteBegin(node.UID, pod.Runs)
	}
	switch let := !h.faults || h.rng.Intn(6) > 0; {
	case a.Ending:
	case let && a.Retain:
		h.keep(a.Pod)
	case let:
		h.releaseInTime(a.Pod, false)
	}
}

func (h *history) write(node *Node, rec *record.Record) {
	node.On.Record, node.On.Present, node.On.Altered = rec, rec != nil || node.On.Label != "", false
	node.On.Sealed = rec != nil
	if h.isBad(node) {
		h.sealed = rec
	}
	h.changed(node)
	h.wrote(node)
}

func (h *history) mark(a PatchNode) {
	node := h.real(a.Node, a.UID)
	if node == nil {
		return
	}
	if h.isFull(node) || a.Before != nil && !h.mayBeMade(*a.Before) {
		return // a dry run shows it before the node is prepared
	}
	before := *node
	if !h.change(node, a.Change) {
		return
	}
	h.untroubled(node.UID, v1alpha1.ReasonRecordRejected)
	h.say("%s", tell(a))
	h.checkMark(node, a)
	if a.Record != nil {
		decoded, err := record.Decode(record.Encode(*a.Record))
		if err != nil {
			h.break_("record", "%v", err)
			return
		}
		node.On.Record = &decoded
		if decoded.Outcome == record.Succeeded && !a.KeepLabel {
			node.On.Label = decoded.Revision
		}
	}
	h.checkAssumed(&before, node.On.Record)
	h.write(node, node.On.Record)
	h.checkWish(&before, node)
	h.checkChange(&before, node, a.Change)
}

// change writes what other clients write as well; false if the node has changed since it was read, so that nothing is
// written.
func (h *history) change(node *Node, change record.Change) bool {
	if change.Shared() && !change.Guarded() {
		h.break_("rule 9", "%s is changed in what others write, too, without a look at what it is", node.Name)
	}
	if change.Guarded() && change.ResourceVersion != node.ResourceVersion {
		h.say("%s has changed meanwhile: conflict", node.Name)
		h.raced = true
		return false
	}
	if c := change.Cordon; c != nil {
		h.checkCordon(node, c)
		node.CordonedBy, node.Unschedulable = c.By, len(c.By) > 0
	}
	if t := change.Taints; t != nil {
		node.Taints = slices.Clone(t.All)
	}
	h.changeLabels(node, change)
	return true
}

func (h *history) evict(a Evict) {
	h.checkEvict(a)
	for _, pod := range a.Pods {
		node := h.nodes[a.Node]
		if node == nil {
			return
		}
		list := h.workloads[node.UID]
		i := slices.IndexFunc(list, func(p DrainPod) bool { return p.UID == pod.UID })
		switch {
		case i < 0:
		case h.faults && h.rng.Intn(2) == 0:
			list[i].Blocked, list[i].TriedAt = "a budget", h.now
		default:
			h.workloads[node.UID] = slices.Delete(slices.Clone(list), i, i+1)
		}
	}
}

func (h *history) forget(a CleanUpNode) {
	node := h.real(a.Node, a.UID)
	if node == nil {
		return
	}
	before := *node
	if !h.change(node, a.Change) {
		return
	}
	h.say("%s", tell(a))
	h.checkForget(node)
	node.On = record.NodeRecord{}
	h.write(node, nil)
	h.checkChange(&before, node, a.Change)
}

// releaseInTime releases a pod at once, or in the background if nothing waits for it.
func (h *history) releaseInTime(pod Pod, awaited bool) {
	live := h.pods[pod.Name]
	if live == nil || live.UID != pod.UID {
		return
	}
	h.checkRelease(pod)
	h.checkEnded(live)
	if awaited || !h.gaps {
		h.release(pod)
		return
	}
	h.queued[pod.UID] = pod
}

func (h *history) release(pod Pod) {
	delete(h.queued, pod.UID)
	live := h.pods[pod.Name]
	if live == nil || live.UID != pod.UID {
		return
	}
	live.Finalized, live.released = false, true
	if live.DeleteRequested.IsZero() {
		live.DeleteRequested = h.now
	}
	h.cache.pods[pod.Name] = live.Pod
}
