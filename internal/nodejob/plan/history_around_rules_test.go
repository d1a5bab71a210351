// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// The rules for gates, published results, and the metadata of others on a node.

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (h *history) deleting() bool { return !h.job.DeletionTimestamp.IsZero() }

// isOurGate reports whether a taint is the gate of the NodeJob, regardless of who set it.
func (h *history) isOurGate(t *corev1.Taint) bool {
	gate := h.job.Spec.Gate
	return t.Key == v1alpha1.GateKey(h.job) && (t.Key == ownKey || gateEffectOf(gate) == t.Effect)
}

func (h *history) closedFor(node *Node) bool {
	return slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return h.isOurGate(&t) })
}

// isDone reports whether a node is done according to its label, and nothing requests another run.
func (h *history) isDone(node *Node) bool {
	rec := node.On.Record
	if node.On.Label != h.rev {
		return node.On.Label != "" && rec != nil && h.succeededBeside(node, rec)
	}
	if rec == nil || rec.Revision != h.rev {
		return rec == nil || rec.MachineID == node.MachineID
	}
	_, needs := node.Labels[needsKey]
	relabelled := needs && rec.RemovedLabels[needsKey] != "" && len(h.job.Spec.RemoveLabels) > 0
	rebooted := h.job.Spec.Rerun.OnReboot && rec.BootID != node.BootID
	return rec.MachineID == node.MachineID &&
		(rec.Outcome != record.Succeeded && (!rec.Rerun || rec.Outcome == record.Failed || rec.LabelRemoved && h.claimed[string(node.UID)+"/"+h.rev]) ||
			rec.Outcome == record.Succeeded && !rebooted && !relabelled && !h.hasOtherValue(node, rec) && !h.hasDrifted(rec))
}

// succeededBeside reports whether a node succeeded while a label skipped another revision there.
func (h *history) succeededBeside(node *Node, rec *record.Record) bool {
	_, ever := h.done[run(node, h.rev)]
	return ever && rec.Label != rec.Revision && rec.Revision == h.rev && rec.Outcome == record.Succeeded && rec.MachineID == node.MachineID
}

// checkChange compares a node before and after a write of the manager: nothing that belongs to others may have changed,
// and a gate only opens when it may.
func (h *history) checkChange(before, after *Node, c record.Change) {
	seen := h.seen[before.Name]
	for i := range before.Taints {
		t := before.Taints[i]
		if slices.Contains(after.Taints, t) {
			continue
		}
		if !h.isOurGate(&t) {
			h.break_("rule 9", "the taint %s of %s has another owner, and is removed", t.ToString(), before.Name)
		}
		h.checkOpened(&seen, &t, c)
	}
	for i := range after.Taints {
		t := after.Taints[i]
		if !slices.Contains(before.Taints, t) &&
			(h.job.Spec.Gate == nil || !h.isOurGate(&t) || t.Value != v1alpha1.GateValue || h.deleting()) {
			h.break_("rule 9", "%s is given the taint %s", before.Name, t.ToString())
		}
	}
	if c.Record != nil && c.Record.Outcome == record.Succeeded && c.Record.Rollback == nil && !c.Record.LabelRemoved &&
		!isAnswer(seen.On.Record, c.Record) {
		h.checkTogether(&seen, after, c.Record)
	}
	h.checkAdopted(before, after)
	h.checkLabels(before.Name, before.UID, before.Labels, after.Labels)
	h.checkLabels(before.Name, before.UID, before.Annotations, after.Annotations)
	for key, owner := range before.Published.Labels {
		if owner != ownKey && after.Published.Labels[key] != owner {
			h.break_("rule 9", "the label %s of %s is published by another NodeJob, which is forgotten", key, before.Name)
		}
	}
}

// checkOpened checks that a gate opens for a reason.
func (h *history) checkOpened(seen *Node, t *corev1.Taint, c record.Change) {
	excluded := !h.selected(seen) || barredForGood(seen) && !h.now.Before(seen.Created.Add(joinTime))
	if c.Taints != nil && h.job.Spec.Gate != nil && t.Key == ownKey && slices.ContainsFunc(c.Taints.All, func(n corev1.Taint) bool {
		return n.Key == ownKey && n.Effect == gateEffectOf(h.job.Spec.Gate)
	}) {
		return // it is closed as before, with another effect
	}
	succeeds := c.Record != nil && c.Record.Outcome == record.Succeeded
	switch {
	case h.shares() && t.Key == sharedGate && h.otherPending(seen):
		h.break_("gate", "%s is opened, and another NodeJob with the same gate is not done there", seen.Name)
	case h.deleting(), h.job.Spec.Gate == nil, succeeds, h.isDone(seen):
	case excluded && (t.Value == v1alpha1.GateValue || t.Key == ownKey):
	default:
		h.break_("gate", "%s is opened, and is not done", seen.Name)
	}
}

// checkTogether checks that what a success brings about is in one write with it.
func (h *history) checkTogether(seen, after *Node, rec *record.Record) {
	if h.job.Spec.Gate != nil && isAllowed(h.nodesOf, seen) && h.closedFor(seen) && h.closedFor(after) &&
		!(h.shares() && h.otherPending(seen)) {
		h.break_("gate", "%s is done and not opened in the same write", after.Name)
	}
	if slices.Contains(after.CordonedBy, ownKey) && after.Unschedulable {
		h.break_("rule 8", "%s is done and not opened in the same write", after.Name)
	}
	if h.unpublishable(seen, rec.Results) != "" || !isAllowed(h.nodesOf, seen) {
		return // for example if a user has requested it since
	}
	for _, entry := range h.job.Spec.Publish {
		have, key := after.Labels, entry.Label
		if key == "" {
			have, key = after.Annotations, entry.Annotation
		}
		want, reported := rec.Results[entry.Result]
		if value, there := have[key]; reported && value != want || !reported && there && h.ours[after.UID][key] {
			h.break_("published results", "%s is done with %s=%q, and reported %q", after.Name, key, value, want)
		}
	}
}

// checkAdopted checks that an existing label becomes managed only as spec.publish says.
func (h *history) checkAdopted(before, after *Node) {
	value, there := before.Labels[sizeKey]
	if !there || before.Published.Labels[sizeKey] != "" || after.Published.Labels[sizeKey] != ownKey {
		return
	}
	if !h.mayAdopt(before, after.Labels[sizeKey]) {
		h.break_("rule 9", "%s=%s of %s is owned by no NodeJob, and is adopted", sizeKey, value, before.Name)
	}
	if h.ours[before.UID] == nil {
		h.ours[before.UID] = map[string]bool{}
	}
	h.ours[before.UID][sizeKey] = true
}

// mayAdopt reports whether a run that reports a value may take over the label that the node has.
func (h *history) mayAdopt(node *Node, value string) bool {
	switch h.adopt {
	case v1alpha1.AdoptAlways:
		return node.Published.Labels[sizeKey] == ""
	case v1alpha1.AdoptSameValue:
		return node.Published.Labels[sizeKey] == "" && node.Labels[sizeKey] == value
	case v1alpha1.AdoptNever:
	}
	return false
}

// checkLabels compares labels, or annotations, before and after a write of the manager.
func (h *history) checkLabels(name string, uid types.UID, before, after map[string]string) {
	ours := h.ours[uid]
	if ours == nil {
		ours = map[string]bool{}
		h.ours[uid] = ours
	}
	for key, value := range before {
		is, there := after[key]
		switch {
		case there && is == value, ours[key], !there && slices.Contains(h.job.Spec.RemoveLabels, key):
		default:
			h.break_("rule 9", "%s=%s of %s has another owner, and is %q now", key, value, name, is)
		}
		if !there {
			delete(ours, key)
		}
	}
	for key := range after {
		if _, was := before[key]; was {
			continue
		}
		if !slices.ContainsFunc(
			h.job.Spec.Publish,
			func(f v1alpha1.PublishedResult) bool { return key == f.Label || key == f.Annotation },
		) {
			h.break_("rule 9", "%s is given %s", name, key)
		}
		ours[key] = true
	}
}

// checkClosed checks a node whose gate the manager closes.
func (h *history) checkClosed(seen *Node) {
	gate := h.job.Spec.Gate
	replaced := seen.On.Record != nil && seen.On.Record.MachineID != seen.MachineID
	before := time.Second // times of a Node are in whole seconds
	if h.with(skewedClocks) {
		before += clockStep
	}
	switch {
	case gate == nil, h.deleting(), !h.selected(seen), slices.ContainsFunc(seen.Taints, func(t corev1.Taint) bool {
		return t.Key == v1alpha1.GateKey(h.job) && string(t.Effect) == string(gateEffectOf(gate))
	}):
		h.break_("gate", "%s is closed", seen.Name)
	case h.closedFor(seen): // it has another effect now
	case h.isDone(seen) && h.job.Spec.Rerun.PeriodSeconds == 0:
		h.break_("gate", "%s is done, and closed", seen.Name)
	case gate.Nodes != v1alpha1.GateAll && gate.Nodes != v1alpha1.GateJoiningAndRebooted && !replaced && !seen.Created.After(h.gateSince[gate.Key].Add(-before)):
		h.break_("gate", "%s was there before the gate, and is closed", seen.Name)
	}
}

// checkSwept checks what is removed because it belongs to no NodeJob.
func (h *history) checkSwept(before, after *Node) {
	for i := range before.Taints {
		t := &before.Taints[i]
		claimed := !h.gone && h.job.Spec.Gate != nil && h.isOurGate(t) && v1alpha1.GateKey(h.job) == t.Key ||
			h.other != "" && t.Key == sharedGate && t.Effect == corev1.TaintEffectNoSchedule
		if !slices.Contains(after.Taints, *t) && (claimed || t.Value != v1alpha1.GateValue) {
			h.break_("rule 9", "the taint %s of %s is swept away", t.ToString(), before.Name)
		}
	}
	if slices.Contains(before.CordonedBy, ownKey) && !slices.Contains(after.CordonedBy, ownKey) && !h.gone {
		h.break_("rule 8", "the cordon of %s is swept away", before.Name)
	}
}

// unpublishable returns why the results of a run cannot be published on a node; "" if they can.
func (h *history) unpublishable(seen *Node, results map[string]string) string {
	for _, entry := range h.job.Spec.Publish {
		have, key := seen.Labels, entry.Label
		if key == "" {
			have, key = seen.Annotations, entry.Annotation
		}
		value, reported := results[entry.Result]
		_, there := have[key]
		switch {
		case !reported:
		case entry.Label != "" && value == badLabel:
			return v1alpha1.ReasonInvalidResult
		case there && !h.ours[seen.UID][key] && (key != sizeKey || !h.mayAdopt(seen, value)):
			return v1alpha1.ReasonPublishConflict
		}
	}
	return ""
}

// checkResults checks that a run fails when its results cannot be published, and only then.
func (h *history) checkResults(seen *Node, r *record.Record, results map[string]string) {
	why := h.unpublishable(seen, results)
	published := r.Outcome == record.Succeeded || r.Outcome == record.Rebooting
	failed := r.Reason == v1alpha1.ReasonInvalidResult || r.Reason == v1alpha1.ReasonPublishConflict
	if why != "" && published || failed && r.Outcome == record.Failed && why == "" {
		h.break_("published results", "%s is %s (%s), and its results %v are %q", seen.Name, r.Outcome, r.Reason, results, why)
	}
}

// mayRunAgain reports whether a node has succeeded and is due for a rerun.
func (h *history) mayRunAgain(node *Node, key string) bool {
	rerun, was := &h.job.Spec.Rerun, h.done[key]
	if rerun.OnReboot && was.boot != node.BootID {
		return true
	}
	if h.mayRunWith(node, key) || h.repairs() && h.no[key] || h.relabelled[key] {
		return true
	}
	half := time.Duration(rerun.PeriodSeconds) * time.Second / 2
	if h.with(skewedClocks) {
		half -= clockStep // by the API server's clock
	}
	return rerun.PeriodSeconds > 0 && !h.now.Before(was.at.Add(half))
}

// checkRest checks what nodes have when all is done.
func (h *history) checkRest() {
	h.sweep()
	for _, name := range sortedKeys(h.nodes) {
		node := h.nodes[name]
		done := node.On.Label == h.rev && (node.On.Record == nil || node.On.Record.MachineID == node.MachineID)
		over := done || !h.selected(node)
		if slices.Contains(node.CordonedBy, ownKey) && over {
			h.break_("rule 8", "%s is done and stays cordoned", name)
		}
		for i := range node.Taints {
			t := &node.Taints[i]
			ours := t.Value == v1alpha1.GateValue || done && h.selected(node) && h.isOurGate(t) && h.job.Spec.Gate != nil
			runsAgain := done && h.selected(node) && !h.isDone(node)
			if ours && over && !runsAgain && !(t.Key == sharedGate && h.otherPending(node)) {
				h.break_("gate", "%s is done, or the NodeJob is not for it, and keeps the taint %s", name, t.ToString())
			}
		}
		rec := node.On.Record
		if !done || !h.selected(node) || rec == nil || rec.Outcome != record.Succeeded || rec.Revision != h.rev {
			continue
		}
		if h.job.Spec.Rerun.OnReboot && rec.BootID != node.BootID && isTrue(h.job.Status, v1alpha1.ConditionComplete) {
			h.break_("reruns", "%s has rebooted since it was done", name)
		}
		if h.hasOtherValue(node, rec) && isTrue(h.job.Status, v1alpha1.ConditionComplete) {
			h.break_("reruns", "%s has another value than in its last run", name)
		}
		if h.isDone(node) {
			h.checkTogether(node, node, rec)
		}
	}
}

// checkGone checks what a node has after the NodeJob is deleted, before or after the sweep.
func (h *history) checkGone(node *Node, swept bool) {
	if slices.Contains(node.CordonedBy, ownKey) {
		h.break_("deletion", "%s stays cordoned", node.Name)
	}
	for i := range node.Taints {
		if t := &node.Taints[i]; t.Value == v1alpha1.GateValue && (swept || h.isOurGate(t)) &&
			!(h.other != "" && t.Key == sharedGate && t.Effect == corev1.TaintEffectNoSchedule) {
			h.break_("deletion", "%s keeps the taint %s", node.Name, t.ToString())
		}
	}
	if h.job.Spec.DeletionPolicy == v1alpha1.DeletionRetain {
		return
	}
	for _, owners := range []map[string]string{node.Published.Labels, node.Published.Annotations} {
		for key, owner := range owners {
			if owner == ownKey {
				h.break_("deletion", "%s keeps the published result %s", node.Name, key)
			}
		}
	}
}

// afterwards continues the history after the NodeJob is deleted.
func (h *history) afterwards() {
	h.sweep()
	for _, name := range sortedKeys(h.nodes) {
		node := h.nodes[name]
		if !h.isBad(node) {
			h.checkGone(node, true)
		} else if slices.Contains(node.CordonedBy, ownKey) {
			h.break_("deletion", "%s stays cordoned", name)
		}
	}
}

// settleMore ends the events around the task.
func (h *history) settleMore() {
	if h.plain {
		return
	}
	if !h.with(schedules) {
		h.job.Spec.Rerun.PeriodSeconds = 0
	}
	for _, name := range sortedKeys(h.nodes) {
		h.settleNode(h.nodes[name])
	}
}

// settleNode ends the events around the task on a node.
func (h *history) settleNode(node *Node) {
	if h.byHand[node.UID] || slices.Contains(node.CordonedBy, otherKey) {
		delete(h.byHand, node.UID)
		node.CordonedBy = slices.DeleteFunc(slices.Clone(node.CordonedBy), func(key string) bool { return key == otherKey })
		node.Unschedulable = len(node.CordonedBy) > 0
	}
	if h.other != "" && !h.chance(4) {
		h.otherDone(node)
	}
	h.setLabel(node, depKey, h.dep)
	if _, there := node.Labels[sizeKey]; there && !h.ours[node.UID][sizeKey] {
		h.setLabel(node, sizeKey, "")
		h.disown(node, sizeKey)
	}
	h.changed(node)
}

func phaseOf(pod *simPod) task.Phase {
	if pod == nil {
		return ""
	}
	return pod.Runs
}
