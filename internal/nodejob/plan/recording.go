// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// This file plans what is written to a node when an attempt has ended.

// recorder determines what is written to a node when an attempt has ended.
type recorder struct {
	*job
	gate      *gate
	publisher *publisher
	cordons   *cordons
	attempts  *attemptReader
}

// recordAction is the write of the outcome of an attempt.
func (rec *recorder) recordAction(node *Node, pod *Pod, r record.Record) Record {
	a := Record{Node: node.Name, Change: rec.cordons.changeOf(node), Pod: *pod}
	a.Record = &r
	a.Ending = pod.Concluded && !pod.over()
	a.Quarantine = node.On.Record != nil && node.On.Record.Cordoned
	if pod.Runs == task.CheckExpires {
		rec.finishExpiryCheck(&a, node)
		return a
	}
	r.Earlier = record.EarlierThan(node.On.Record, &r, pod.Runs == task.Rollback)
	r.Previous = record.PreviousTo(node.On.Record, &r)
	if pod.Runs == task.Rollback {
		rec.finishRollback(&a, node)
		return a
	}
	rec.finishRun(&a, node)
	return a
}

// finishRun completes the record of an attempt of the task, or of what belongs to its run.
func (rec *recorder) finishRun(a *Record, node *Node) {
	r, pod := a.Record, &a.Pod
	r.RecordedAt = rec.recordedAt()
	a.Retain = rec.attempts.retainedUntil(pod, r).After(rec.in.Now)
	if r.Outcome == record.Succeeded {
		rec.completes(node, pod, &a.Change)
	}
	r.Assumed = rec.staysAssumed(node, r)
	r.Asked = askedBefore(node, r)
	rec.setLabel(node, a)
	a.Final = rec.isFinal(r)
	r.RunsAlone = !a.Final && rec.staysAlone(node, r)
	if a.Shared() || pod.UID == "" || a.DropLabel || rec.buildsOn(r) {
		a.ResourceVersion = node.ResourceVersion
	}
}

// isFinal reports whether a record is of a failure after which the task is not retried.
func (rec *recorder) isFinal(r *record.Record) bool {
	return r.Outcome == record.Failed && (r.Attempts > rec.retryLimit() || r.Reverted)
}

// answerAction is the write of the answer of a node that is done. If the record was removed since, a user has requested another run.
func (rec *recorder) answerAction(node *Node, pod *Pod, r record.Record) Record {
	a := Record{Node: node.Name, Change: rec.cordons.changeOf(node), Pod: *pod, Ending: pod.Concluded && !pod.over()}
	a.Record = &r
	a.KeepLabel, a.ResourceVersion, a.Was = true, node.ResourceVersion, node.On.Record.Asked[questionOf[pod.Runs]]
	return a
}

// setLabel determines what happens to the label of the node.
func (rec *recorder) setLabel(node *Node, a *Record) {
	a.DropLabel = node.On.Label != "" && rec.dropsLabel(node, a.Record)
	a.KeepLabel = a.Record.Outcome == record.Succeeded && rec.skipped(node, a.Record.Revision) && !marksSuccess(node, a.Record)
	a.Record.Label, a.Record.LabelRemoved = rec.labelAfter(node, a), false
}

// finishRollback completes the record of an attempt of the rollback.
func (rec *recorder) finishRollback(a *Record, node *Node) {
	rb := a.Record.Rollback
	rb.RecordedAt = rec.recordedAt()
	// If the label is set now, a user has set it to skip the node.
	a.ResourceVersion = node.ResourceVersion
	a.Final = rb.Outcome == record.Failed && rb.Attempts > rec.retryLimit()
	if rb.Outcome == record.Succeeded && rec.expiresWith(node) {
		rec.expire(node, &a.Change)
	}
	a.Retain = rec.attempts.retainedUntil(&a.Pod, a.Record).After(rec.in.Now)
}

// buildsOn reports whether the record must not be written if the node has changed since it was read. Otherwise a label
// that a user has set since to skip the node would be dropped, or the removal of the earlier record would be ignored.
func (rec *recorder) buildsOn(r *record.Record) bool {
	failedBefore := r.Attempts > 1 || (r.Outcome == record.Disrupted && r.Attempts > 0)
	return r.Revision != rec.in.Revision || failedBefore || r.Disruptions > 1
}

// dropsLabel reports whether the node is not done any more, regardless of what it was before. Once the task of a revision has started, or
// may have, the node is not done with another one. A disruption of a rerun retains the label, and so do a question and a drain that did
// not succeed, because no task has started. But a label from another machine would make this machine look done.
func (rec *recorder) dropsLabel(node *Node, r *record.Record) bool {
	switch {
	case r.Outcome == record.Succeeded:
		return false
	case rec.replaced(node):
		return true
	case rec.skipped(node, r.Revision):
		return false
	}
	ofAnother := node.On.Label != r.Revision
	switch r.Outcome {
	case record.Failed:
		return r.MayHaveStarted() || r.Rerun || !ofAnother
	case record.Disrupted, record.Rebooting:
		return r.MayHaveStarted() && ofAnother
	case record.Succeeded, record.Needed, record.Expired:
	}
	return false
}

// skipped reports whether a user has set the label of the node to skip it while an attempt of revision ran.
func (rec *recorder) skipped(node *Node, revision string) bool {
	label := node.On.Label
	return label != "" && (label == revision || label == rec.in.Revision) && label != labelLeft(node)
}

// marksSuccess reports whether the label of a node without a record says what r says. Then it may be the label of this
// very success, whose record was removed. If it was taken for that of a user, a later failure would not count.
func marksSuccess(node *Node, r *record.Record) bool {
	return node.On.Record == nil && node.On.Label == r.Revision
}

// labelLeft is the label that the manager has last set on a node, if it has been there ever since.
func labelLeft(node *Node) string {
	if node.On.Record == nil || node.On.Record.LabelRemoved {
		return ""
	}
	return node.On.Record.Label
}

// labelAfter is the label that the manager has last set on a node after the record of an attempt is written.
func (rec *recorder) labelAfter(node *Node, a *Record) string {
	left := labelLeft(node)
	switch {
	case a.Record.Outcome == record.Succeeded && !a.KeepLabel:
		return a.Record.Revision
	case a.DropLabel, node.On.Label != left: // a user has removed it, or set another one
		return ""
	}
	return left
}

// completes adds to the record of a success its changes of the node, or turns it into a failure if its results cannot
// be published.
func (rec *recorder) completes(node *Node, pod *Pod, c *record.Change) {
	published, reason, message := rec.publisher.publish(node, c.Record)
	if reason != "" && c.Record.IsAlreadyDone() { // a check never fails a node
		c.Record.Outcome, c.Record.CheckBefore, c.Record.Reason, c.Record.Message = record.Disrupted, record.AnswerError, v1alpha1.ReasonCheckError, message
		rec.attempts.countDisruption(c.Record, pod, node, c.Record.Attempts)
		return
	}
	if reason != "" {
		c.Record.Outcome, c.Record.Reason, c.Record.Message = record.Failed, reason, message
		return
	}
	if rec.allowsNode(node) {
		c.Publish = published
	}
	rec.opens(node, c)
}

// opens adds to the record of a node that is done that it gets workloads again.
func (rec *recorder) opens(node *Node, c *record.Change) {
	c.Record.Cordoned = false
	c.Cordon = rec.cordons.uncordon(node)
	c.Taints = rec.gate.opened(node, rec.allowsNode(node))
	if rec.allowsNode(node) {
		rec.publisher.removeLabels(node, c)
		return
	}
	// Labels that stay, because they must not be removed now, do not request another run: see relabelled.
	c.Record.RemovedLabels = maps.Clone(c.Record.RemovedLabels)
	maps.DeleteFunc(c.Record.RemovedLabels, func(key, _ string) bool { _, is := node.Labels[key]; return is })
}
