// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Other tools that work on nodes: they drain a node, which evicts its seat or its task, work there, and uncordon it.

// otherWork is where other tools work.
type otherWork struct {
	// at are the nodes on which a tool works, by UID.
	at map[types.UID]work
}

// work is what a tool does on a node.
type work struct {
	// boot is that in which it began, and pod the pod of a task that it has evicted; "" if it has evicted the seat.
	boot string
	pod  types.UID
	// claimed is true if the NodeJob has claimed the node while it was broken. What has been claimed begins.
	claimed bool
}

func newOtherWork() otherWork { return otherWork{at: map[types.UID]work{}} }

// beginWork notes that a tool has evicted a pod of the NodeJob from a cordoned node.
func (h *history) beginWork(pod *simPod) {
	if node := h.nodes[pod.NodeName]; node != nil && node.UID == pod.NodeUID && pod.Runs == task.Task && node.Unschedulable && !pod.inGap {
		h.at[node.UID] = work{boot: node.BootID, pod: pod.UID}
	}
}

// drain is a tool that has evicted the seat of a node.
func (h *history) drain(node *Node) {
	if node.Unschedulable || len(node.CordonedBy) > 0 || h.rolls.Intn(2) == 0 {
		return
	}
	h.say("it has drained %s", node.Name)
	node.Unschedulable, h.byHand[node.UID], h.at[node.UID] = true, true, work{boot: node.BootID}
	h.changed(node)
}

// endWork lets a tool uncordon the node on which it has worked.
func (h *history) endWork(node *Node) {
	if _, works := h.at[node.UID]; !works {
		return
	}
	h.say("a tool uncordons %s", node.Name)
	node.Unschedulable = false
	delete(h.byHand, node.UID)
	h.changed(node)
}

// endAwaitedWork lets the tools end that nodes wait for, according to the plan.
func (h *history) endAwaitedWork() {
	for _, st := range h.last.Nodes {
		if node := h.nodes[st.Name]; node != nil && st.Reason == v1alpha1.ReasonNodeInUse {
			h.say("a user uncordons %s, as the status says", node.Name)
			node.Unschedulable = false
			delete(h.byHand, node.UID)
			h.changed(node)
		}
	}
}

// checkWork checks that no task starts, and no node is claimed or cordoned for one, where a tool works.
func (h *history) checkWork(p Plan) {
	for _, action := range p.Actions {
		switch a := action.(type) {
		case Start:
			if a.Attempt.Phase == task.Task {
				h.checkWorkOn(a.Attempt.NodeName, a.Attempt.NodeUID)
			}
		case Claim:
			h.checkWorkOn(a.Node, a.NodeUID)
			if w, works := h.at[a.NodeUID]; works {
				w.claimed = true
				h.at[a.NodeUID] = w
			}
		case PatchNode:
			if a.Before != nil {
				h.checkWorkOn(a.Node, a.UID)
			}
		}
	}
}

func (h *history) checkWorkOn(name string, uid types.UID) {
	node := h.real(name, uid)
	if node == nil || h.isBad(node) || !h.disrupts() {
		return
	}
	at, works := h.at[uid]
	rec := node.On.Record // without one of the pod, a user has removed it, or the eviction came too late
	known := at.pod == "" || rec != nil && rec.PodUID == at.pod && rec.Outcome == record.Disrupted
	drained := at.pod == "" && node.Ready != corev1.ConditionTrue // the tool may have left it broken
	if works && at.boot == node.BootID && known && !drained && !at.claimed {
		h.break_("rule 22", "a run begins on %s, where another tool works", name)
	}
}
