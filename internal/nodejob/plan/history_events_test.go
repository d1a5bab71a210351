// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// Events in the cluster of a history.

// event causes one event.
func (h *history) event() {
	h.now = h.now.Add(time.Duration(1000+h.rng.Intn(8000)) * time.Millisecond)
	node := h.pick()
	if node == nil {
		h.addNode("n0")
		return
	}
	if h.actorsHappen() {
		return
	}
	if h.more.Intn(3) == 0 && h.moreHappens(node) {
		return
	}
	switch what := h.rng.Intn(40); {
	case what < 8:
		h.nodeEvent(what, node)
	case what < 14:
		h.recordEvent(what-8, node)
	case what < 20:
		h.userEvent(what - 14)
	case what < 24:
		h.podEvent(what - 20)
	case what < 27:
		h.cordonEvent(what-24, node)
	case what == 27:
		h.now = h.now.Add(100 * time.Second)
		h.say("a long time passes")
	default:
		h.kubelets()
	}
}

func (h *history) nodeEvent(what int, node *Node) {
	defer h.changed(node)
	switch what {
	case 0:
		h.say("%s is unreachable", node.Name)
		h.ready(node, corev1.ConditionUnknown)
	case 1:
		h.say("%s is not ready", node.Name)
		h.ready(node, corev1.ConditionFalse)
	case 2, 3:
		h.say("%s is ready", node.Name)
		h.ready(node, corev1.ConditionTrue)
	case 4:
		h.say("%s reboots", node.Name)
		node.BootID = string(h.nextUID("boot"))
		h.backAt[node.BootID] = h.now
		h.killPods(node, "rebooted")
	case 5:
		h.say("%s is deleted", node.Name)
		delete(h.nodes, node.Name)
		if h.rng.Intn(2) == 0 {
			h.recreate(node)
		}
	case 6:
		h.addNode(fmt.Sprintf("n%d", h.rng.Intn(2*nodeCount)))
		h.say("a node joins")
	case 7:
		h.say("%s is re-imaged", node.Name)
		node.MachineID, node.BootID = string(h.nextUID("machine")), string(h.nextUID("boot"))
		h.backAt[node.BootID] = h.now
		delete(h.skip, node.UID)
		h.killPods(node, "the machine is gone")
	}
}

// recreate replaces a node by a new one with the same name.
func (h *history) recreate(node *Node) {
	h.addNode(node.Name)
	if h.rng.Intn(2) == 0 && !h.isBad(node) {
		h.say("%s is recreated on the same machine and boot", node.Name)
		again := h.nodes[node.Name]
		again.MachineID, again.BootID = node.MachineID, node.BootID
		for _, rev := range []string{"rev1", "rev2", "rev3"} {
			h.begunWith[run(again, rev)] = h.begunWith[run(node, rev)] // what runs continues there
		}
	} else {
		h.say("%s is recreated on another machine", node.Name)
	}
}

// recordEvent is a change of the record of a node by a user.
func (h *history) recordEvent(what int, node *Node) {
	defer h.changed(node)
	switch what {
	case 0:
		if node.On.Label != "" {
			h.unlabel(node)
		}
	case 1:
		h.unrecord(node)
	case 2:
		if h.rng.Intn(3) == 0 {
			h.skipNode(node)
		}
	case 3:
		if barred(node) {
			node.Taints = slices.DeleteFunc(slices.Clone(node.Taints), func(t corev1.Taint) bool { return bars(&t) })
			h.say("%s loses its taint", node.Name)
		} else {
			taint := corev1.Taint{Key: []string{"k", clusterAutoscalerTaint}[h.rng.Intn(2)], Effect: corev1.TaintEffectNoSchedule}
			node.Taints = append(slices.Clone(node.Taints), taint)
			h.say("%s is tainted with %s", node.Name, taint.Key)
		}
	case 4:
		h.relabel(node, "pool", []string{"a", "b"}[h.rng.Intn(2)])
	case 5:
		h.relabel(node, "stage", []string{"yes", "no"}[h.rng.Intn(2)])
	}
}

func (h *history) relabel(node *Node, key, value string) {
	node.Labels = maps.Clone(node.Labels)
	node.Labels[key] = value
	h.say("%s is labelled %s=%s", node.Name, key, value)
}

// userEvent is a change of the NodeJob by a user.
func (h *history) userEvent(what int) {
	h.job = h.job.DeepCopy()
	switch what {
	case 0:
		was := h.rev
		h.rev = []string{"rev1", "rev2", "rev3"}[h.rng.Intn(3)]
		h.job.Generation++
		h.say("the revision is %s", h.rev)
		if h.rev != was {
			h.beginRevision()
		}
	case 1:
		h.job.Spec.Suspend = !h.job.Spec.Suspend
		h.say("suspend is %v", h.job.Spec.Suspend)
	case 2:
		if h.obstacle == nil {
			h.obstacle = &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "ConfigMap ns/x does not exist"}
		} else {
			h.obstacle = nil
		}
		h.say("obstacle: %v", h.obstacle != nil)
	case 3:
		h.askAll()
	case 4:
		h.promote()
	case 5:
		if h.rng.Intn(12) == 0 && h.job.DeletionTimestamp.IsZero() {
			h.deleteJob()
		}
	}
}

// askAll requests a retry of every node that failed.
func (h *history) askAll() {
	h.job.Annotations = map[string]string{v1alpha1.RetryAnnotation: strconv.Itoa(h.uid)}
	h.uid++
	h.say("a user requests a retry of all failed nodes")
	clear(h.failures)
	clear(h.undoFailures)
	clear(h.ends)
	h.forgiven()
}

func (h *history) promote() {
	names := []string{""}
	for _, st := range h.job.Spec.Rollout.Steps {
		names = append(names, st.Name)
	}
	h.job.Spec.Rollout.PromoteTo = names[h.rng.Intn(len(names))]
	h.say("promoteTo is %q", h.job.Spec.Rollout.PromoteTo)
}

func (h *history) deleteJob() {
	h.job.DeletionTimestamp = &metav1.Time{Time: h.now}
	policies := []v1alpha1.DeletionPolicy{v1alpha1.DeletionForget, v1alpha1.DeletionRetain}
	if h.job.Spec.Rollback != nil {
		policies = append(policies, v1alpha1.DeletionRollback, v1alpha1.DeletionRollback)
	}
	h.job.Spec.DeletionPolicy = policies[h.rng.Intn(len(policies))]
	h.say("the NodeJob is deleted: %s", h.job.Spec.DeletionPolicy)
}

func (h *history) podEvent(what int) {
	switch what {
	case 0:
		h.deletePod("is deleted by hand")
	case 1:
		h.disrupt()
	default:
		h.kubelets()
	}
}

// cordonEvent is a cordon or uncordon by others.
func (h *history) cordonEvent(what int, node *Node) {
	defer h.changed(node)
	switch {
	case what == 0 && !node.Unschedulable && len(node.CordonedBy) == 0:
		h.say("a user cordons %s", node.Name)
		node.Unschedulable, h.byHand[node.UID] = true, true
	case what == 1 && node.Unschedulable:
		h.say("a user uncordons %s", node.Name)
		node.Unschedulable = false
		delete(h.byHand, node.UID)
	case what == 2 && slices.Contains(node.CordonedBy, otherKey):
		h.say("another NodeJob uncordons %s", node.Name)
		node.CordonedBy = slices.DeleteFunc(slices.Clone(node.CordonedBy), func(key string) bool { return key == otherKey })
		node.Unschedulable = len(node.CordonedBy) > 0
	case what == 2 && (!node.Unschedulable || len(node.CordonedBy) > 0):
		h.say("another NodeJob cordons %s", node.Name)
		by := []string{otherKey}
		if node.Unschedulable {
			by = append(by, node.CordonedBy...)
			slices.Sort(by)
		}
		node.CordonedBy, node.Unschedulable = by, true
	}
}

func (h *history) killPods(node *Node, why string) {
	for _, name := range h.podNames() {
		if pod := h.pods[name]; pod.NodeName == node.Name && !over(&pod.Pod) {
			// Kubelets report a lost container in different ways.
			h.end(pod, corev1.PodFailed, []*Exit{
				{Code: 255, Finished: h.by(node), Reason: "Error"}, {Code: 137, Lost: true}, nil,
			}[h.rng.Intn(3)], why)
		}
	}
}

// deletePod is a deletion by another client: the kubelet stops a running pod later.
func (h *history) deletePod(why string) {
	for _, name := range h.podNames() {
		if pod := h.pods[name]; pod.DeleteRequested.IsZero() {
			h.say("pod %s %s", name, why)
			pod.DeleteRequested = h.now
			return
		}
	}
}

func (h *history) disrupt() {
	for _, name := range h.podNames() {
		if pod := h.pods[name]; !over(&pod.Pod) {
			pod.Disrupted, pod.DisruptedReason = h.now, "EvictionByEvictionAPI"
			h.beginWork(pod)
			h.end(
				pod,
				corev1.PodFailed,
				&Exit{Code: 143, Finished: h.byPod(pod), Reported: true, Reason: outcome.ReasonDisrupted},
				"is evicted",
			)
			return
		}
	}
}

func (h *history) end(pod *simPod, phase corev1.PodPhase, exit *Exit, why string) {
	h.say("pod %s on %s ends %s (%s)", pod.Name, pod.NodeName, phase, why)
	if pod.Phase = phase; pod.inGap {
		pod.remember()
		return // its container had ended before, and its kubelet knows how
	}
	pod.Exit, pod.endedAt = exit, h.now
	h.noteTask(pod)
}

// kubelets simulates the kubelets of the nodes that are running.
func (h *history) kubelets() {
	for _, name := range h.podNames() {
		h.kubelet(name)
	}
	h.collect()
	h.endEarlier()
}

// kubelet is what the kubelet of its node does with a pod.
func (h *history) kubelet(name string) {
	pod := h.pods[name]
	node := h.nodes[pod.NodeName]
	switch {
	case node == nil:
		// Pod garbage collection.
		if pod.DeleteRequested.IsZero() {
			pod.DeleteRequested = h.now
		}
		pod.Phase = corev1.PodFailed
	case silent(node), h.isBad(node) && h.habit == "never ends a pod":
	case inGap(pod):
		h.closeGap(pod, node)
	case !over(&pod.Pod) && pod.Runs == task.Reboot && pod.DeleteRequested.IsZero():
		h.rebootNode(pod, node)
	case !over(&pod.Pod) && !pod.DeleteRequested.IsZero():
		h.end(
			pod,
			corev1.PodFailed,
			&Exit{Code: 143, Finished: h.by(node), Reported: true, Reason: outcome.ReasonDisrupted},
			"stopped by its kubelet",
		)
	case !over(&pod.Pod) && h.rng.Intn(3) > 0:
		h.complete(pod, node)
	}
}

// complete ends a pod in which nothing is interrupted.
func (h *history) complete(pod *simPod, node *Node) {
	if h.answers(pod, node) {
		return
	}
	pod.Started, pod.ran, pod.ranIn, pod.endedAt = h.by(node), true, node.BootID, h.now
	pod.Exit = &Exit{Finished: h.by(node), Reported: true, Results: h.someResults(pod)}
	pod.Phase = corev1.PodSucceeded
	if !pod.willSucceed {
		pod.Phase, pod.Exit.Code, pod.Exit.Reason = corev1.PodFailed, 3, outcome.ReasonTaskFailed
		if pod.Runs == task.Task && h.rng.Intn(4) == 0 {
			h.mayHaveBegun.fails(pod)
		}
	}
	h.say("%s of pod %s on %s ends %s", pod.Runs, pod.Name, pod.NodeName, pod.Phase)
	h.noteTask(pod)
	h.openGap(pod)
	if pod.Runs == task.Task && !pod.willSucceed && h.faults && h.rng.Intn(4) == 0 {
		h.say("and the node becomes unreachable")
		h.ready(node, corev1.ConditionFalse)
		h.changed(node)
	}
}
