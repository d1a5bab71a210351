package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// What a history does with the actions of a plan.

func (h *history) do(action Action) {
	switch a := action.(type) {
	case Start:
		h.start(a)
	case Record:
		h.record(a)
	case Mark:
		h.mark(a)
	case Evict:
		h.evict(a)
	case Stop:
		h.say("pod %s is stopped (%s)", a.Pod.Name, a.Reason)
		if pod := h.pods[a.Pod.Name]; pod != nil && pod.DeleteRequested.IsZero() {
			pod.DeleteRequested = h.now
			h.cache.pods[pod.Name] = pod.Pod
		}
	case Release:
		h.release(a.Pod)
	case Keep:
		h.keep(a.Pod)
	case Forget:
		h.forget(a)
	case Finish:
		h.finish()
	default:
		h.break_("closed set of actions", "%T was not expected", action)
	}
}

func (h *history) start(a Start) {
	name := task.PodName(h.job, a.Attempt)
	if h.pods[name] != nil {
		h.break_("rule 1", "pod %s is made a second time", name)
		return
	}
	h.checkStart(a.Attempt)
	h.say("%s %d of %s starts on %s", a.Attempt.Phase, a.Attempt.Number, a.Attempt.Revision, a.Attempt.NodeName)
	pod := &simPod{willSucceed: h.rng.Intn(3) > 0 || !h.faults, Pod: Pod{
		Name: name, UID: h.nextUID("pod"), NodeName: a.Attempt.NodeName, NodeUID: a.Attempt.NodeUID,
		Machine: task.Machine(a.Attempt.MachineID, a.Attempt.BootID), Runs: a.Attempt.Phase, Retry: a.Attempt.Retry,
		Revision: a.Attempt.Revision, Attempt: a.Attempt.Number, Created: h.now, Finalized: true, Phase: corev1.PodPending,
	}, leaves: a.Attempt.BootID}
	if policy := task.RebootPolicy(h.job); a.Attempt.Phase == task.Task && policy != v1alpha1.RebootNever {
		pod.Reboot = policy
	}
	h.pods[name], h.cache.pods[name] = pod, pod.Pod
	h.started(a.Attempt)
}

// real is the node that a write is for; nil when it is gone, or another one by now.
func (h *history) real(name string, uid types.UID) *Node {
	if node := h.nodes[name]; node != nil && node.UID == uid {
		return node
	}
	return nil
}

func (h *history) record(a Record) {
	node := h.real(a.Node, a.UID)
	if node == nil {
		h.say("there is no %s any more to record on", a.Node)
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
	if decoded.Outcome == record.Succeeded {
		node.On.Label = decoded.Revision
	} else if a.DropLabel {
		node.On.Label = ""
	}
	h.write(node, &decoded)
	h.checkChange(&before, node, a.Change)
	switch let := !h.faults || h.rng.Intn(6) > 0; {
	case let && a.Keep:
		h.keep(a.Pod)
	case let:
		h.release(a.Pod)
	}
}

func (h *history) write(node *Node, rec *record.Record) {
	node.On.Record, node.On.Present = rec, rec != nil || node.On.Label != ""
	h.changed(node)
	h.wrote(node)
}

func (h *history) mark(a Mark) {
	node := h.real(a.Node, a.UID)
	if node == nil {
		return
	}
	before := *node
	if !h.change(node, a.Change) {
		return
	}
	h.say("%s", tell(a))
	h.checkMark(node, a)
	if a.Record != nil {
		decoded, err := record.Decode(record.Encode(*a.Record))
		if err != nil {
			h.break_("record", "%v", err)
			return
		}
		node.On.Record = &decoded
	}
	h.write(node, node.On.Record)
	h.checkChange(&before, node, a.Change)
}

// change writes what others write as well; false when the node has changed since it was seen, so that
// nothing is written.
func (h *history) change(node *Node, change record.Change) bool {
	if change.Shared() && !change.Guarded() {
		h.break_("rule 9", "%s is changed in what others write, too, without a look at what it is", node.Name)
	}
	if change.Guarded() && change.ResourceVersion != node.ResourceVersion {
		h.say("%s has changed meanwhile: conflict", node.Name)
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

func (h *history) forget(a Forget) {
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
	node.On = record.OnNode{}
	h.write(node, nil)
	h.checkChange(&before, node, a.Change)
}

func (h *history) release(pod Pod) {
	live := h.pods[pod.Name]
	if live == nil || live.UID != pod.UID {
		return
	}
	h.checkRelease(pod)
	live.Finalized = false
	if live.DeleteRequested.IsZero() {
		live.DeleteRequested = h.now
	}
	h.cache.pods[pod.Name] = live.Pod
}
