// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/plural"
)

// planDeletion plans for a NodeJob that is being deleted.
func (p *planner) planDeletion() {
	if p.rollsBackOnDeletion() {
		p.rollBackAll()
		p.plan.Nodes = p.states
		return
	}
	p.cleanUp()
}

// isDeleted reports whether the NodeJob is being deleted.
func (p *policy) isDeleted() bool { return !p.in.Job.DeletionTimestamp.IsZero() }

// rollsBackOnDeletion reports whether the task is rolled back before the NodeJob is deleted. In a namespace that is
// being deleted no pod can be created, so a rollback would block the deletion forever.
func (p *planner) rollsBackOnDeletion() bool {
	o := p.obstacleFor(task.Rollback)
	gone := o != nil && o.Reason == v1alpha1.ReasonNamespaceTerminating
	return p.in.Job.Spec.DeletionPolicy == v1alpha1.DeletionRollback && p.in.Job.Spec.Rollback != nil && !gone
}

// cleanUp releases the pods, and removes the records unless they are retained. It does not wait for anything that may
// never happen, so a deletion cannot hang: the finalizer of a pod is removed whether or not its kubelet responds. Only for pods on nodes
// that NodeDisruptionBudgets limit, it waits until their time to end is over.
func (p *planner) cleanUp() {
	p.plan.Status = *p.in.Job.Status.DeepCopy()
	used := p.holdUsedNodes()
	for i := range p.in.Pods {
		if needsFinalizerRemoval(&p.in.Pods[i]) {
			p.do(FinalizePod{Pod: p.in.Pods[i], Awaited: true})
		}
	}
	for i := range p.in.Nodes {
		node := &p.in.Nodes[i]
		if t := p.hindrance(node); t != nil && t.Reason == v1alpha1.ReasonRecordRejected {
			p.nodes[i].findings().problem = t
			p.plan.wake(t.Until)
		} else if p.in.Job.Spec.DeletionPolicy == v1alpha1.DeletionRetain {
			p.removeGateAndCordon(node)
		} else {
			p.removeMetadata(node)
		}
	}
	status := p.newStatus()
	p.plan.Status.NodeProblems = status.nodeProblems()
	switch {
	case len(status.troubled) > 0:
		text := fmt.Sprintf(BeingDeleted+"; what it has put on %s cannot be removed: %s", plural.Count(len(status.troubled), "node"), named(status.troubled))
		p.plan.Status.ObservedGeneration = p.in.Job.Generation
		status.setConditions(&p.plan.Status, summary{v1alpha1.ConditionStalled, status.troubleReason, text}, text)
	case len(used) > 0:
		text := fmt.Sprintf(BeingDeleted+"; its pods have not ended on %s: %s", plural.Count(len(used), "node"), named(used))
		p.plan.Status.ObservedGeneration = p.in.Job.Generation
		status.setConditions(&p.plan.Status, summary{v1alpha1.ConditionReconciling, v1alpha1.ReasonPodTerminating, text}, text)
	case !p.waitsForWrites():
		p.do(RemoveFinalizer{})
	}
}

// holdUsedNodes reports the nodes that pods still disrupt, so that they do not get their seats back. It returns those of them that
// NodeDisruptionBudgets limit. A pod that its kubelet does not end counts as ended StopSlack after its grace period.
func (p *planner) holdUsedNodes() (limited []string) {
	for i := range p.nodes {
		w, used := &p.nodes[i], false
		for _, pod := range p.podsOn[w.Name] {
			deleted := pod.DeleteRequested
			if deleted.IsZero() {
				deleted = p.in.Now // in this pass
			}
			until := deleted.Add(pod.DeleteGrace + StopSlack)
			if pod.Disrupts && !pod.over() && p.in.Now.Before(until) {
				used = true
				w.noteTerminating(pod.Runs, until)
				p.plan.wake(until)
			}
		}
		if !used {
			continue
		}
		p.hold(w)
		if p.in.Budgets[w.node.UID].Limited {
			limited = append(limited, w.Name)
		}
	}
	return limited
}

// forgetWithin is how long a deletion waits for the removal of what a node itself may have written. A node could write
// it repeatedly and block the deletion forever.
const forgetWithin = time.Minute

// waitsForWrites reports whether the NodeJob must continue to exist until the actions of the plan are done.
func (p *planner) waitsForWrites() bool {
	if len(p.plan.Actions) == 0 {
		return false
	}
	sealed := map[string]bool{}
	for i := range p.in.Nodes {
		sealed[p.in.Nodes[i].Name] = p.in.Nodes[i].On.Sealed
	}
	waited := !p.in.Now.Before(p.in.Job.DeletionTimestamp.Add(forgetWithin))
	return slices.ContainsFunc(p.plan.Actions, func(action Action) bool {
		a, forgets := action.(CleanUpNode)
		return !forgets || !waited || sealed[a.Node] || a.Taints != nil // a kubelet can write neither
	})
}

// removeMetadata removes what Everynode has set on a node, if anything.
func (p *pass) removeMetadata(node *Node) {
	c := p.cordons.changeOf(node)
	c.Forget = true
	c.Cordon, c.Taints, c.Publish = p.cordons.uncordon(node), p.gate.taintsWithoutGate(node), p.publisher.unpublish(node)
	if !node.On.Present && !c.Shared() {
		return
	}
	if c.Shared() {
		c.ResourceVersion = node.ResourceVersion
	}
	p.do(CleanUpNode{Node: node.Name, Change: c})
}

// removeGateAndCordon opens a node to workloads if its record is retained, because nothing else would do it later.
func (p *planner) removeGateAndCordon(node *Node) {
	mark := p.cordons.markOf(node, "", "")
	if mark.Taints = p.gate.taintsWithoutGate(node); mark.Taints != nil {
		mark.because(v1alpha1.ReasonGateOpened, "the NodeJob is deleted")
	}
	if mark.Cordon = p.cordons.uncordon(node); mark.Cordon != nil {
		mark.Reason, mark.Message = v1alpha1.ReasonUncordoned, "the cordon is no longer needed"
	}
	if mark.Reason != "" {
		p.do(mark)
	}
}

// taintsWithoutGate are the taints of a node without the gate of a NodeJob that is being deleted, regardless of who set
// the gate, since nothing else would remove it; on a node that it does not select, or must not change, only its own.
func (g *gate) taintsWithoutGate(node *Node) *record.Taints {
	return g.opened(node, g.allowsNode(node) && g.selector.Matches(labels.Set(node.Labels)))
}

// rollBackAll rolls the task back on every node where it has run, with the same limit of concurrent nodes, and removes
// the record of each node when its rollback succeeds. A node that is unavailable or where the rollback fails blocks the
// deletion: the user who deleted the NodeJob notices it, and the status says how to delete it without a rollback.
func (p *planner) rollBackAll() {
	for i := range p.nodes {
		p.assessor.assessNodeOnDeletion(&p.nodes[i])
	}
	p.removeOrphanedPods()
	p.startWithinLimit()
	p.reportHolds()
	for i := range p.nodes {
		if p.nodes[i].slot && !p.nodes[i].progressDeadlineExceeded {
			p.nodes[i].run(p.nodes[i].Reason, p.nodes[i].Message, p.nodes[i].Until)
		}
	}
	left := slices.ContainsFunc(p.in.Pods, func(pod Pod) bool { return needsFinalizerRemoval(&pod) })
	if !p.waitsForWrites() && !left && count(p.nodes).Total == 0 && len(p.holdUsedNodes()) == 0 {
		p.do(RemoveFinalizer{})
	}
	p.plan.Status = p.newStatus().deletionStatus()
	if isStalled(p.plan.Status) {
		// Something that is not watched, such as the deletion of the namespace, may unblock the deletion.
		p.plan.wake(p.in.Now.Add(deletionRecheckInterval))
	}
	p.recheck()
}

// assessNodeOnDeletion is assessNode for a NodeJob that is rolled back.
func (as *assessor) assessNodeOnDeletion(w *nodePlan) {
	as.assessPods(w)
	if !w.slot && !w.progressDeadlineExceeded {
		as.assessRollbackOnDeletion(w.terminating, w)
	}
	as.noteFailureOnDeletion(w)
	as.release(w)
	if late := w.terminatingSince.Add(StopSlack); as.in.Now.Before(late) {
		as.plan.wake(late)
	}
	as.plan.wake(w.Until)
}

// deletionRecheckInterval is how often a blocked deletion is checked.
const deletionRecheckInterval = 10 * time.Second

func isStalled(status v1alpha1.NodeJobStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled)
}

// assessRollbackOnDeletion gives a state to a node on which nothing runs. A node with nothing to roll back is Excluded.
func (as *assessor) assessRollbackOnDeletion(terminating bool, w *nodePlan) {
	rec := w.node.On.Record
	if rec == nil || rec.NeverStarted || as.replaced(w.node) || as.records.readRollback(rec).done {
		// The task never ran on this machine, or it is rolled back.
		w.exclude(v1alpha1.ReasonNothingToRollback, "there is nothing to roll back on it")
		as.removeMetadata(w.node)
		return
	}
	as.assessRollback(terminating, w)
}

// noteFailureOnDeletion notes a node on which the last attempt of the rollback failed.
func (as *assessor) noteFailureOnDeletion(w *nodePlan) {
	rec := w.node.On.Record
	if w.State == Excluded || rec == nil || rec.Rollback == nil || rec.Rollback.Outcome != record.Failed {
		return
	}
	if w.State != Failed {
		w.findings().rollbackRetried = rollbackFailure(w.node.Name, rec.Rollback)
	}
	if len(w.findings().failures) > 0 {
		return // an attempt runs, and has noted the failure
	}
	as.addRollbackFailure(w)
}

// addRollbackFailure adds that the last attempt of the rollback failed on a node.
func (as *assessor) addRollbackFailure(w *nodePlan) {
	rec := w.node.On.Record
	f := as.cordons.failureOf(w.node, w.State != Failed)
	if rec.Outcome == record.Succeeded { // only the rollback has failed
		rb := rec.Rollback
		f.Attempts, f.ExitCode, f.Reason, f.Message, f.FinishedAt = rb.Attempts, rb.ExitCode, outcome.Clean(rb.Reason, 128), "", metav1.NewTime(rb.FinishedAt)
	}
	f.Rollback, f.RollbackMessage = w.Reason, lastLine(rec.Rollback.Message)
	w.addFailure(f)
}

// BeingDeleted is the beginning of the messages of a NodeJob that is being deleted.
const BeingDeleted = "the NodeJob is being deleted"

// deletionStatus is the status of a NodeJob whose task is being rolled back.
func (sb *statusBuilder) deletionStatus() v1alpha1.NodeJobStatus {
	status := *sb.in.Job.Status.DeepCopy()
	status.ObservedGeneration = sb.in.Job.Generation
	status.Nodes = sb.counts
	status.Failures = sb.boundedFailures()
	status.Excluded, status.Drains, status.NodeProblems, status.Gate = nil, nil, sb.nodeProblems(), nil
	n := status.Nodes
	text := BeingDeleted + "; the task is rolled back, and the last records are being removed"
	if n.Total > 0 {
		text = fmt.Sprintf(BeingDeleted+"; on %s the task is still to be rolled back", plural.Count(n.Total, "node"))
	}
	if len(sb.rollbackRetried) > 0 {
		text += fmt.Sprintf("; the rollback failed on %s and is retried (%s)", plural.Count(len(sb.rollbackRetried), "node"), named(sb.rollbackRetried))
	}
	is := summary{v1alpha1.ConditionReconciling, v1alpha1.ReasonRollingBack, text}
	held := sb.deletionBlockers()
	switch {
	case sb.obstacleFor(task.Rollback) != nil && n.Total > 0:
		o := sb.obstacleFor(task.Rollback)
		reason := o.Reason
		if o.AllPhases { // who deletes the NodeJob with its objects must learn that the nodes stay as they are
			reason = v1alpha1.ReasonRollbackFailed
		}
		is = summary{v1alpha1.ConditionStalled, reason, text + ": " + o.Message + ". " + sb.deletionRemedy()}
	case len(sb.troubled) > 0 && (len(sb.troubled) == int(n.Total) || sb.slotsStuck() >= sb.capacity.slots):
		is = summary{v1alpha1.ConditionStalled, sb.troubleReason, text + ": " + named(sb.troubled) + ". " + sb.deletionRemedy()}
	case held != "":
		is = summary{v1alpha1.ConditionStalled, v1alpha1.ReasonRollbackFailed, text + ": " + held + ". " + sb.deletionRemedy()}
	}
	sb.setConditions(&status, is, text)
	return status
}

// deletionBlockers says what blocks the deletion if nothing continues automatically; "" if something does.
func (sb *statusBuilder) deletionBlockers() string {
	var held []string
	for i := range sb.nodes {
		st := &sb.nodes[i]
		switch {
		case st.progressDeadlineExceeded:
			held = append(held, st.Name+": "+st.Message)
		case st.State == Failed:
			held = append(held, st.Name+": the rollback has failed: "+rollbackCause(st.node.On.Record.Rollback))
		case st.State == Waiting && (st.rollbackFinished || sb.hindrance(st.node) != nil || sb.staysTooLong(st)):
			held = append(held, st.Name+": "+st.Message)
		case st.State == Waiting, st.State == Running:
			return ""
		}
	}
	return named(held)
}

// slotsStuck counts the slots of nodes that make no progress.
func (sb *statusBuilder) slotsStuck() int {
	n := 0
	for i := range sb.nodes {
		if sb.nodes[i].slot && sb.nodes[i].progressDeadlineExceeded {
			n++
		}
	}
	return n
}

// staysTooLong reports whether a pod of Everynode still exists on the node after it should have ended.
func (sb *statusBuilder) staysTooLong(w *nodePlan) bool {
	return !w.terminatingSince.IsZero() && !sb.in.Now.Before(w.terminatingSince.Add(StopSlack))
}

// deletionRemedy says how to continue the deletion.
func (sb *statusBuilder) deletionRemedy() string {
	return DeletionRemedies().Kubectl(sb.in.Job, sb.in.Revision)
}

// setConditions sets each condition. At most one of the first three is True.
func (sb *statusBuilder) setConditions(status *v1alpha1.NodeJobStatus, is summary, otherwise string) {
	for _, c := range sb.conditions(is, otherwise, status.Gate) {
		c.ObservedGeneration = sb.in.Job.Generation
		c.LastTransitionTime = metav1.NewTime(sb.in.Now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if sb.in.Job.Spec.Rollback == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionRollbackFailed)
	}
	if sb.gate.spec == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionGateEnforced)
	}
}

// rollbackFailure describes in one line how a rollback failed.
func rollbackFailure(node string, rb *record.Rollback) string {
	return node + ": " + rollbackCause(rb)
}

// rollbackCause is rollbackFailure without the node.
func rollbackCause(rb *record.Rollback) string {
	text := outcome.Clean(rb.Reason, 128)
	if rb.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *rb.ExitCode)
	}
	if line := lastLine(rb.Message); line != "" {
		text += ": " + line
	}
	return strings.TrimSpace(text)
}
