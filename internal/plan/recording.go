// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
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
func (s *recorder) recordAction(node *Node, pod *Pod, r record.Record) Record {
	a := Record{Node: node.Name, Change: s.cordons.changeOf(node), Pod: *pod}
	a.Record = &r
	a.Quarantine = node.On.Record != nil && node.On.Record.Cordoned
	r.Earlier = record.EarlierThan(node.On.Record, &r, pod.Runs == task.Rollback)
	if pod.Runs == task.Rollback {
		s.finishRollback(&a, node)
		return a
	}
	r.RecordedAt = s.recordedAt()
	a.Retain = s.attempts.retainedUntil(pod, &r).After(s.in.Now)
	if r.Outcome == record.Succeeded {
		s.completes(node, &a.Change)
	}
	a.DropLabel = node.On.Label != "" && s.dropsLabel(node, &r)
	a.KeepLabel = r.Outcome == record.Succeeded && s.skipped(node, r.Revision)
	r.Label = s.labelAfter(node, &a)
	a.Final = r.Outcome == record.Failed && r.Attempts > s.retryLimit()
	if a.Shared() || pod.UID == "" || a.DropLabel || s.buildsOn(&r) {
		a.ResourceVersion = node.ResourceVersion
	}
	return a
}

// finishRollback completes the record of an attempt of the rollback.
func (s *recorder) finishRollback(a *Record, node *Node) {
	rb := a.Record.Rollback
	rb.RecordedAt = s.recordedAt()
	// If the label is set now, a user has set it to skip the node.
	a.ResourceVersion = node.ResourceVersion
	a.Final = rb.Outcome == record.Failed && rb.Attempts > s.retryLimit()
	a.Retain = s.attempts.retainedUntil(&a.Pod, a.Record).After(s.in.Now)
}

// buildsOn reports whether the record must not be written if the node has changed since it was read. Otherwise a label
// that a user has set since to skip the node would be dropped, or the removal of the earlier record would be ignored.
func (s *recorder) buildsOn(r *record.Record) bool {
	failedBefore := r.Attempts > 1 || (r.Outcome == record.Disrupted && r.Attempts > 0)
	return r.Revision != s.in.Revision || failedBefore || r.Disruptions > 1
}

// dropsLabel reports whether the node is not done any more, regardless of what it was before. A disruption says nothing
// about the node and retains the label of an earlier revision, and so does a drain that did not succeed. But a label
// from another machine would make this machine look done.
func (s *recorder) dropsLabel(node *Node, r *record.Record) bool {
	switch r.Outcome {
	case record.Succeeded:
		return false
	case record.Failed:
		if s.replaced(node) {
			return true
		}
		return !s.skipped(node, r.Revision) && (r.Reason != v1alpha1.ReasonDrainTimedOut || r.Rerun)
	case record.Disrupted, record.Rebooting:
	}
	return s.replaced(node)
}

// skipped reports whether a user has set the label of the node to skip it while an attempt of revision ran.
func (s *recorder) skipped(node *Node, revision string) bool {
	label := node.On.Label
	return label != "" && (label == revision || label == s.in.Revision) && label != labelLeft(node)
}

// labelLeft is the label that the manager has last set on a node.
func labelLeft(node *Node) string {
	if node.On.Record == nil {
		return ""
	}
	return node.On.Record.Label
}

// labelAfter is the label that the manager has last set on a node after the record of an attempt is written.
func (s *recorder) labelAfter(node *Node, a *Record) string {
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
func (s *recorder) completes(node *Node, c *record.Change) {
	facts, reason, message := s.publisher.publish(node, c.Record)
	if reason != "" {
		c.Record.Outcome, c.Record.Reason, c.Record.Message = record.Failed, reason, message
		return
	}
	c.Facts = facts
	c.Record.Cordoned = false
	c.Cordon = s.cordons.uncordon(node)
	c.Taints = s.gate.opened(node, true)
	s.publisher.removeLabels(node, c)
}
