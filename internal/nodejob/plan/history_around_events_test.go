// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// What happens around the task.

// moreHappens reports whether it has caused an event.
func (h *history) moreHappens(node *Node) bool {
	if h.plain {
		return false
	}
	switch what := h.more.Intn(20); {
	case what < 4:
		h.othersEvent(what, node)
	case what < 7:
		h.gateEvent(what-4, node)
	case what < 11:
		h.factEvent(what-7, node)
	case what < 14:
		h.specEvent(what - 11)
	case what == 14:
		h.land(node)
	case what == 15:
		h.sweep()
	case what == 16:
		h.rebootByOthers(node)
	default:
		h.ready(node, corev1.ConditionTrue)
		h.say("%s is well", node.Name)
		h.changed(node)
	}
	return true
}

// othersEvent is an event of other NodeJobs.
func (h *history) othersEvent(what int, node *Node) {
	switch {
	case what == 0 && h.other != "":
		h.otherDone(node)
	case what == 1 && h.dep != "":
		h.say("the dependency is done on %s", node.Name)
		h.setLabel(node, depKey, h.dep)
		h.changed(node)
	case what == 2 && h.other != "" && h.chance(3):
		h.other += "+"
		h.say("the other NodeJob has the revision %s", h.other)
	case what == 3 && h.dep != "" && h.chance(3):
		h.dep += "+"
		h.say("the dependency has the revision %s", h.dep)
	}
}

// otherDone lets the NodeJob with the shared gate succeed on a node. It opens the gate, unless it must wait for our
// NodeJob.
func (h *history) otherDone(node *Node) {
	h.say("the other NodeJob is done on %s", node.Name)
	h.setLabel(node, otherKey, h.other)
	h.changed(node)
	h.otherOpens(node)
}

// otherOpens lets the other NodeJob open a node where it is not pending any more, unless it must wait for our NodeJob.
func (h *history) otherOpens(node *Node) {
	isGate := func(t corev1.Taint) bool {
		return t.Key == sharedGate && t.Value == v1alpha1.GateValue && t.Effect == corev1.TaintEffectNoSchedule
	}
	awaited := !h.gone && h.shares() && h.selected(node) && !h.isDone(node)
	if h.other == "" || h.otherPending(node) || awaited || !slices.ContainsFunc(node.Taints, isGate) {
		return
	}
	h.say("the other NodeJob opens %s", node.Name)
	node.Taints = slices.DeleteFunc(slices.Clone(node.Taints), isGate)
	h.changed(node)
}

func (h *history) gateEvent(what int, node *Node) {
	switch what {
	case 0:
		if h.chance(4) && !h.registers { // a user whose kubelets register with the key of a gate does not change it
			h.job = h.job.DeepCopy()
			h.setGate()
			h.say("the gate is %+v", h.job.Spec.Gate)
		}
	case 1:
		h.policy = h.chance(2)
		h.say("the policy exists: %v", h.policy)
	case 2:
		// The API server may learn late that a gate was removed or changed.
		if h.chance(4) && node.Created.Add(5*time.Second).After(h.now) &&
			!slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return t.Key == sharedGate }) {
			h.say("%s is tainted for a gate, possibly an earlier one", node.Name)
			node.Taints = append(
				slices.Clone(node.Taints),
				corev1.Taint{Key: sharedGate, Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule},
			)
			h.changed(node)
		}
	}
}

// factEvent is a change of labels by others.
func (h *history) factEvent(what int, node *Node) {
	defer h.changed(node)
	_, there := node.Labels[sizeKey]
	taken := there || h.ours[node.UID][sizeKey]
	switch {
	case what == 0 && !taken && h.chance(3):
		h.say("a user labels %s with %s", node.Name, sizeKey)
		value := "somebodys"
		if h.adopt == v1alpha1.AdoptSameValue {
			value = "small" // some runs report this
		}
		h.setLabel(node, sizeKey, value)
	case what == 1 && there:
		h.say("a user removes %s from %s", sizeKey, node.Name)
		h.setLabel(node, sizeKey, "")
		if !h.ours[node.UID][sizeKey] {
			h.disown(node, sizeKey)
		}
	case what == 2 && !taken && h.chance(3):
		h.say("another NodeJob publishes %s on %s", sizeKey, node.Name)
		h.setLabel(node, sizeKey, "others")
		node.Published = node.Published.Clone()
		node.Published.Labels[sizeKey] = otherKey
	case what == 3 && h.chance(2):
		h.say("%s is labelled %s", node.Name, needsKey)
		h.setLabel(node, needsKey, "setup")
		if rec := node.On.Record; rec != nil && rec.RemovedLabels[needsKey] != "" {
			h.forgetSuccess(node)
		}
	}
}

func (h *history) disown(node *Node, key string) {
	node.Published = node.Published.Clone()
	delete(node.Published.Labels, key)
}

// wasRelabelled reports whether a user has set a label that a success removes since the manager looked. That requests another run.
func (h *history) wasRelabelled(node *Node) bool {
	_, saw := h.seen[node.Name].Labels[needsKey]
	_, is := node.Labels[needsKey]
	return is && !saw
}

// forgetSuccess handles a node on which a user requests another run.
func (h *history) forgetSuccess(node *Node) {
	for _, rev := range []string{"rev1", "rev2", "rev3"} {
		delete(h.succeeded, run(node, rev))
	}
}

// specEvent is what users do to the NodeJob.
func (h *history) specEvent(what int) {
	if !h.chance(3) || h.gone {
		return
	}
	h.job = h.job.DeepCopy()
	switch what {
	case 0:
		spec := &h.job.Spec
		if h.chance(2) {
			spec.Publish = nil
		} else {
			spec.Publish = []v1alpha1.PublishedResult{{Result: "kernel", Annotation: kernelKey}}
			if h.chance(2) {
				spec.Publish = append(spec.Publish, v1alpha1.PublishedResult{Result: "size", Label: sizeKey, Adopt: h.adopt})
			}
		}
		h.say("%d results are published", len(spec.Publish))
	case 1:
		soaks := slices.ContainsFunc(h.job.Spec.Rollout.Steps, func(st v1alpha1.RolloutStep) bool { return st.SoakSeconds > 0 })
		if h.job.Spec.Gate == nil && !soaks {
			h.rerunMore()
			h.say("reruns: %+v", h.job.Spec.Rerun)
		}
	case 2:
		h.disruptMore()
		h.someChecks()
		h.say("maintenance: %s", h.tellMore())
	}
}

// land starts a pod of another workload on a node, if nothing prevents it.
func (h *history) land(node *Node) {
	keepsOff := func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	if node.Unschedulable || node.Ready != corev1.ConditionTrue || slices.ContainsFunc(node.Taints, keepsOff) ||
		len(h.workloads[node.UID]) > 3 {
		return
	}
	h.workloads[node.UID] = append(
		slices.Clone(h.workloads[node.UID]),
		DrainPod{Namespace: "web", Name: string(h.nextUID("web")), UID: h.nextUID("web")},
	)
}

func (h *history) rebootByOthers(node *Node) {
	h.say("a user reboots %s", node.Name)
	h.comeBack(node)
	if h.chance(2) {
		h.ready(node, corev1.ConditionFalse)
	}
	h.changed(node)
}

// ready sets the node's Ready condition. A node that was shutting down is in another boot afterwards.
func (h *history) ready(node *Node, status corev1.ConditionStatus) {
	if status == corev1.ConditionTrue && h.goingDown[node.UID] {
		h.comeBack(node)
	}
	if status == corev1.ConditionTrue && node.Ready != status {
		node.ReadySince = h.by(node)
	}
	if node.Ready = status; status != corev1.ConditionTrue {
		node.ReadySince = time.Time{}
	}
}

func (h *history) comeBack(node *Node) {
	delete(h.goingDown, node.UID)
	node.BootID = string(h.nextUID("boot"))
	h.backAt[node.BootID] = h.now
	h.say("%s is in %s", node.Name, node.BootID)
	h.killPods(node, "rebooted")
}

// rebootNode is the runner that reboots its node: it checks the given boot ID first.
func (h *history) rebootNode(pod *simPod, node *Node) {
	defer h.about(node)()
	pod.Started = h.by(node)
	if node.BootID != pod.leaves {
		pod.Exit = &Exit{Finished: h.by(node), Reported: true}
		h.end(pod, corev1.PodSucceeded, pod.Exit, "the node is in another boot already")
		return
	}
	luck := 0
	if h.faults {
		luck = h.more.Intn(8)
	}
	if luck == 1 {
		h.end(
			pod,
			corev1.PodFailed,
			&Exit{Code: 1, Finished: h.by(node), Reported: true, Reason: outcome.ReasonRebootFailed, Message: "it stays up"},
			"cannot reboot",
		)
		return
	}
	if luck == 2 {
		return // it waits for something
	}
	id := string(pod.NodeUID) + "/" + pod.leaves
	if h.rebooted[id]++; h.rebooted[id] > 1 && !h.goingDown[pod.NodeUID] {
		h.break_("reboot", "%s is rebooted twice out of one boot", node.Name)
	}
	if pod.NodeUID == node.UID && !h.mayLeave(node, pod.leaves) {
		h.break_("reboot", "%s is rebooted out of %s, and the task has succeeded in %s", node.Name, pod.leaves, h.taskBoot[node.UID])
	}
	h.say("%s reboots", node.Name)
	switch {
	case luck < 6:
		h.comeBack(node)
		if luck == 3 {
			h.ready(node, corev1.ConditionFalse)
		}
	default:
		h.goingDown[node.UID] = true
		h.ready(node, corev1.ConditionUnknown)
	}
	h.changed(node)
}

// someResults are what a task reports that has run.
func (h *history) someResults(pod *simPod) map[string]string {
	if h.plain || pod.Runs != task.Task {
		return nil
	}
	results := map[string]string{"kernel": "6." + string('0'+rune(h.more.Intn(4)))}
	switch luck := h.more.Intn(8); {
	case luck == 0 && h.faults:
		results["size"] = badLabel
	case luck < 6:
		results["size"] = []string{"small", "large"}[luck%2]
	}
	if pod.Reboot == v1alpha1.RebootIfRequested && h.more.Intn(2) == 0 {
		results[outcome.RebootKey] = outcome.RebootValue
	}
	pod.results = results
	return results
}

// sweep is the part of the manager that removes from nodes what deleted NodeJobs left there. It reads from the API
// server directly.
func (h *history) sweep() {
	jobs := []*v1alpha1.NodeJob{}
	if !h.gone {
		jobs = append(jobs, h.job)
	}
	other := &v1alpha1.NodeJob{}
	other.Namespace, other.Name = "ns", "other"
	if h.other != "" {
		other.Spec.Gate = &v1alpha1.GateSpec{Key: sharedGate}
	}
	jobs = append(jobs, other)
	for _, name := range sortedKeys(h.nodes) {
		node := h.nodes[name]
		h.otherOpens(node)
		change := Orphaned(node, jobs)
		if change == nil {
			continue
		}
		before := *node
		if !h.change(node, *change) {
			h.break_("closed set of actions", "the sweeper does not know what it changes")
			continue
		}
		h.say("orphaned metadata is removed from %s", name)
		h.changed(node)
		h.checkSwept(&before, node)
		if _, known := h.cache.nodes[name]; known {
			h.wrote(node)
		}
	}
}

// changeLabels applies a change to published labels and annotations.
func (h *history) changeLabels(node *Node, c record.Change) {
	for _, key := range c.RemoveLabels {
		h.setLabel(node, key, "")
	}
	if c.Publish == nil {
		return
	}
	for key, value := range c.Publish.Labels {
		if value == nil {
			h.setLabel(node, key, "")
		} else {
			h.setLabel(node, key, *value)
		}
	}
	annotations := map[string]string{}
	maps.Copy(annotations, node.Annotations)
	for key, value := range c.Publish.Annotations {
		if value == nil {
			delete(annotations, key)
		} else {
			annotations[key] = *value
		}
	}
	node.Annotations, node.Published = annotations, c.Publish.Published.Clone()
}
