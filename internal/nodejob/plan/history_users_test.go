// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Requests of users while attempts run.

// wishes are the requests of users.
type wishes struct {
	// skip is the revision that a user has said that a node is done with.
	skip map[types.UID]string
	// bare are the nodes that a manager has seen without the label that it had set, while an attempt ran. No write to them
	// failed then, so it can know that later.
	bare map[types.UID]bool
	// retriesNodes is true if users request a retry in the record.
	retriesNodes bool
	// failedSince are the failures of a run since its record was last removed, by run.
	failedSince map[string]int32
}

func newWishes() wishes {
	return wishes{skip: map[types.UID]string{}, bare: map[types.UID]bool{}, failedSince: map[string]int32{}}
}

// interrupt is a user's request on a node on which an attempt runs.
func (h *history) interrupt() {
	pods := h.podNames()
	if len(pods) == 0 {
		return
	}
	node := h.nodes[h.pods[pods[h.dice.Intn(len(pods))]].NodeName]
	if node == nil {
		return
	}
	switch h.dice.Intn(5) {
	case 0:
		h.skipNode(node)
	case 1:
		h.unrecord(node)
	case 2:
		h.unlabel(node)
	case 3:
		h.job = h.job.DeepCopy()
		h.askAll()
	default:
		h.job = h.job.DeepCopy()
		h.userEvent(h.dice.Intn(5))
	}
	h.changed(node)
}

// skipNode is a user who skips a node.
func (h *history) skipNode(node *Node) {
	h.say("%s is skipped", node.Name)
	if node.On.Label != h.rev {
		h.ask(node) // the label of the earlier revision is overwritten
		h.skip[node.UID] = h.rev
	}
	node.On.Label, node.On.Present = h.rev, true
	h.declared[node.UID] = h.rev
	h.claimed[string(node.UID)+"/"+h.rev] = true
}

// unrecord is a user who resets the count of attempts.
func (h *history) unrecord(node *Node) {
	if h.retryNode(node) {
		return
	}
	h.say("the annotation of %s is removed", node.Name)
	rec := node.On.Record
	node.On.Record = nil
	delete(h.recordedBegin, node.Name)
	delete(h.hasBegun, node.Name)
	if node.On.Label == "" || rec != nil && rec.Revision != node.On.Label {
		h.ask(node) // the label does not show it
	}
	if node.On.Label != "" {
		h.declared[node.UID] = node.On.Label
		h.claimed[string(node.UID)+"/"+node.On.Label] = true
	}
	node.On.Altered, node.On.Present = false, node.On.Label != "" || node.On.Sealed
	for _, rev := range []string{"rev1", "rev2", "rev3"} {
		delete(h.failedSince, run(node, rev))
		delete(h.ends, run(node, rev))
	}
}

// unlabel is a user who requests a rerun on a node that is done.
func (h *history) unlabel(node *Node) {
	if node.On.Label == "" {
		return
	}
	h.say("the label of %s is removed", node.Name)
	node.On.Label = ""
	delete(h.skip, node.UID)
	h.ask(node)
}

// checkWish checks that a node stays skipped, regardless of the attempt that runs there.
func (h *history) checkWish(before, after *Node) {
	wish, asked := h.skip[after.UID]
	switch {
	case !asked:
	case h.deleting() || before.On.Label != wish || wish != h.rev || before.On.Record != nil && before.On.Record.MachineID != after.MachineID:
		delete(h.skip, after.UID)
	case before.On.Record != nil && before.On.Record.Label == wish && !h.bare[after.UID]:
		// A user has requested a rerun by removing the label, and skipped it before a manager has seen that: on the node it
		// looks like another rerun, whose failure removes the label.
		delete(h.skip, after.UID)
	case after.On.Label != wish:
		h.break_("skip", "a user has skipped %s with the label %q, and a record has made it %q", after.Name, wish, after.On.Label)
	}
}

// bareNodes are the nodes that the manager sees without the label that it had set, while an attempt runs there.
func (h *history) bareNodes(in Input) []*Node {
	var bare []*Node
	for i := range in.Nodes {
		seen, node := &in.Nodes[i], h.nodes[in.Nodes[i].Name]
		rec := seen.On.Record
		if node == nil || node.ResourceVersion != seen.ResourceVersion || rec == nil || rec.Label == "" || rec.Label == seen.On.Label {
			continue
		}
		if slices.ContainsFunc(in.Pods, func(p Pod) bool { return p.NodeName == seen.Name && h.owed(&p) && h.onThisMachine(&p, seen) }) {
			bare = append(bare, node)
		}
	}
	return bare
}

// noteBare notes which of these nodes were not written to in vain, and did not get the label of a success in this pass.
func (h *history) noteBare(bare []*Node, failed map[*Node]bool) {
	for _, node := range bare {
		if !failed[node] && node.On.Label == "" {
			h.bare[node.UID] = true
		}
	}
}

// checkCount checks that failures from before a user's request do not count.
func (h *history) checkCount(node *Node, r *record.Record, pod *simPod, key string) {
	if r.Outcome != record.Failed {
		if r.Outcome == record.Succeeded {
			delete(h.failedSince, key)
		}
		return
	}
	seen := h.seen[node.Name]
	if was := seen.On.Record; was != nil && was.Outcome == record.Rebooting && was.MachineID != r.MachineID {
		// The run began on another machine, and fails on this one: earlier failures count too.
		h.failedSince[key] += h.failedSince[run(&Node{UID: node.UID, MachineID: was.MachineID}, r.Revision)]
	}
	h.failedSince[key]++
	if pod != nil && pod.NodeUID == node.UID && pod.Runs == task.Task && r.Attempts > h.failedSince[key] {
		h.break_(
			"retry",
			"attempt %d is recorded as failed on %s, and %d failed since a user removed the record",
			r.Attempts,
			node.Name,
			h.failedSince[key],
		)
	}
}

// scheduleMore makes the task rerun on a schedule until the end.
func (h *history) scheduleMore() {
	if !h.with(schedules) {
		return
	}
	h.job.Spec.Rerun.PeriodSeconds = []int32{40, 60, 200}[h.dice.Intn(3)]
	for i := range h.job.Spec.Rollout.Steps {
		if st := &h.job.Spec.Rollout.Steps[i]; i < len(h.job.Spec.Rollout.Steps)-1 && h.roll(2) {
			st.SoakSeconds = 60
		}
	}
}

// isScheduled reports whether every node reruns on a schedule.
func (h *history) isScheduled() bool { return h.job.Spec.Rerun.PeriodSeconds > 0 }

// allRan reports whether the revision is stable and was done on every matching node, or the status says what is wrong.
// A schedule starts the next run immediately.
func (h *history) allRan() bool {
	s := h.last.Status
	if isTrue(s, v1alpha1.ConditionStalled) || isTrue(s, v1alpha1.ConditionComplete) || s.Nodes.Total == 0 {
		return true
	}
	names, failed := sortedKeys(h.nodes), map[string]bool{}
	for _, st := range h.last.Nodes {
		failed[st.Name] = st.State == Failed // until a user requests a retry
	}
	return (!h.stableAt().IsZero() || h.stagingIsEmpty()) && !slices.ContainsFunc(names, func(name string) bool {
		node := h.nodes[name]
		return h.selected(node) && !h.isBad(node) && !barred(node) && node.On.Label != h.rev && !failed[name]
	})
}

// stagingIsEmpty reports whether the canaries take all nodes of the staging step, which then never passes. No node waits for it.
func (h *history) stagingIsEmpty() bool {
	r := h.last.Status.Rollout
	return r != nil && len(r.Steps) == 3 && r.Steps[1].Nodes == 0
}
