// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// The rules for the maintenance of a node: cordon, drain, reboot.

func (h *history) prepares() bool {
	return h.job.Spec.Maintenance.Cordon || h.job.Spec.Maintenance.Drain != nil
}

// cordons reports whether a node must be cordoned before the task. Other NodeJobs see it then.
func (h *history) cordons(node *Node) bool {
	return h.prepares() || ofControlPlane(node) && h.disrupts()
}

func (h *history) disrupts() bool {
	reboot := h.job.Spec.Maintenance.Reboot.Policy
	return h.prepares() || reboot == v1alpha1.RebootAlways || reboot == v1alpha1.RebootIfRequested
}

// reboots reports whether the task has succeeded on a node and the run is not over.
func (h *history) reboots(node *Node) bool {
	rec := node.On.Record
	return rec != nil && rec.Outcome == record.Rebooting && rec.Revision == h.rev && rec.MachineID == node.MachineID && !h.deleting()
}

func (h *history) rebootOverdue(rec *record.Record) bool {
	return !h.told.Before(rec.Reboot.StartedAt.Add(task.Timeout(h.job, task.Reboot)))
}

// settledDown reports whether a node is in another boot than the task ran in, and has been Ready for long enough.
func (h *history) settledDown(seen *Node) bool {
	ready := seconds32(h.job.Spec.Maintenance.Reboot.MinReadySeconds, 10)
	since := seen.ReadySince
	if h.with(skewedClocks) {
		since = h.backAt[seen.BootID].Add(-clockStep - time.Second) // its clock is wrong
	}
	return (seen.BootID != h.taskBoot[seen.UID] || !h.wantsReboot()) && seen.Ready == corev1.ConditionTrue &&
		!h.now.Before(since.Add(ready))
}

// mayLeave reports whether the task ran in the boot, or the node was in it when the success was recorded.
func (h *history) mayLeave(node *Node, boot string) bool {
	return boot == h.taskBoot[node.UID] || boot == h.lastBoot[node.UID]
}

// checkGoesOn checks the second and third pod of a run with a reboot.
func (h *history) checkGoesOn(seen *Node, a task.Attempt) {
	rec := seen.On.Record
	switch {
	case rec == nil || rec.Outcome != record.Rebooting || rec.Revision != a.Revision:
		h.break_("reboot", "%s starts on %s, where no run continues", a.Phase, seen.Name)
	case h.rebootOverdue(rec):
		h.break_("reboot", "%s starts on %s after the time for it", a.Phase, seen.Name)
	case a.Phase == task.Reboot && (!h.mayLeave(seen, a.BootID) || seen.BootID != a.BootID):
		h.break_("reboot", "the reboot of %s is to end boot %s, and the task ran in %s", seen.Name, a.BootID, h.taskBoot[seen.UID])
	case a.Phase == task.Check && (h.job.Spec.Task.Check == nil || !h.settledDown(seen)):
		h.break_(
			"reboot",
			"%s is checked in %s (Ready since %v), and the task ran in %s",
			seen.Name,
			seen.BootID,
			seen.ReadySince,
			h.taskBoot[seen.UID],
		)
	}
}

// checkReboot checks a record of a run with a reboot, or of a run that no pod has ended.
func (h *history) checkReboot(node *Node, a Record, pod *simPod) {
	seen := h.seen[node.Name]
	r := a.Record
	key := run(&Node{UID: node.UID, MachineID: r.MachineID}, r.Revision)
	if phaseOf(pod) == task.Task {
		h.checkRebooting(node, r, pod, &seen)
		h.forgetRuns(func(k string) bool { return strings.HasPrefix(k, string(node.UID)+"/") && k != key })
		return
	}
	was := seen.On.Record
	ran := pod != nil && pod.ran
	switch {
	case r.Reason == v1alpha1.ReasonDrainTimedOut:
		h.forgetRuns(func(k string) bool { return strings.HasPrefix(k, string(node.UID)+"/") && k != key })
		delete(h.succeeded, key)
		h.checkNotDrained(&seen, r)
		h.forgetMachine(node, r)
		if r.NeverStarted && h.hasBegun[node.Name] {
			h.break_("truth", "the task has started on %s, and neverStarted is recorded", node.Name)
		}
	case was == nil || was.Outcome != record.Rebooting:
		h.break_("reboot", "%s is recorded on %s, where no run continues", r.Outcome, node.Name)
		return
	case r.Outcome == record.Rebooting:
	case r.Reason == v1alpha1.ReasonRebootTimedOut:
		if !h.rebootOverdue(was) {
			h.break_("reboot", "the reboot of %s times out early", node.Name)
		}
	case r.Reason == v1alpha1.ReasonPublishConflict, r.Reason == v1alpha1.ReasonInvalidResult:
		h.checkResults(&seen, r, was.Results)
	case r.Outcome == record.Succeeded:
		h.checkRebooted(&seen, r, pod)
	case phaseOf(pod) == task.Reboot && (pod.Exit == nil || pod.Exit.Reason != outcome.ReasonRebootFailed):
		if pod.Exit == nil || pod.Exit.Code == 0 {
			h.break_("truth", "the reboot of %s has not failed", node.Name)
		}
	case phaseOf(pod) == task.Check && (!ran || pod.willSucceed) && h.now.Before(pod.Created.Add(task.Timeout(h.job, task.Check))):
		h.break_("truth", "the check of %s has not failed", node.Name)
	}
	h.countRun(node, r, key, pod)
}

// checkRebooting checks a task that has succeeded and is followed by a reboot.
func (h *history) checkRebooting(node *Node, r *record.Record, pod *simPod, seen *Node) {
	asked := h.wantsReboot() &&
		(pod.asked == v1alpha1.RebootAlways || pod.asked == v1alpha1.RebootIfRequested && outcome.RebootRequested(pod.results))
	if !asked || !pod.ran || !pod.willSucceed {
		h.break_("reboot", "%s will be rebooted, and its task has not requested it", node.Name)
	}
	h.taskBoot[node.UID], h.lastBoot[node.UID] = pod.ranIn, seen.BootID
	h.checkResults(seen, r, pod.results)
}

// checkRebooted checks the success of a run with a reboot.
func (h *history) checkRebooted(seen *Node, r *record.Record, pod *simPod) {
	switch {
	case pod == nil && (h.job.Spec.Task.Check != nil || !h.settledDown(seen)):
		h.break_(
			"reboot",
			"%s is done in %s (Ready since %v), and the task ran in %s",
			seen.Name,
			seen.BootID,
			seen.ReadySince,
			h.taskBoot[seen.UID],
		)
	case pod == nil:
	case pod.Runs != task.Check || !pod.ran || !pod.willSucceed:
		h.break_("truth", "a success is recorded for %s, which had none", pod.Name)
	case pod.ranIn == h.taskBoot[seen.UID] && pod.asked != "":
		h.break_("reboot", "%s was checked in the boot that the task ran in", seen.Name)
	case r.BootID != pod.ranIn && r.BootID != task.BootID(pod.Machine):
		h.break_("reboot", "%s was checked in %s, and is done in %s", seen.Name, pod.ranIn, r.BootID)
	}
	h.checkResults(seen, r, r.Results)
}

func (h *history) checkNotDrained(seen *Node, r *record.Record) {
	drain := h.job.Spec.Maintenance.Drain
	if drain == nil || h.now.Before(r.StartedAt.Add(time.Duration(*drain.TimeoutSeconds)*time.Second)) {
		h.break_("disruption", "the drain of %s times out early", seen.Name)
	}
	if r.StartedAt.Before(seen.Created) {
		h.break_("disruption", "the drain of %s started before the node existed", seen.Name)
	}
}

// countRun notes the end of a run.
func (h *history) countRun(node *Node, r *record.Record, key string, pod *simPod) {
	h.checkCount(node, r, pod, key)
	if r.Retry == task.RetryToken(h.job) {
		h.noteSetback(key, pod, r)
	}
	switch {
	case r.Outcome == record.Succeeded:
		h.succeeded[key], h.relabelled[key] = true, h.wasRelabelled(node)
		h.endsRun(key)
		at := h.now
		if pod != nil && !pod.endedAt.IsZero() {
			at = pod.endedAt
		}
		h.ranWith[key] = h.begunWith[key]
		h.done[key] = success{boot: r.BootID, at: at.Truncate(time.Second)}
		delete(h.failures, key)
		if r.Revision == h.rev {
			h.staged = h.staged || node.Labels["stage"] == "yes"
			if h.firstSuccess.IsZero() {
				h.firstSuccess = h.now
			}
		}
	case r.Outcome == record.Failed && r.Retry == task.RetryToken(h.job):
		h.failures[key]++
	}
	if r.Outcome == record.Failed || r.Outcome == record.Disrupted && pod != nil && pod.Runs == task.Task && !pod.NotStarted {
		h.beginsRun(key) // its retry is of the same run, maybe on another machine, or on a Node that was created again
	}
}

// checkPrepared checks what starts on nodes that are cordoned, drained or rebooted.
func (h *history) checkPrepared(in Input, p Plan, busy map[string]bool, limit int) {
	begun := map[string]bool{}
	for _, action := range p.Actions {
		switch a := action.(type) {
		case Start:
			if a.Attempt.Phase == task.Task {
				begun[a.Attempt.NodeName] = true
				h.checkReadied(in, a.Attempt)
			}
		case PatchNode:
			if a.Reason == v1alpha1.ReasonPreparing {
				begun[a.Node] = true
			}
		}
	}
	if !h.disrupts() || len(begun) == 0 {
		return
	}
	slots := map[string]bool{}
	for name := range busy {
		slots[name] = true
	}
	for i := range p.Nodes {
		node := &in.Nodes[i]
		if reason := p.Nodes[i].Reason; (reason == v1alpha1.ReasonPreparing || reason == v1alpha1.ReasonDrainBlocked) && !h.exempt(node) {
			slots[node.Name] = true
		}
	}
	for name := range begun {
		if node := h.cache.nodes[name]; !h.exempt(&node) && len(slots) > limit {
			h.break_("rule 3", "%d nodes run or are prepared, %d may", len(slots), limit)
		}
		if name == in.OwnNode {
			h.checkOwnNode(in, p, begun)
		}
	}
	h.checkAway(in, p, begun, slots)
}

// checkReadied checks a task that starts on a node that had to be prepared.
func (h *history) checkReadied(in Input, a task.Attempt) {
	node := h.cache.nodes[a.NodeName]
	pods, looked := in.Drains[node.UID]
	switch {
	case h.cordons(&node) && !node.Unschedulable && !slices.Contains(node.CordonedBy, ownKey):
		h.break_("disruption", "%s is started and is not cordoned", node.Name)
	case h.job.Spec.Maintenance.Drain != nil && (!looked || len(pods) > 0):
		h.break_("disruption", "%s is started and is not drained", node.Name)
	}
}

// checkAway checks that the NodeJob does not make more nodes unavailable than it may.
func (h *history) checkAway(in Input, p Plan, begun, slots map[string]bool) {
	limit := 1
	if m := in.Job.Spec.Maintenance.MaxUnavailable; m != nil {
		limit = m.IntValue()
	}
	away, taken := 0, ""
	for i := range in.Nodes {
		node := &in.Nodes[i]
		begins := begun[node.Name]
		atWork := (slots[node.Name] || h.reboots(node)) && !h.mayBeStuck(node)
		gone := node.Ready != corev1.ConditionTrue || node.Unschedulable || begins && slices.Contains(node.CordonedBy, ownKey)
		switch {
		case p.Nodes[i].State == Excluded && !atWork, h.exempt(node) && !h.works(in, node):
			continue
		case h.isBad(node) && begins: // it may claim that it was prepared, which harms only itself
		case begins && !gone:
			away++
			taken = node.Name
		case gone, atWork:
			away++
		}
	}
	if taken != "" && away > limit {
		h.break_("disruption", "%s becomes unavailable, and %d nodes are unavailable with it, of at most %d", taken, away, limit)
	}
}

// works reports whether a node has a pod whose outcome is not on record.
func (h *history) works(in Input, node *Node) bool {
	return slices.ContainsFunc(in.Pods, func(p Pod) bool {
		goesOn := p.Runs == task.Task || p.Runs == task.Rollback ||
			onItsWay(node, p.Revision) // otherwise the run was removed from the node
		return p.NodeName == node.Name && goesOn && h.owed(&p) && h.onThisMachine(&p, node)
	})
}

func (h *history) hasPods(in Input, name string) bool {
	return slices.ContainsFunc(in.Pods, func(p Pod) bool { return p.NodeName == name })
}

// checkOwnNode checks that the node of the manager comes last.
func (h *history) checkOwnNode(in Input, p Plan, begun map[string]bool) {
	own := h.cache.nodes[in.OwnNode]
	if _, drained := in.Drains[own.UID]; drained || slices.Contains(own.CordonedBy, ownKey) {
		return // it had its slot before
	}
	if !h.stableAt().IsZero() {
		return // then nodes may join, be removed, and rerun forever
	}
	for i := range p.Nodes {
		st := &p.Nodes[i]
		if _, troubled := in.NodeProblems[in.Nodes[i].UID]; troubled || st.Name == in.OwnNode || in.Nodes[i].On.Label == in.Revision ||
			h.mayBeStuck(&in.Nodes[i]) {
			continue // a node that was done may rerun forever, and the time of a node without progress has passed
		}
		if begun[st.Name] || st.State == Running || st.State == Waiting && st.Reason == v1alpha1.ReasonWaitingForSlot {
			h.break_("disruption", "the node of the manager starts, and %s is %s (%s)", st.Name, st.State, st.Reason)
		}
	}
}

// checkRebootStates checks that a node has its slot while it reboots, and not for longer than it may.
func (h *history) checkRebootStates(in Input, p Plan) {
	recorded := map[string]bool{}
	for _, action := range p.Actions {
		if a, ok := action.(Record); ok {
			recorded[a.Node] = true
		}
	}
	for i := range p.Nodes {
		node := &in.Nodes[i]
		if !h.reboots(node) || h.isBad(node) {
			continue
		}
		if p.Nodes[i].State != Running {
			h.break_("reboot", "%s reboots, and is %s", node.Name, p.Nodes[i].State)
		}
		blocked := slices.ContainsFunc(in.Pods, func(pod Pod) bool {
			return pod.NodeName == node.Name && pod.Runs != task.Reboot && h.owed(&pod)
		})
		if h.rebootOverdue(node.On.Record) && !recorded[node.Name] && !blocked {
			h.break_("reboot", "%s has its slot after the time for its reboot", node.Name)
		}
	}
}
