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
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// planDeletion plans for a NodeJob that is being deleted.
func (s *planner) planDeletion() {
	if s.rollsBackOnDeletion() {
		s.rollBackAll()
		s.plan.Nodes = s.states()
		return
	}
	s.cleanUp()
}

// rollsBackOnDeletion reports whether the task is rolled back before the NodeJob is deleted. In a namespace that is
// being deleted no pod can be created, so a rollback would block the deletion forever.
func (s *job) rollsBackOnDeletion() bool {
	o := s.obstacleFor(task.Rollback)
	gone := o != nil && o.Reason == v1alpha1.ReasonNamespaceTerminating
	return s.in.Job.Spec.DeletionPolicy == v1alpha1.DeletionRollBack && s.in.Job.Spec.Rollback != nil && !gone
}

// cleanUp releases the pods, and removes the records unless they are retained. It does not wait for anything that may
// never happen, so a deletion cannot hang: the finalizer of a pod is removed whether or not its kubelet responds.
func (s *planner) cleanUp() {
	s.plan.Status = *s.in.Job.Status.DeepCopy()
	for i := range s.in.Pods {
		if needsFinalizerRemoval(&s.in.Pods[i]) {
			s.do(FinalizePod{Pod: s.in.Pods[i]})
		}
	}
	for i := range s.in.Nodes {
		node := &s.in.Nodes[i]
		if t := s.hindrance(node); t != nil && t.Reason == v1alpha1.ReasonRecordRejected {
			s.nodes[i].problem = t
			s.plan.wake(t.RetryAt)
		} else if s.in.Job.Spec.DeletionPolicy == v1alpha1.DeletionRetain {
			s.removeGateAndCordon(node)
		} else {
			s.removeMetadata(node)
		}
	}
	status := s.newStatus()
	s.plan.Status.NodeProblems = status.nodeProblems()
	switch {
	case len(status.troubled) > 0:
		text := fmt.Sprintf("the NodeJob is being deleted; what it has put on %s cannot be removed: %s", plural(int32(len(status.troubled))), named(status.troubled))
		status.setConditions(&s.plan.Status, summary{v1alpha1.ConditionStalled, status.troubleReason, text}, text)
	case !s.waitsForWrites():
		s.do(RemoveFinalizer{})
	}
}

// forgetWithin is how long a deletion waits for the removal of what a node itself may have written. A node could write
// it repeatedly and block the deletion forever.
const forgetWithin = time.Minute

// waitsForWrites reports whether the NodeJob must continue to exist until the actions of the plan are done.
func (s *planner) waitsForWrites() bool {
	if len(s.plan.Actions) == 0 {
		return false
	}
	sealed := map[string]bool{}
	for i := range s.in.Nodes {
		sealed[s.in.Nodes[i].Name] = s.in.Nodes[i].On.Sealed
	}
	waited := !s.in.Now.Before(s.in.Job.DeletionTimestamp.Add(forgetWithin))
	return slices.ContainsFunc(s.plan.Actions, func(action Action) bool {
		a, forgets := action.(CleanUpNode)
		return !forgets || !waited || sealed[a.Node] || a.Taints != nil // a kubelet can write neither
	})
}

// removeMetadata removes what Everynode has set on a node, if anything.
func (s *pass) removeMetadata(node *Node) {
	c := s.cordons.changeOf(node)
	c.Forget = true
	c.Cordon, c.Taints, c.Facts = s.cordons.uncordon(node), s.gate.taintsWithoutGate(node), s.publisher.unpublish(node)
	if !node.On.Present && !c.Shared() {
		return
	}
	if c.Shared() {
		c.ResourceVersion = node.ResourceVersion
	}
	s.do(CleanUpNode{Node: node.Name, Change: c})
}

// removeGateAndCordon opens a node to workloads if its record is retained, because nothing else would do it later.
func (s *planner) removeGateAndCordon(node *Node) {
	mark := s.cordons.markOf(node, "", "")
	if mark.Taints = s.gate.taintsWithoutGate(node); mark.Taints != nil {
		mark.because(v1alpha1.ReasonGateOpened, "the NodeJob is deleted")
	}
	if mark.Cordon = s.cordons.uncordon(node); mark.Cordon != nil {
		mark.Reason, mark.Message = v1alpha1.ReasonUncordoned, "the cordon is no longer needed"
	}
	if mark.Reason != "" {
		s.do(mark)
	}
}

// taintsWithoutGate are the taints of a node without the gate of a NodeJob that is being deleted, regardless of who set
// the gate, since nothing else would remove it.
func (s *gate) taintsWithoutGate(node *Node) *record.Taints {
	selector := labels.Everything()
	if spec := s.in.Job.Spec.NodeSelector; spec != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(spec); err != nil {
			selector = labels.Nothing()
		}
	}
	return s.opened(node, s.in.Job.Spec.Gate != nil && selector.Matches(labels.Set(node.Labels)))
}

// rollBackAll rolls the task back on every node where it has run, with the same limit of concurrent nodes, and removes
// the record of each node when its rollback succeeds. A node that is unavailable or where the rollback fails blocks the
// deletion: the user who deleted the NodeJob notices it, and the status says how to delete it without a rollback.
func (s *planner) rollBackAll() {
	for i := range s.nodes {
		s.assessor.assessNodeOnDeletion(&s.nodes[i])
	}
	s.assessor.removeOrphanedPods()
	s.startWithinLimit()
	for i := range s.nodes {
		if s.nodes[i].slot && !s.nodes[i].progressDeadlineExceeded {
			s.nodes[i].run(s.nodes[i].Reason, s.nodes[i].Message, s.nodes[i].Until)
		}
	}
	left := slices.ContainsFunc(s.in.Pods, func(pod Pod) bool { return needsFinalizerRemoval(&pod) })
	if !s.waitsForWrites() && !left && count(s.nodes).Matched == 0 {
		s.do(RemoveFinalizer{})
	}
	s.plan.Status = s.newStatus().deletionStatus()
	if isStalled(s.plan.Status) {
		// Something that is not watched, such as the deletion of the namespace, may unblock the deletion.
		s.plan.wake(s.in.Now.Add(deletionRecheckInterval))
	}
}

// assessNodeOnDeletion is assessNode for a NodeJob that is rolled back.
func (s *assessor) assessNodeOnDeletion(w *nodePlan) {
	s.assessPods(w)
	terminating := w.terminating || s.in.BusyNodes[w.node.Name]
	if !w.slot && !w.progressDeadlineExceeded {
		s.assessRollbackOnDeletion(terminating, w)
	}
	if late := w.terminatingSince.Add(StopSlack); w.terminating && !w.terminatingSince.IsZero() && s.in.Now.Before(late) {
		s.plan.wake(late)
	}
	s.plan.wake(w.Until)
}

// deletionRecheckInterval is how often a blocked deletion is checked.
const deletionRecheckInterval = 10 * time.Second

func isStalled(status v1alpha1.NodeJobStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled)
}

// assessRollbackOnDeletion gives a state to a node on which nothing runs. A node with nothing to roll back is Excluded.
func (s *assessor) assessRollbackOnDeletion(terminating bool, w *nodePlan) {
	rec := w.node.On.Record
	if rec == nil || rec.NeverStarted || s.replaced(w.node) || s.records.readRollback(rec).done {
		// The task never ran on this machine, or it is rolled back.
		w.exclude(v1alpha1.ReasonNotSelected, "there is nothing to roll back on it")
		s.removeMetadata(w.node)
		return
	}
	s.assessRollback(terminating, w)
	if w.State == Failed {
		f := s.cordons.failureOf(w.node, false)
		f.Rollback, f.RollbackMessage = w.Reason, lastLine(rec.Rollback.Message)
		w.addFailure(f)
	}
}

// deletionStatus is the status of a NodeJob whose task is being rolled back.
func (s *statusBuilder) deletionStatus() v1alpha1.NodeJobStatus {
	status := *s.in.Job.Status.DeepCopy()
	status.ObservedGeneration = s.in.Job.Generation
	status.Nodes = s.counts
	status.Failures = s.boundedFailures()
	status.Drains, status.NodeProblems, status.Gate = nil, s.nodeProblems(), nil
	n := status.Nodes
	text := fmt.Sprintf("the NodeJob is being deleted; on %s the task is still to be rolled back", plural(n.Matched))
	is := summary{v1alpha1.ConditionReconciling, v1alpha1.ReasonRollingBack, text}
	held := s.deletionBlockers()
	switch {
	case s.obstacleFor(task.Rollback) != nil && n.Matched > 0:
		o := s.obstacleFor(task.Rollback)
		is = summary{v1alpha1.ConditionStalled, o.Reason, text + ": " + o.Message + ". " + s.deletionRemedy()}
	case len(s.troubled) > 0 && (len(s.troubled) == int(n.Matched) || s.slotsStuck() >= s.capacity.slots):
		is = summary{v1alpha1.ConditionStalled, s.troubleReason, text + ": " + named(s.troubled) + ". " + s.deletionRemedy()}
	case held != "":
		is = summary{v1alpha1.ConditionStalled, v1alpha1.ReasonRollbackFailed, text + ": " + held + ". " + s.deletionRemedy()}
	}
	s.setConditions(&status, is, text)
	return status
}

// deletionBlockers says what blocks the deletion if nothing continues automatically; "" if something does.
func (s *statusBuilder) deletionBlockers() string {
	var held []string
	for i := range s.nodes {
		st := &s.nodes[i]
		switch {
		case st.progressDeadlineExceeded:
			held = append(held, st.Name+": "+st.Message)
		case st.State == Failed:
			held = append(held, st.Name+": the rollback has failed")
		case st.State == Waiting && (st.rollbackFinished || s.hindrance(st.node) != nil || s.staysTooLong(st)):
			held = append(held, st.Name+": "+st.Message)
		case st.State == Waiting, st.State == Running:
			return ""
		}
	}
	return named(held)
}

// slotsStuck counts the slots of nodes that make no progress.
func (s *statusBuilder) slotsStuck() int {
	n := 0
	for i := range s.nodes {
		if s.nodes[i].slot && s.nodes[i].progressDeadlineExceeded {
			n++
		}
	}
	return n
}

// staysTooLong reports whether a pod of Everynode still exists on the node after it should have ended.
func (s *statusBuilder) staysTooLong(w *nodePlan) bool {
	return w.terminating && !w.terminatingSince.IsZero() && !s.in.Now.Before(w.terminatingSince.Add(StopSlack))
}

// deletionRemedy says how to continue a deletion without the rollback.
func (s *statusBuilder) deletionRemedy() string {
	job := s.in.Job
	return fmt.Sprintf("Fix the cause and retry: kubectl -n %[1]s annotate nodejob %[2]s %[3]s=\"$(date +%%s)\" --overwrite; or delete the NodeJob without a rollback: kubectl -n %[1]s patch nodejob %[2]s --type=merge -p '{\"spec\":{\"deletionPolicy\":\"Forget\"}}'",
		job.Namespace, job.Name, v1alpha1.RetryAnnotation)
}

// setConditions sets each condition. At most one of the first three is True.
func (s *statusBuilder) setConditions(status *v1alpha1.NodeJobStatus, is summary, otherwise string) {
	for _, c := range s.conditions(is, otherwise) {
		c.ObservedGeneration = s.in.Job.Generation
		c.LastTransitionTime = metav1.NewTime(s.in.Now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if s.in.Job.Spec.Rollback == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionRollbackFailed)
	}
	if s.gate.spec == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionGateEnforced)
	}
}

// rollbackFailure describes in one line how a rollback failed.
func rollbackFailure(node string, rb *record.Rollback) string {
	text := node + ": " + rb.Reason
	if rb.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *rb.ExitCode)
	}
	if line := lastLine(rb.Message); line != "" {
		text += ": " + line
	}
	return strings.TrimSpace(text)
}
