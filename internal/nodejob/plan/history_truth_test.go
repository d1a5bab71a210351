// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// The terms of docs/rules.md, as the oracle understands them. Nothing here calls a definition of the planner: a history
// knows what really happened, and the planner must find out.

const (
	// graceAfterDeadline is how long after its time limit an attempt may still hold its node.
	graceAfterDeadline = 10 * time.Second
	// evictEvery is how often a blocked eviction may be tried.
	evictEvery = 5 * time.Second
	// joinTime is how long a node joins: until then its taints and its state can change.
	joinTime = 10 * time.Minute
	// The maximum numbers of failures, drains and unrecorded failures in a status.
	mostFailures, mostDrains, mostCasualties = 10, 10, 32

	clusterAutoscalerTaint = "ToBeDeletedByClusterAutoscaler"
	cloudTaint             = "node.cloudprovider.kubernetes.io/uninitialized"
)

// truth is what really happened to the pods that the manager created, by their UID. Pods are never removed from it.
type truth struct {
	made map[types.UID]*simPod
	// began are the nodes on which the manager began a run.
	began map[types.UID]bool
	// ungated are the nodes that could carry workloads at some time since they were created.
	ungated map[types.UID]bool
	// lastTask is the task that started last on a machine, or that a check has found since to be unnecessary.
	lastTask map[string]lastTask
	// left are nodes on which a run waited for its reboot when a manager planned another revision, with the revision of the run.
	left map[types.UID]string
	// declared is the label of a node that a user has set or left without its record.
	declared map[types.UID]string
	// recordedResults are all results that were recorded on a machine of a node, by machine and revision.
	recordedResults map[string][]map[string]string
}

// lastTask is a pod of a task, and its revision, which others may change later.
type lastTask struct {
	pod      *simPod
	revision string
}

func newTruth() truth {
	return truth{
		made:            map[types.UID]*simPod{},
		began:           map[types.UID]bool{},
		ungated:         map[types.UID]bool{},
		lastTask:        map[string]lastTask{},
		left:            map[types.UID]string{},
		declared:        map[types.UID]string{},
		recordedResults: map[string][]map[string]string{},
	}
}

// noteTask notes that the task of a pod has started, or may have. No manager knows what happens in a pod after another client has changed it.
func (h *history) noteTask(pod *simPod) {
	if pod.Runs == task.Task && h.isMade(pod) && pod.answer != saysYes && pod.answer != saysError && !pod.NotStarted &&
		h.made[pod.UID] == pod {
		h.lastTask[pod.machine] = lastTask{pod, pod.Revision}
	}
}

// checkLastTask checks that no task of another revision has started on a node since it was done. A manager does not know what happened in a
// pod that another client has changed before its outcome was recorded.
func (h *history) checkLastTask(node *Node) {
	last := h.lastTask[node.MachineID]
	switch {
	case last.pod == nil, last.revision == h.rev, node.On.Label == h.declared[node.UID]:
	case !last.pod.recorded && (last.pod.tampered || !h.isMade(last.pod)):
	default:
		h.break_("truth", "%s is called done with %s, and the task of %s started there since", node.Name, h.rev, last.revision)
	}
}

// over reports whether no container of a pod runs or will run.
func over(pod *Pod) bool { return pod.Phase == corev1.PodSucceeded || pod.Phase == corev1.PodFailed }

// silent reports whether the control plane gets no status from the kubelet of a node.
func silent(node *Node) bool { return node.Ready == corev1.ConditionUnknown }

// goingAway reports whether a node will be removed, or was cordoned by a user.
func goingAway(node *Node) bool {
	byHand := node.Unschedulable && len(node.CordonedBy) == 0
	return node.Deleting || byHand || slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return t.Key == clusterAutoscalerTaint })
}

// owed reports whether the manager still has to record the outcome of a pod on its node.
func (h *history) owed(pod *Pod) bool {
	made := h.made[pod.UID]
	return made != nil && !made.recorded && !made.released && !made.tampered
}

// checkPrevious checks the results of the revision before the one that is recorded.
func (h *history) checkPrevious(node *Node, r *record.Record) {
	key := func(revision string) string { return run(&Node{UID: node.UID, MachineID: r.MachineID}, revision) }
	h.recordedResults[key(r.Revision)] = append(h.recordedResults[key(r.Revision)], r.Results)
	seen := h.cache.nodes[node.Name]
	p, was := r.Previous, seen.On.Record
	switch {
	case p != nil && (p.Revision == r.Revision || len(p.Results) == 0):
		h.break_("results", "%s has the results %v of %s, and its revision is %s", node.Name, p.Results, p.Revision, r.Revision)
	case p != nil && seen.UID == node.UID && !slices.ContainsFunc(h.recordedResults[key(p.Revision)], func(m map[string]string) bool { return maps.Equal(m, p.Results) }):
		h.break_("results", "%s has the results %v of %s, which it never wrote", node.Name, p.Results, p.Revision)
	case was != nil && was.MachineID == r.MachineID && was.Revision != r.Revision && len(was.Results) > 0 && (p == nil || p.Revision != was.Revision):
		h.break_("results", "%s forgets the results of %s", node.Name, was.Revision)
	case was != nil && was.MachineID == r.MachineID && was.Revision == r.Revision && was.Previous != nil && p == nil:
		h.break_("results", "%s forgets the results of %s", node.Name, was.Previous.Revision)
	}
}

// onThisMachine reports whether the work of a pod is on the machine behind the node: the pod was created for this
// machine of the Node, or, if the Node was recreated, for this boot of this machine.
func (h *history) onThisMachine(pod *Pod, node *Node) bool {
	made := h.made[pod.UID]
	if made == nil || made.machine != node.MachineID {
		return false
	}
	return made.NodeUID == node.UID || made.boot == node.BootID
}

// undoesRecord reports whether a pod is a rollback of the recorded attempt of the node.
func undoesRecord(pod *Pod, node *Node) bool {
	return pod.Runs == task.Rollback && node.On.Record != nil && node.On.Record.Revision == pod.Revision
}

// onItsWay reports whether a run with a reboot is recorded on the node.
func onItsWay(node *Node, revision string) bool {
	rec := node.On.Record
	return rec != nil && rec.Outcome == record.Rebooting && rec.Revision == revision
}

// portion is a number of nodes, or a percentage of them, rounded down.
func portion(limit *intstr.IntOrString, of int) int {
	if limit.Type == intstr.Int {
		return limit.IntValue()
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(limit.StrVal, "%"))
	if err != nil {
		panic(err)
	}
	return of * percent / 100
}

// counted is the number of nodes that match the NodeJob: selected, and not excluded by a taint before the first run
// there.
func (h *history) counted(in Input) int {
	n := 0
	for i := range in.Nodes {
		node := &in.Nodes[i]
		ran := node.On.Label == h.rev || node.On.Record != nil
		if h.selected(node) && (ran || !barred(node)) || h.works(in, node) || h.hadPod(in, node) || h.reboots(node) ||
			h.isBad(node) && h.hasPods(in, node.Name) {
			n++
		}
	}
	return n
}

// mayRunAtOnce is rollout.maxConcurrent as a number: at least one.
func (h *history) mayRunAtOnce(in Input, p Plan) int {
	of := h.counted(in)
	if h.deleting() {
		of = int(p.Status.Nodes.Total) // those that must be rolled back
	}
	return max(portion(h.job.Spec.Rollout.MaxConcurrent, of), 1)
}

// mayFailAtMost is rollout.maxFailures as a number.
func (h *history) mayFailAtMost(in Input) int {
	return portion(h.job.Spec.Rollout.MaxFailures, h.counted(in))
}

// atMost is the maximum number of nodes of a step: a percentage of the existing nodes, rounded up.
func (h *history) atMost(limit *intstr.IntOrString, in Input) int {
	return stepSize(limit, in, func(node *Node) bool { return h.selected(node) || h.hadPod(in, node) })
}

// atLeast is the minimum number: nodes that have joined since the step began, and those with a taint, may not be among them.
func (h *history) atLeast(limit *intstr.IntOrString, in Input) int {
	began := in.Now
	if r := h.job.Status.Rollout; r != nil {
		began = r.StepStartedAt.Time
	}
	return stepSize(limit, in, func(node *Node) bool {
		return h.selected(node) && !barred(node) && !node.Created.After(began)
	})
}

// stepSize is a number of nodes, or a percentage of these, rounded up.
func stepSize(limit *intstr.IntOrString, in Input, counts func(*Node) bool) int {
	if limit.Type == intstr.Int {
		return limit.IntValue()
	}
	n := 0
	for i := range in.Nodes {
		if counts(&in.Nodes[i]) {
			n++
		}
	}
	return max(1, (portion(limit, 100)*n+99)/100)
}

// mayBeStuck reports whether a node has made no progress for rollout.progressDeadlineSeconds, or nearly: it may count as
// failed, so that others take its place.
func (h *history) mayBeStuck(node *Node) bool {
	deadline := h.progressDeadline() - 3*time.Second
	over := func(since time.Time) bool { return !since.IsZero() && !h.now.Before(since.Add(deadline)) }
	if met := h.troubles[node.UID]; met != nil && met.TriedAt.Sub(met.Since) >= deadline {
		return true
	}
	if h.delayedByEarlier(node.Name, deadline) || h.lacksValue(node) && node.On.Record != nil && over(node.On.Record.EndedAt()) {
		return true
	}
	leaves := func(pod *Pod) bool {
		return pod.NodeName == node.Name && !pod.Finalized && over(pod.DeleteRequested.Add(pod.DeleteGrace))
	}
	for name, pod := range h.cache.pods {
		if live := h.pods[name]; leaves(&pod) || live != nil && leaves(&live.Pod) {
			return true // it should have ended long ago
		}
	}
	if rec := node.On.Record; rec != nil && rec.Revision == h.rev &&
		(silent(node) && over(rec.RecordedAt) || over(node.DeletingSince) ||
			node.Deleting && rec.Outcome != record.Succeeded && over(rec.RecordedAt)) {
		return true // a node that is being deleted cannot run again
	}
	last, known := h.ends[run(node, h.rev)]
	gone := silent(node) || node.Deleting || node.Ready == ""
	return known && (gone && over(last.since) || last.kind == record.Disrupted && last.at.Sub(last.since) >= deadline)
}

// progressDeadline is rollout.progressDeadlineSeconds.
func (h *history) progressDeadline() time.Duration {
	return seconds32(h.job.Spec.Rollout.ProgressDeadlineSeconds, 3600)
}

// seconds32 is a field of the spec in seconds.
func seconds32(p *int32, otherwise int32) time.Duration {
	if p != nil {
		otherwise = *p
	}
	return time.Duration(otherwise) * time.Second
}

// isTrue reports whether a condition is True in a status.
func isTrue(status v1alpha1.NodeJobStatus, kind string) bool {
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c.Status == "True"
		}
	}
	return false
}
