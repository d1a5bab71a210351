// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/plural"
)

// prepares reports whether a node is cordoned or drained before the task. A control plane node is cordoned for every task
// that disrupts it, so that other NodeJobs see this from before the task starts until the node is back.
func (j *job) prepares(node *Node) bool {
	d := &j.in.Job.Spec.Maintenance
	return d.Cordon || d.Drain != nil || j.disrupts() && isControlPlane(node)
}

// disrupts reports whether the task affects other workloads on a node.
func (p *policy) disrupts() bool { return Disrupts(p.in.Job) }

// Disrupts reports whether the task of a NodeJob affects other workloads on a node. Then it never disrupts two control plane nodes
// at once, so its plan depends on all of them, also on those that it does not select.
func Disrupts(job *v1alpha1.NodeJob) bool { return task.Disrupts(job) }

// inPreparation reports whether a node got its slot in an earlier pass and is being prepared.
func (c *capacity) inPreparation(w *nodePlan) bool {
	return w.start.phase == task.Task && c.isPrepared(w.node)
}

// isPrepared reports whether a node is cordoned, and maybe drained, before the task. It also does so for a node that stays cordoned
// after a failure.
func (j *job) isPrepared(node *Node) bool {
	if !node.Unschedulable || !j.prepares(node) {
		return false
	}
	_, drains := j.drainingSince(node)
	return drains || j.cordonedForUs(node)
}

// drainingSince is when the drain of the node before the task started, according to the status. The drain of an earlier
// node with the same name does not count, nor does a drain after a failure, which is on record.
func (j *job) drainingSince(node *Node) (time.Time, bool) {
	drains, rec := j.in.Job.Status.Drains, node.On.Record
	for i := range drains {
		since := drains[i].Since.Time
		switch {
		case drains[i].Node != node.Name:
		case since.Before(node.Created), rec != nil && rec.Drain != nil && !since.After(rec.Drain.StartedAt):
			return time.Time{}, false
		default:
			return since, true
		}
	}
	return time.Time{}, false
}

// startOrPrepare starts the attempt of a node that has a slot. If the task needs a cordoned or drained node, it prepares
// the node first, over several passes. The node has its slot from the beginning. The rest of the pass recognizes that by
// w.slot.
func (p *planner) startOrPrepare(w *nodePlan) {
	switch {
	case w.start.phase != task.Task:
		p.begin(w)
	case !p.prepares(w.node):
		p.beginTask(w)
	case p.mustCordon(w.node):
		p.cordonBefore(w)
	case p.in.Job.Spec.Maintenance.Drain == nil:
		p.beginTask(w)
	default:
		p.drainBefore(w)
	}
}

// beginTask starts the task. If a user has removed the label of the node, that is recorded first, so that the node is skipped if the user
// sets it again while the task runs.
func (p *planner) beginTask(w *nodePlan) {
	if p.lacksLabel(w.node) {
		p.preparing(w, "the removal of its label is recorded before the task")
		return
	}
	p.begin(w)
}

// mustCordon reports whether the node must be cordoned before the task: not if a user has uncordoned it meanwhile, but again if another tool
// has used it meanwhile.
func (p *planner) mustCordon(node *Node) bool {
	return (!p.cordonedForUs(node) || wasEvicted(node)) && p.cordons.cordon(node) != nil
}

// cordonBefore cordons a node before the task.
func (p *planner) cordonBefore(w *nodePlan) {
	mark := p.cordons.markOf(w.node, v1alpha1.ReasonPreparing, "it is cordoned before the task")
	mark.Cordon, mark.Before = p.cordons.cordon(w.node), new(p.attemptOn(w))
	if wasEvicted(w.node) { // by something that has uncordoned it since then
		r := *w.node.On.Record
		r.Reason = v1alpha1.ReasonDisrupted
		mark.Record = &r
	}
	p.mark(w, mark)
	p.capacity.toDrain++
	p.preparing(w, "it is cordoned before the task")
}

func (p *planner) preparing(w *nodePlan, message string) {
	w.slot, w.preparing = true, true
	p.capacity.busy++
	p.capacity.taskStarts++
	w.run(v1alpha1.ReasonPreparing, message, w.Until)
}

// drainBefore drains a node before the task, and starts the task when all pods are evicted from the node.
func (p *planner) drainBefore(w *nodePlan) {
	node, spec := w.node, p.in.Job.Spec.Maintenance.Drain
	since, known := p.drainingSince(node)
	if !known {
		if p.capacity.draining >= maxDrains {
			p.preparing(w, fmt.Sprintf("it waits until fewer than %d nodes are being drained", maxDrains))
			return
		}
		since = p.now().Time
		p.capacity.draining++
	}
	p.requestDrainPods(node, spec)
	look := p.cordons.readDrain(node, since, spec)
	switch {
	case look.empty:
		p.beginTask(w)
	case look.late:
		p.preparing(w, look.message())
		p.recordEnd(w, p.attempts.notDrained(w, since, look.message()))
	default:
		w.Until = look.status.Deadline.Time
		p.preparing(w, fmt.Sprintf("it is drained before the task; %s not evicted yet", plural.CountAre(look.status.Pods, "pod")))
		if blocked := blockedText(&look.status); blocked != "" {
			w.explain(v1alpha1.ReasonDrainBlocked, w.Message+"; "+blocked)
		}
		p.continueDrain(w, look, spec)
	}
}

// notDrained is the record of an attempt that never started because the node could not be drained.
func (a *attemptReader) notDrained(w *nodePlan, since time.Time, message string) record.Record {
	prev := w.node.On.Record
	r := record.Record{
		Revision: a.in.Revision, Digest: a.in.Digest, Outcome: record.Failed, Attempts: w.start.number, StartedAt: since, FinishedAt: a.in.Now,
		Reason: v1alpha1.ReasonDrainTimedOut, Message: message, BootID: w.node.BootID, MachineID: w.node.MachineID, Retry: a.retry,
		ChangedBy: a.in.author(), FirstStartedAt: a.firstStart(w.node, a.in.Revision),
	}
	if prev != nil {
		r.RemovedLabels, r.Rerun, r.Expiry = prev.RemovedLabels, a.isRerun(w.node, a.in.Revision), a.expiryOf(w.node, a.in.Revision)
	}
	return a.notStarted(w.node, r)
}

// countUnavailable counts the unavailable nodes: those that are not Ready, those that are cordoned, regardless of who
// cordoned them, and those with a slot of this NodeJob. A joining node does not count, since it was not available
// before.
func (c *capacity) countUnavailable() {
	if !c.disrupts() {
		return
	}
	matched := 0
	for i := range c.nodes {
		w := &c.nodes[i]
		if w.State == Excluded {
			continue
		}
		matched++
		if c.rollout.joinedAfterStable(w.node) && !w.slot {
			continue
		}
		w.Unavailable = w.slot || w.node.Unschedulable || w.node.Ready != corev1.ConditionTrue
		if w.Unavailable {
			c.unavailableNodes++
		}
	}
	c.maxUnavailableNodes = c.maxUnavailable(matched)
}

// unavailableMessage says which nodes use maintenance.maxUnavailable.
func (c *capacity) unavailableMessage() string {
	if c.unavailableNames == "" {
		var names []string
		for i := range c.nodes {
			if w := &c.nodes[i]; w.Unavailable {
				names = append(names, w.node.Name)
			}
		}
		slices.Sort(names) // the order of the nodes is random
		names = names[:min(len(names), maxNamed)]
		c.unavailableNames = strings.Join(names, ", ")
		if c.unavailableNodes > len(names) {
			c.unavailableNames += ", …"
		}
	}
	return fmt.Sprintf("%s not Ready, cordoned or at work (%s), and maintenance.maxUnavailable allows %d", plural.CountAre(c.unavailableNodes, "node"), c.unavailableNames, c.maxUnavailableNodes)
}

// maxUnavailable is how many of the matching nodes may be unavailable at the same time.
func (p *policy) maxUnavailable(matched int) int {
	const byDefault = 1
	value := p.in.Job.Spec.Maintenance.MaxUnavailable
	if value == nil {
		return byDefault
	}
	return scaled(value, matched, 1, roundDown)
}

// mustNotDisrupt says why the maintenance of a node must not start now although there is a slot. The task does not make
// a node unavailable that is already unavailable.
func (c *capacity) mustNotDisrupt(w *nodePlan) block {
	if !c.disrupts() {
		return block{}
	}
	if w.start.phase != task.Task {
		return c.mustNotRollBack(w)
	}
	other := c.unavailableControlPlane(w.node)
	switch {
	case other != "":
		return block{
			cause: causeControlPlane,
			Why:   hold.Why{Reason: v1alpha1.ReasonWaitingForControlPlane, Message: fmt.Sprintf("control plane node %s is not Ready, cordoned or at work, and only one is made unavailable at a time", other)},
		}
	case c.inPreparation(w):
		return block{}
	case c.comesLast(w):
		return block{cause: causeManagerNodeLast, Why: hold.Why{Reason: v1alpha1.ReasonManagerNodeLast, Message: "the manager runs on this node, so it is last"}}
	case !w.Unavailable && c.unavailableNodes >= c.maxUnavailableNodes && !c.rollout.joinedAfterStable(w.node):
		return block{cause: causeMaxUnavailable, Why: hold.Why{Reason: v1alpha1.ReasonMaxUnavailableReached, Message: c.unavailableMessage()}}
	case c.tooManyDrains():
		return block{cause: causeSlot, Why: hold.Why{Reason: v1alpha1.ReasonWaitingForSlot, Message: fmt.Sprintf("it waits until fewer than %d nodes are being drained", maxDrains)}}
	}
	return block{}
}

// mustNotRollBack is the same for a rollback, which counts as maintenance of its node. A deletion does not wait for
// other nodes.
func (c *capacity) mustNotRollBack(w *nodePlan) block {
	if w.Unavailable || c.unavailableNodes < c.maxUnavailableNodes || !c.in.Job.DeletionTimestamp.IsZero() {
		return block{}
	}
	return block{cause: causeRollback, Why: hold.Why{Reason: v1alpha1.ReasonRollbackPending, Message: c.unavailableMessage()}}
}

// comesLast reports whether a node must wait because the manager runs on it, and the task runs on another node or may
// start there for the first time.
func (c *capacity) comesLast(own *nodePlan) bool {
	if c.in.OwnNode != own.node.Name || !c.rollout.stableAt.IsZero() {
		return false
	}
	for i := range c.nodes {
		w := &c.nodes[i]
		if _, troubled := c.in.NodeProblems[w.node.UID]; w != own && !w.rerun && !w.progressDeadlineExceeded && !troubled && w.runsSoon() {
			return true
		}
	}
	return false
}

// tooManyDrains reports whether the limit of drains prevents the drain of a node that is cordoned now.
func (c *capacity) tooManyDrains() bool {
	return c.in.Job.Spec.Maintenance.Drain != nil && c.draining+c.toDrain >= maxDrains
}

// cordonedElse reports whether a node is cordoned for any other reason than an earlier failure of this NodeJob.
func (c *capacity) cordonedElse(node *Node) bool {
	return node.Unschedulable && !(len(node.CordonedBy) == 1 && c.cordonedForUs(node))
}

// unavailableControlPlane names the first other control plane node that is unavailable, whether or not it is selected, if the
// node is a control plane node; "" otherwise. Without a majority of its members etcd stops, and the API server with it.
func (c *capacity) unavailableControlPlane(node *Node) string {
	if !isControlPlane(node) || node.Ready != corev1.ConditionTrue {
		return ""
	}
	var names []string
	for i := range c.nodes {
		if w := &c.nodes[i]; w.node != node && isControlPlane(w.node) && c.isUnavailable(w) {
			names = append(names, w.node.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}

// isUnavailable reports whether a control plane node is not Ready, cordoned or at work.
func (c *capacity) isUnavailable(w *nodePlan) bool {
	return w.slot || w.taskTerminating || c.cordonedElse(w.node) || w.node.Ready != corev1.ConditionTrue || w.claims
}

// drainProgress is the observed progress of a drain.
type drainProgress struct {
	pods    []DrainPod
	empty   bool
	late    bool
	timeout time.Duration
	status  v1alpha1.NodeDrain
}

func (l *drainProgress) message() string { return drainTimeout(l.timeout, l.status) }

// requestDrainPods requests the pods of a node that is being drained.
func (p *pass) requestDrainPods(node *Node, spec *v1alpha1.DrainSpec) {
	p.plan.DrainPodRequests = append(p.plan.DrainPodRequests, DrainPodRequest{Node: node.Name, UID: node.UID, Drain: spec})
}

// drainTimeoutOf is the time limit of a drain.
func drainTimeoutOf(spec *v1alpha1.DrainSpec) time.Duration {
	return time.Duration(valueOr(spec.TimeoutSeconds, defaultDrainTimeoutSeconds)) * time.Second
}

// readDrain returns what is known about the pods of a node that is being drained.
func (co *cordons) readDrain(node *Node, since time.Time, spec *v1alpha1.DrainSpec) drainProgress {
	timeout := drainTimeoutOf(spec)
	deadline := co.past(since).Add(timeout)
	pods, looked := co.in.Drains[node.UID]
	pods = withoutArrivals(pods, since)
	blocked := co.blockedPods(node.Name, pods)
	return drainProgress{
		pods: pods, empty: looked && len(pods) == 0, late: !co.in.Now.Before(deadline), timeout: timeout,
		status: v1alpha1.NodeDrain{
			Node: node.Name, Since: metav1.NewTime(since), Deadline: metav1.NewTime(deadline),
			Pods: int32(len(pods)), Blocked: blocked, BlockedSince: co.blockedSince(node.Name, since, pods, blocked),
		},
	}
}

// withoutArrivals are the pods of a drain, of which it does not evict those that were placed on the node after it began: another tool works
// with them, and would create them again. It waits for their end.
func withoutArrivals(pods []DrainPod, since time.Time) []DrainPod {
	arrived := func(p DrainPod) bool { return p.EvictionRefused == "" && p.Placed.After(since.Add(time.Second)) } // clocks differ
	if !slices.ContainsFunc(pods, arrived) {
		return pods
	}
	pods = slices.Clone(pods)
	for i := range pods {
		if arrived(pods[i]) {
			pods[i].EvictionRefused = "it was placed on the cordoned node, so another tool may work there: the drain waits for its end"
		}
	}
	return pods
}

// continueDrain evicts the pods that may be evicted, and checks again later.
func (p *pass) continueDrain(w *nodePlan, l drainProgress, spec *v1alpha1.DrainSpec) {
	p.plan.wake(l.status.Deadline.Time)
	p.plan.wake(p.in.Now.Add(EvictionInterval))
	p.evict(w.node, l.pods, spec)
	w.findings().drain = &l.status
}
