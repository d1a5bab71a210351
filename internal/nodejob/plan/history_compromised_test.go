// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// A compromised node does and claims what the API server lets its kubelet: it writes its own Node, but for taints and
// sealed labels, and the status, annotations and finalizers of the pods that are bound to it.

// villain is the compromised node.
type villain struct {
	bad types.UID
	// sealed is the last record that the manager wrote on it: only this text counts.
	sealed *record.Record
	// mirrors is true while it has pods of the names that the manager derives, and full while its annotations have
	// no room left.
	mirrors, full bool
	// habit is what it does repeatedly at the end of a history.
	habit string
	// lenient is true while rules are checked that concern only the compromised node: damage to itself is
	// allowed.
	lenient bool
}

// corrupt makes one of the first nodes a compromised one.
func (h *history) corrupt() {
	if h.with(compromised) {
		h.bad = h.nodes[[]string{"n0", "n2", "n5"}[h.dice.Intn(3)]].UID
		h.say("%s is compromised", h.badNode().Name)
	}
}

func (h *history) isBad(node *Node) bool { return node != nil && h.bad != "" && node.UID == h.bad }

// badNode is nil if the node was deleted.
func (h *history) badNode() *Node {
	for _, node := range h.nodes {
		if h.isBad(node) {
			return node
		}
	}
	return nil
}

// about sets the node that the following checks are about. The function that it returns ends that.
func (h *history) about(node *Node) func() {
	h.lenient = h.isBad(node)
	return func() { h.lenient = false }
}

// misbehave is an event of the compromised node.
func (h *history) misbehave() {
	node := h.badNode()
	if node == nil {
		return
	}
	h.ask(node) // nothing of what it did counts
	switch h.dice.Intn(10) {
	case 0:
		h.forge(node)
	case 1:
		label := []string{"", "rev1", "rev2", "rev3"}[h.dice.Intn(4)]
		h.say("%s says that it is done with %q", node.Name, label)
		node.On.Label, node.On.Present = label, true
		h.claimed[string(node.UID)+"/"+label] = true
	case 2:
		node.Unschedulable = !node.Unschedulable
		node.CordonedBy = [][]string{nil, {ownKey}, {otherKey, ownKey}}[h.dice.Intn(3)]
		h.say("%s cordons itself: %v, for %v", node.Name, node.Unschedulable, node.CordonedBy)
	case 3:
		node.BootID, node.MachineID = []string{"", "boot-x", string(h.nextUID("boot"))}[h.dice.Intn(3)], []string{node.MachineID, "", string(h.nextUID("machine"))}[h.dice.Intn(3)]
		h.say("%s reports boot %q of machine %q", node.Name, node.BootID, node.MachineID)
	case 4:
		node.Ready = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[h.dice.Intn(3)]
		node.ReadySince = h.anyTime()
		h.say("%s reports Ready=%s since %s", node.Name, node.Ready, node.ReadySince)
	case 6:
		h.mirrors = !h.mirrors
		h.say("%s takes the names of pods: %v", node.Name, h.mirrors)
	case 7:
		h.full = !h.full
		h.say("%s fills its annotations: %v", node.Name, h.full)
	case 5:
		h.relabel(node, "stage", []string{"yes", "no"}[h.dice.Intn(2)])
	default:
		h.tamper(node)
	}
	h.changed(node)
}

// isFull reports whether a write to the node is refused because its annotations are too large.
func (h *history) isFull(node *Node) bool {
	full := h.full && h.isBad(node)
	if full {
		h.say("%s has no room: too long", node.Name)
		h.trouble(node.UID, v1alpha1.ReasonRecordRejected, "too long", time.Second, 15*time.Second)
	}
	return full
}

// anyTime is a time that a node may report.
func (h *history) anyTime() time.Time {
	return []time.Time{{}, time.Unix(0, 0), h.now.Add(-time.Hour), h.now, h.now.Add(time.Hour), time.Date(2499, 1, 1, 0, 0, 0, 0, time.UTC)}[h.dice.Intn(6)]
}

// forge writes a record that does not match its seal, or restores the one that does.
func (h *history) forge(node *Node) {
	if h.roll(2) {
		h.say("%s restores its record", node.Name)
		node.On.Record, node.On.Altered = h.sealed, h.sealed == nil
	} else {
		h.say("%s forges its record", node.Name)
		node.On.Record, node.On.Altered = nil, true
	}
	node.On.Present = true
}

// tamper changes a pod that is bound to the node.
func (h *history) tamper(node *Node) {
	for _, name := range h.podNames() {
		pod := h.pods[name]
		if pod.NodeName != node.Name || !h.roll(2) {
			continue
		}
		switch h.dice.Intn(4) {
		case 0:
			h.say("%s removes the finalizer of pod %s", node.Name, name)
			pod.Recorded, pod.Finalized, pod.tampered = h.roll(2), false, true
		case 1:
			h.say("%s deletes pod %s", node.Name, name)
			if pod.DeleteRequested.IsZero() {
				pod.DeleteRequested = h.now
			}
		default:
			pod.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed, corev1.PodRunning}[h.dice.Intn(3)]
			pod.Started, pod.Exit, pod.tampered = h.anyTime(), nil, true
			if h.roll(2) {
				pod.Exit = &Exit{
					Code:     int32(h.dice.Intn(3)),
					Finished: h.anyTime(),
					Reported: h.roll(2),
					OwnWord:  h.roll(2),
					Lost:     h.roll(4),
				}
			}
			h.say("%s reports pod %s as %s, %+v", node.Name, name, pod.Phase, pod.Exit)
		}
		return
	}
}

// noteBegin notes that the manager has begun a run on a node.
func (h *history) noteBegin(node types.UID, phase task.Phase) {
	if phase == task.Task {
		h.began[node] = true
	}
}

// checkBegun checks that the manager started a run that continues or is rolled back, regardless of what the node says.
func (h *history) checkBegun(a task.Attempt) {
	if a.Phase != task.Task && !a.Phase.Asks() && !h.began[a.NodeUID] {
		h.break_("forgery", "%s starts on %s, where the manager has never begun a run", a.Phase, a.NodeName)
	}
}

// isStalled reports whether the status says what is missing, or names the compromised node. Rejected pods are no reason
// for other nodes to wait, except for those that wait for a step of a few nodes.
func (h *history) isStalled() bool {
	node := h.badNode()
	return slices.ContainsFunc(h.last.Status.Conditions, func(c metav1.Condition) bool {
		named := node != nil && strings.Contains(c.Message, node.Name)
		excuse := c.Reason == v1alpha1.ReasonPodForbidden && !h.inNumberedStep() && h.othersWait
		return c.Status == metav1.ConditionTrue && (named || c.Type == v1alpha1.ConditionStalled && !excuse)
	})
}

// inNumberedStep reports whether the rollout is in a step with a number of nodes.
func (h *history) inNumberedStep() bool {
	r := h.last.Status.Rollout
	return r != nil && r.StableAt.IsZero() && r.Step == "canary"
}

// othersAreDone reports whether all other nodes are done or failed, or the status says what is missing.
func (h *history) othersAreDone() bool {
	s := h.last.Status
	if h.isStalled() || isTrue(s, v1alpha1.ConditionComplete) || s.Nodes.Total == 0 {
		return true
	}
	state := map[string]State{}
	for _, st := range h.last.Nodes {
		state[st.Name] = st.State
	}
	return !slices.ContainsFunc(sortedKeys(h.nodes), func(name string) bool {
		node := h.nodes[name]
		refused := h.refuses != nil && h.refuses(task.Attempt{Phase: task.Task, NodeName: name})
		return h.selected(node) && !h.isBad(node) && !refused && !barred(node) && node.On.Label != h.rev && state[name] != Failed
	})
}

// habits are ways to block a rollout.
var habits = []string{
	"anything",
	"is lost",
	"is not ready",
	"cordons itself",
	"never ends a pod",
	"lets pods vanish",
	"forges its record",
	"reboots",
	"takes the names of pods",
	"has no room for annotations",
}

// persist lets the compromised node do the same repeatedly.
func (h *history) persist() {
	node := h.badNode()
	if node == nil {
		return
	}
	switch h.habit {
	case "anything":
		if h.roll(5) {
			h.misbehave()
		}
	case "is lost":
		node.Ready = corev1.ConditionUnknown
	case "is not ready":
		node.Ready = corev1.ConditionFalse
	case "cordons itself":
		node.Unschedulable, node.CordonedBy = true, nil
	case "lets pods vanish":
		for _, name := range h.podNames() {
			if pod := h.pods[name]; pod.NodeName == node.Name {
				pod.tampered = true
				delete(h.pods, name)
			}
		}
	case "forges its record":
		node.On.Record, node.On.Altered, node.On.Present = nil, true, true
	case "takes the names of pods":
		h.mirrors = true
	case "has no room for annotations":
		h.full = true
	case "reboots":
		node.BootID = string(h.nextUID("boot"))
	}
	h.ask(node)
	h.changed(node)
}

// deadlineMore makes a node without progress count as failed within the time of a history.
func (h *history) deadlineMore() {
	h.job.Spec.Rollout.ProgressDeadlineSeconds = new(int32(300))
}

// settleBeside ends a history with a compromised node, which continues as before.
func (h *history) settleBeside() {
	h.habit = habits[h.dice.Intn(len(habits))]
	h.say("from now on %s %s", h.badNode().Name, h.habit)
	if !h.deleting() {
		h.until("all other nodes are done, or the status says what is missing", h.othersAreDone)
		h.job = h.job.DeepCopy()
		h.deleteJob()
	}
	h.until("the NodeJob goes, or its status says why not", func() bool {
		return h.gone || isTrue(h.last.Status, v1alpha1.ConditionStalled)
	})
	if h.gone || h.broken != "" {
		return
	}
	h.refuses = nil
	h.job = h.job.DeepCopy()
	h.say("the rollback is removed from the spec")
	h.job.Spec.DeletionPolicy = v1alpha1.DeletionForget
	h.until("the NodeJob goes at last", func() bool { return h.gone })
}
