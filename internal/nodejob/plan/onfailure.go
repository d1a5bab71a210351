// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/plural"
)

const (
	// EvictionInterval is how often the pods of a node that is being drained are checked, and how often the eviction of a
	// blocked pod is retried. kubectl drain waits as long.
	EvictionInterval = 5 * time.Second

	defaultDrainTimeoutSeconds = 600

	// maxDrains bounds the drains that run at the same time, maxBlocked the number of blocked pods that are named for each
	// node, and maxBlockedMessage, in bytes, the message for each pod.
	maxDrains         = 10
	maxBlocked        = 3
	maxBlockedMessage = 256

	// drainBlockedAfter is how long a pod must not be evicted until its drain counts as blocked: a PodDisruptionBudget often
	// allows the next eviction when the pods that were evicted before run elsewhere.
	drainBlockedAfter = 30 * time.Second
)

// cordons determines what is written to a node to cordon and uncordon it.
type cordons struct{ *job }

// quarantiner cordons and drains failed nodes, and ends their quarantine.
type quarantiner struct{ *pass }

// quarantine applies onFailure.action to failed nodes, and ends the quarantine of the others. The progress is stored on
// the Node, so a new manager continues from there.
func (q *quarantiner) quarantine() {
	for i := range q.nodes {
		if w := &q.nodes[i]; !w.written {
			q.reconcileQuarantine(w)
		}
	}
}

// leaves reports whether onFailure.action leaves failed nodes as they are.
func (q *quarantiner) leaves() bool {
	policy := q.in.Job.Spec.OnFailure.Action
	return policy == "" || policy == v1alpha1.FailureActionNone
}

// willCordon reports whether a failed node is cordoned by this or the next pass.
func (q *quarantiner) willCordon(w *nodePlan) bool {
	return w.exhausted && !q.leaves() && q.serves(w.node) && !w.node.On.Record.Cordoned && q.cordons.cordon(w.node) != nil
}

func (q *quarantiner) reconcileQuarantine(w *nodePlan) {
	policy, leave := q.in.Job.Spec.OnFailure.Action, q.leaves()
	switch {
	case w.exhausted && !leave && !q.serves(w.node): // a cordon stays, and a drain stops
	case w.exhausted && !leave:
		q.cordonAndDrain(w, policy == v1alpha1.FailureActionDrain)
	case q.retainsCordon(w):
	case leave, w.State == Done, w.State == Excluded, q.wasPrepared(w.node):
		q.endQuarantine(w, false)
	case q.cordonedForUs(w.node) && !w.node.Unschedulable:
		q.endQuarantine(w, true)
	}
	// While the task is retried, the node stays cordoned until it succeeds.
}

// retainsCordon reports whether a node stays cordoned although it has not finally failed: an attempt is being prepared,
// runs there, or will run again.
func (q *quarantiner) retainsCordon(w *nodePlan) bool {
	switch {
	case !q.prepares(w.node):
		return false
	case w.exhausted:
		return !w.rollbackFinished // what the task did there must still be rolled back
	case w.slot, w.claims:
		return true
	case w.progressDeadlineExceeded, w.State != Waiting:
		return false
	case q.waitsForPods(w) && q.wasPrepared(w.node) && w.node.Unschedulable:
		return true // its pods are not evicted a second time when it continues
	}
	return q.waitsForStance(w) || w.ranRevision && q.waitsForRetry(w)
}

// waitsForStance reports whether a node that is prepared continues as soon as the manager knows what its NodeDisruptionBudgets allow.
func (q *quarantiner) waitsForStance(w *nodePlan) bool {
	return w.cause == causeBudget && q.in.Budgets[w.node.UID].Unknown && q.wasPrepared(w.node)
}

// waitsForPods reports whether a node continues as soon as the API server accepts pods, which is tried again and again.
func (q *quarantiner) waitsForPods(w *nodePlan) bool {
	return q.obstacle != nil && !q.obstacle.Until.IsZero() && !q.rollout.stopped && !w.waitsForRollout()
}

// waitsForRetry reports whether the attempt on record has run on its node, and another one will.
func (q *quarantiner) waitsForRetry(w *nodePlan) bool {
	if w.node.On.Record.Reason == v1alpha1.ReasonDrainTimedOut {
		return false
	}
	return w.cause == causeBackoff || w.cause == causeTerminatingPod || w.cause == causeInUse || w.cannotRun()
}

// cordonedForUs reports whether Everynode has cordoned the node for this NodeJob, and maybe for others.
func (j *job) cordonedForUs(node *Node) bool { return slices.Contains(node.CordonedBy, j.key) }

// wasPrepared reports whether a node was cordoned before a task, and not because of a failure. If the task cannot
// start, for example under spec.suspend, the node is uncordoned.
func (j *job) wasPrepared(node *Node) bool {
	return j.cordonedForUs(node) && j.prepares(node) && !(node.On.Record != nil && node.On.Record.Cordoned)
}

// cordon is the change that cordons the node for this NodeJob; nil if it is already cordoned for this NodeJob, or if
// others have cordoned it: then Everynode must not uncordon it.
func (co *cordons) cordon(node *Node) *record.Cordon {
	switch {
	case !node.Unschedulable:
		return &record.Cordon{By: []string{co.key}}
	case len(node.CordonedBy) == 0 || co.cordonedForUs(node):
		return nil
	}
	by := append(slices.Clone(node.CordonedBy), co.key)
	slices.Sort(by)
	return &record.Cordon{By: by}
}

// uncordon is the change that removes the cordon of this NodeJob; nil if there is none. The node stays cordoned while
// another NodeJob needs it.
func (co *cordons) uncordon(node *Node) *record.Cordon {
	if !co.cordonedForUs(node) {
		return nil
	}
	by := slices.DeleteFunc(slices.Clone(node.CordonedBy), func(key string) bool { return key == co.key })
	if !node.Unschedulable {
		by = nil // a user has uncordoned it for all
	}
	return &record.Cordon{By: by}
}

// cordonAndDrain quarantines a failed node: it is cordoned immediately, so that no new pod is scheduled there, and
// drained when the rollback has ended.
func (q *quarantiner) cordonAndDrain(w *nodePlan, drain bool) {
	node := w.node
	r := *node.On.Record
	switch {
	case !node.Unschedulable && (r.Cordoned || q.cordonedForUs(node)):
		q.endQuarantine(w, true)
		return
	case !drain && drains(&r):
		mark := q.cordons.markOf(node, v1alpha1.ReasonDrainCancelled, "onFailure.action is not Drain any more")
		mark.Record = q.cordons.cancelled(r)
		q.mark(w, mark)
		return
	}
	if mark := q.beginning(w, r, drain); mark.Record != nil {
		q.mark(w, mark)
	} else if drains(&r) {
		q.drain(w, r)
	}
}

// beginning is the write with which the cordon, the drain, or both start; without a record if neither does.
func (q *quarantiner) beginning(w *nodePlan, r record.Record, drain bool) PatchNode {
	node := w.node
	mark := q.cordons.markOf(node, "", "")
	if !r.Cordoned {
		mark.Cordon = q.cordons.cordon(node)
	}
	if mark.Cordon != nil || (!r.Cordoned && q.cordonedForUs(node)) { // it may have been cordoned before the task
		mark.Reason, mark.Message = v1alpha1.ReasonCordoned, "the task has failed on it"
		r.Cordoned, mark.Record = true, &r
	}
	if drain && w.rollbackFinished && q.mayDrain(node, &r) {
		q.capacity.draining++
		mark.Reason, mark.Message = v1alpha1.ReasonDraining, "the task has failed on it, and its pods are evicted"
		r.Drain, mark.Record = &record.Drain{StartedAt: q.now().Time}, &r
	}
	return mark
}

// endQuarantine ends the quarantine of a node that no longer needs it, or that a user has uncordoned. It does not
// cordon that node a second time.
func (q *quarantiner) endQuarantine(w *nodePlan, byHand bool) {
	mark := q.cordons.markOf(w.node, v1alpha1.ReasonUncordoned, "the cordon is no longer needed")
	mark.Cordon = q.cordons.uncordon(w.node)
	if byHand {
		mark.Message = "it was uncordoned by a user or another tool, and is not cordoned again for this failure"
	}
	// Only failures have a quarantine. A change of the record of a success would restore the label.
	if rec := w.node.On.Record; rec != nil && rec.Outcome == record.Failed && (drains(rec) || rec.Cordoned != (byHand && w.exhausted)) {
		r := *rec
		r.Cordoned = byHand && w.exhausted
		mark.Record = &r
		if drains(rec) {
			mark.Record = q.cordons.cancelled(r)
		}
	}
	if mark.Cordon != nil || mark.Record != nil {
		q.mark(w, mark)
	}
}

// markOf is a mark on the node as it was seen.
func (co *cordons) markOf(node *Node, reason, message string) PatchNode {
	c := co.changeOf(node)
	c.ResourceVersion = node.ResourceVersion
	return PatchNode{Node: node.Name, Change: c, Reason: reason, Message: message}
}

// changeOf is a write to the node in the name of this NodeJob.
func (co *cordons) changeOf(node *Node) record.Change {
	return record.Change{UID: node.UID, Key: co.key}
}

// mark plans the only write to the node in this pass.
func (p *pass) mark(w *nodePlan, mark PatchNode) {
	p.do(mark)
	w.written = true
}

// drains reports whether a drain is on record that has not ended.
func drains(r *record.Record) bool { return r.Drain != nil && r.Drain.FinishedAt.IsZero() }

// mayDrain reports whether a drain may start. The number of drains is limited, because each of them is checked
// repeatedly.
func (q *quarantiner) mayDrain(node *Node, r *record.Record) bool {
	again := r.Drain != nil && r.Drain.Outcome == v1alpha1.ReasonDrainCancelled && q.cordonedForUs(node)
	return (r.Drain == nil || again) && q.capacity.draining < maxDrains && q.suspendedReason() == ""
}

// cancelled is the record after its drain was cancelled.
func (co *cordons) cancelled(r record.Record) *record.Record {
	r.Drain = &record.Drain{StartedAt: r.Drain.StartedAt, FinishedAt: co.now().Time, Outcome: v1alpha1.ReasonDrainCancelled}
	return &r
}

// drain continues the drain of a node by one check.
func (q *quarantiner) drain(w *nodePlan, r record.Record) {
	node, d := w.node, *r.Drain
	spec := q.in.Job.Spec.OnFailure.Drain
	if spec == nil {
		spec = &v1alpha1.DrainSpec{}
	}
	q.requestDrainPods(node, spec)
	look := q.cordons.readDrain(node, d.StartedAt, spec)
	mark := q.cordons.markOf(node, "", "")
	d.FinishedAt = q.now().Time
	switch {
	case look.empty:
		mark.Reason, mark.Message = v1alpha1.ReasonDrained, "all its pods are evicted"
	case look.late:
		mark.Reason, mark.Message = v1alpha1.ReasonDrainTimedOut, look.message()+"; the node stays cordoned"
	default:
		q.continueDrain(w, look, spec)
		return
	}
	d.Outcome = mark.Reason
	r.Drain, mark.Record = &d, &r
	q.mark(w, mark)
}

func drainTimeout(timeout time.Duration, status v1alpha1.NodeDrain) string {
	parts := []string{fmt.Sprintf("%s not evicted within %d s", plural.Count(status.Pods, "pod"), timeout/time.Second)}
	for _, b := range status.Blocked {
		parts = append(parts, b.Pod+": "+b.Message)
	}
	return strings.Join(parts, "; ")
}

// evict requests the eviction of the pods that may be evicted and for which it was not requested recently.
func (p *pass) evict(node *Node, pods []DrainPod, spec *v1alpha1.DrainSpec) {
	if p.suspendedReason() != "" {
		return
	}
	e := Evict{Node: node.Name}
	if grace := spec.GracePeriodSeconds; grace != nil {
		e.GracePeriodSeconds = new(int64(*grace))
	}
	for i := range pods {
		pod := &pods[i]
		if !pod.Terminating && pod.EvictionRefused == "" && !p.in.Now.Before(pod.TriedAt.Add(EvictionInterval)) {
			e.Pods = append(e.Pods, *pod)
		}
	}
	// The pods with the oldest try come first, in case there is not enough time for all.
	slices.SortStableFunc(e.Pods, func(a, b DrainPod) int { return a.TriedAt.Compare(b.TriedAt) })
	if len(e.Pods) > 0 {
		p.do(e)
	}
}

// blockedPods are the pods that block a drain, and since when, by name. Pods that the status named before come first,
// so that the status is stable.
func (co *cordons) blockedPods(node string, pods []DrainPod) []v1alpha1.BlockedPod {
	since := map[string]metav1.Time{}
	for i := range co.in.Job.Status.Drains {
		if d := &co.in.Job.Status.Drains[i]; d.Node == node {
			for _, b := range d.Blocked {
				since[b.Pod] = b.Since
			}
		}
	}
	var blocked []v1alpha1.BlockedPod
	for i := range pods {
		message := firstOf(pods[i].EvictionRefused, pods[i].Blocked)
		if message == "" || pods[i].Terminating {
			continue
		}
		b := v1alpha1.BlockedPod{Pod: pods[i].Namespace + "/" + pods[i].Name, Since: co.now(), Message: outcome.Clean(message, maxBlockedMessage)}
		if known, ok := since[b.Pod]; ok {
			b.Since = known
		}
		blocked = append(blocked, b)
	}
	slices.SortFunc(blocked, func(a, b v1alpha1.BlockedPod) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Pod, b.Pod))
	})
	return blocked[:min(len(blocked), maxBlocked)]
}

// blockedSince is since when a drain is blocked; zero while it is not.
func (co *cordons) blockedSince(node string, since time.Time, pods []DrainPod, blocked []v1alpha1.BlockedPod) metav1.Time {
	refused := slices.ContainsFunc(pods, func(pod DrainPod) bool { return pod.EvictionRefused != "" && !pod.Terminating })
	waited := slices.ContainsFunc(blocked, func(b v1alpha1.BlockedPod) bool { return !co.in.Now.Before(b.Since.Add(drainBlockedAfter)) })
	if !refused && !waited {
		return metav1.Time{}
	}
	for i := range co.in.Job.Status.Drains {
		if d := &co.in.Job.Status.Drains[i]; d.Node == node && d.Since.Time.Equal(since) && !d.BlockedSince.IsZero() {
			return d.BlockedSince
		}
	}
	return co.now()
}

// blockedText names a pod that blocks a drain, and what protects it; "" if the drain is not blocked.
func blockedText(d *v1alpha1.NodeDrain) string {
	if d.BlockedSince.IsZero() || len(d.Blocked) == 0 {
		return ""
	}
	return d.Blocked[0].Pod + ": " + d.Blocked[0].Message
}

// DrainBlocked says which drains of a status have become blocked since an earlier status of the NodeJob, by node.
func DrainBlocked(before, after *v1alpha1.NodeJobStatus) map[string]string {
	messages := map[string]string{}
	for i := range after.Drains {
		d := &after.Drains[i]
		known := slices.ContainsFunc(before.Drains, func(b v1alpha1.NodeDrain) bool { return b.Node == d.Node && b.BlockedSince.Equal(&d.BlockedSince) })
		if text := blockedText(d); text != "" && !known {
			messages[d.Node] = fmt.Sprintf("its drain is blocked, and ends without success at %s: %s", d.Deadline.UTC().Format(time.RFC3339), text)
		}
	}
	return messages
}

// quarantineState is the progress of the quarantine of a failed node, as status.failures shows it; "" if the node is
// not quarantined.
func (co *cordons) quarantineState(node *Node) string {
	if rec := node.On.Record; rec.Drain != nil {
		if drains(rec) {
			return v1alpha1.ReasonDraining
		}
		if rec.Drain.Outcome != v1alpha1.ReasonDrainCancelled {
			return rec.Drain.Outcome
		}
	}
	if co.cordonedForUs(node) {
		return v1alpha1.ReasonCordoned
	}
	return ""
}
