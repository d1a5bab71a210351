// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// The status says how far a rollout is, and the planner believes it. So the oracle checks each progress that a status
// claims against its own log.

// soakMore gives the second step a soak in some histories.
func (h *history) soakMore() {
	if specs := h.job.Spec.Rollout.Steps; len(specs) == 3 && h.roll(2) {
		specs[1].SoakSeconds = 20
	}
}

// stepsOf are the steps of the NodeJob, or the default ones.
func (h *history) stepsOf() []v1alpha1.RolloutStep {
	if specs := h.job.Spec.Rollout.Steps; len(specs) > 0 {
		return specs
	}
	return []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}}
}

// checkProgress checks the progress of a rollout that a new status claims.
func (h *history) checkProgress(in Input, before, after *v1alpha1.NodeJobStatus) {
	var was v1alpha1.RolloutStatus
	if before.Rollout != nil && before.Revision == after.Revision {
		was = *before.Rollout
	}
	is := after.Rollout
	if is == nil || after.Revision != h.rev {
		return
	}
	specs := h.stepsOf()
	index := func(step string) int {
		return slices.IndexFunc(specs, func(st v1alpha1.RolloutStep) bool { return st.Name == step })
	}
	from, to := max(index(was.Step), 0), index(is.Step)
	switch {
	case to < 0:
		h.break_("status", "the step %q does not exist", is.Step)
		return
	case was.Step == "" || to < from:
		h.stepBegan = h.now
	}
	stable := was.StableAt.IsZero() && !is.StableAt.IsZero()
	if stable && to != len(specs)-1 {
		h.break_("rule 4", "the revision is called stable in step %s", is.Step)
	}
	for k := from; k <= to; k++ {
		passed := k < to || stable
		if passed && h.stableAt().IsZero() {
			h.checkPassed(in, k)
		}
		if soak := time.Duration(specs[k].SoakSeconds) * time.Second; soak > 0 && h.stableAt().IsZero() &&
			(passed || !is.SoakedAt.IsZero()) && !(was.Step == specs[k].Name && !was.SoakedAt.IsZero()) {
			// No step soaks before it begins. The success of the first step is checked when a task starts past it.
			if since := h.now.Sub(h.stepBegan); since+clockStep+time.Second < soak {
				h.break_("rule 4", "step %s is passed %s after it began, and soaks for %s", specs[k].Name, since, soak)
			}
		}
		if k < to {
			h.stepBegan = h.now
		}
	}
	for _, c := range is.UnrecordedFailures {
		known := slices.ContainsFunc(was.UnrecordedFailures, func(b v1alpha1.UnrecordedFailure) bool { return b.UID == c.UID })
		ready := slices.ContainsFunc(in.Nodes, func(n Node) bool { return n.UID == c.UID && n.Ready == corev1.ConditionTrue })
		waited := h.now.Sub(h.stepBegan) + clockStep + time.Second
		switch deadline := h.progressDeadline(); {
		case known || c.UID == h.bad:
		case ready && (c.Reason == v1alpha1.ReasonNotReadyInSoak || c.Reason == v1alpha1.ReasonProgressDeadlineExceeded):
			h.break_("rule 5", "%s counts as failed in its soak, and is Ready", c.Node)
		case (c.Reason == v1alpha1.ReasonNotReadyNodeDeleted || c.Reason == v1alpha1.ReasonFailedNodeDeleted) && !h.suspect[c.UID]:
			h.break_("rule 5", "%s counts as failed because it is gone, and was neither failed nor NotReady after a run", c.Node)
		case c.Reason == v1alpha1.ReasonProgressDeadlineExceeded && waited < deadline:
			h.break_("rule 5", "%s counts as failed after %s, and the soak may wait for it for %s", c.Node, waited, deadline)
		}
	}
}

// checkPassed checks a step that a status says has passed: the revision has succeeded there, and no node that it waits for is
// still to run. What a step of a number of nodes waits for is checked when a task starts past it, and nodes that take a place in
// such a step after it has passed are not awaited.
func (h *history) checkPassed(in Input, k int) {
	specs := h.stepsOf()
	done, later := false, 0
	for _, st := range specs[:k] {
		if st.Nodes != nil {
			later += h.atMost(st.Nodes, in)
		}
	}
	var awaited []string // those of an earlier step are not
	for i := range in.Nodes {
		node := &in.Nodes[i]
		staging := slices.IndexFunc(
			specs,
			func(st v1alpha1.RolloutStep) bool { return st.Selector != nil && node.Labels["stage"] == "yes" },
		)
		if specs[k].Selector != nil && staging != k {
			continue
		}
		done = done || h.isBad(node) || h.stands(node)
		if specs[k].Nodes == nil && (staging < 0 || staging == k) && h.isAwaitedBy(in, node) {
			awaited = append(awaited, node.Name)
		}
	}
	switch {
	case h.deleting():
	case !done:
		h.break_("rule 4", "step %s is passed, and no node has succeeded there", specs[k].Name)
	case len(awaited) > later:
		h.break_("rule 4", "step %s is passed, and waits for %v", specs[k].Name, awaited)
	}
}

// isAwaitedBy reports whether a step must wait for a node: it was there when the step began, and is able to run the task.
func (h *history) isAwaitedBy(in Input, node *Node) bool {
	able := node.Ready == corev1.ConditionTrue && !goingAway(node) && !barred(node) && h.selected(node) && !h.lacksValue(node)
	problem, troubled := in.NodeProblems[node.UID] // the start in this pass may have ended it
	stuck := troubled && !h.now.Before(problem.Since.Add(h.progressDeadline()-clockStep))
	failed := stuck || h.exhausted(node) || h.down(in, node) || h.mayBeStuck(node) || h.awaited(node)
	return !h.isBad(node) && able && node.Created.Before(h.stepBegan.Add(-clockStep)) && !h.stands(node) && !failed
}

// stands reports whether a success stands on a node: it is done, or runs again and that run has not failed.
func (h *history) stands(node *Node) bool {
	rec := node.On.Record
	return h.isDone(node) || rec != nil && rec.Revision == h.rev && rec.MachineID == node.MachineID &&
		(rec.Outcome == record.Succeeded || rec.Rerun && rec.Outcome != record.Failed)
}
