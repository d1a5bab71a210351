// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// The rules for the states and the writes of a plan.

// checkWrites checks that no two actions write to one node: they run in parallel and independently of
// each other.
func (h *history) checkWrites(p Plan) {
	written := map[string]bool{}
	for _, action := range p.Actions {
		var node string
		switch a := action.(type) {
		case Record:
			node = a.Node
		case PatchNode:
			node = a.Node
		case CleanUpNode:
			node = a.Node
		default:
			continue
		}
		if written[node] {
			h.break_("independent actions", "%s is written to twice", node)
		}
		written[node] = true
	}
}

// checkStates checks the state of each node against what really happened there.
func (h *history) checkStates(in Input, p Plan) {
	if !in.Job.DeletionTimestamp.IsZero() {
		return
	}
	recorded := map[string]bool{}
	for _, action := range p.Actions {
		if a, ok := action.(Record); ok {
			recorded[a.Pod.Name] = true
		}
	}
	for i := range p.Nodes {
		node := &in.Nodes[i]
		rec := node.On.Record
		if h.isBad(node) {
			continue
		}
		beside := rec != nil && node.On.Label != "" && node.On.Label != in.Revision && h.succeededBeside(node, rec)
		live := h.real(node.Name, node.UID)
		fresh := live != nil && live.ResourceVersion == node.ResourceVersion
		if p.Nodes[i].State == Done && rec != nil && rec.Revision == in.Revision && fresh &&
			!h.succeeded[run(node, in.Revision)] && !beside && !h.claimed[string(node.UID)+"/"+in.Revision] {
			h.break_("truth", "%s is called done and did not succeed with %s on this machine", node.Name, in.Revision)
		}
		if p.Nodes[i].State == Done && fresh {
			h.checkLastTask(node)
		}
		if p.Nodes[i].State == Done && node.On.Label != in.Revision && !beside {
			h.break_("truth", "%s is called done with %s by the label %q", node.Name, in.Revision, node.On.Label)
		}
		if rec != nil && node.On.Label == in.Revision && rec.Revision == in.Revision && rec.Outcome == record.Failed && fresh &&
			rec.MachineID == node.MachineID && h.selected(node) && !h.hasPods(in, node.Name) && p.Nodes[i].State != Done &&
			node.Ready == corev1.ConditionTrue && !h.replacedAsCanary(node.UID) { // it may still fail a soak
			h.break_("skip", "%s is skipped by its label, and is %s", node.Name, p.Nodes[i].State)
		}
		if p.Nodes[i].Reason == "" {
			h.break_("explain", "%s is %s for no reason", node.Name, p.Nodes[i].State)
		}
	}
	h.checkRebootStates(in, p)
	for i := range in.Pods {
		pod := &in.Pods[i]
		node, there := h.cache.nodes[pod.NodeName]
		open := there && !h.isBad(&node) && h.owed(pod) && h.onThisMachine(pod, &node) && !over(pod) && pod.Runs == task.Task
		if late := in.Now.After(
			pod.Created.Add(task.Timeout(in.Job, pod.Runs) + graceAfterDeadline),
		); open && late && silent(&node) &&
			!recorded[pod.Name] {
			h.break_("rule 7", "%s is lost with pod %s past its deadline, and holds its slot", node.Name, pod.Name)
		}
	}
}

// checkStatus checks the status against its bounds, and against the previous status.
func (h *history) checkStatus(before, after v1alpha1.NodeJobStatus) {
	if len(after.Failures) > mostFailures || len(after.Drains) > mostDrains || len(after.NodeProblems) > mostFailures {
		h.break_(
			"status",
			"%d failures, %d drains and %d problems are listed",
			len(after.Failures),
			len(after.Drains),
			len(after.NodeProblems),
		)
	}
	holds := 0
	for _, kind := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if isTrue(after, kind) {
			holds++
		}
	}
	if holds > 1 {
		h.break_("status", "%d conditions are true at once", holds)
	}
	if after.Rollout == nil || before.Rollout == nil || before.Revision != after.Revision {
		return
	}
	if !before.Rollout.StableAt.IsZero() && !before.Rollout.StableAt.Equal(&after.Rollout.StableAt) {
		h.break_("status", "a revision is not proven any more")
	}
	if len(after.Rollout.UnrecordedFailures) > mostCasualties || len(after.ControllerState.Rollout.AtRisk) > mostCasualties {
		h.break_("status", "%d casualties, %d at risk", len(after.Rollout.UnrecordedFailures), len(after.ControllerState.Rollout.AtRisk))
	}
}
