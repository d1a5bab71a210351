// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// reconcileNodeMetadata updates what nodes have besides a run: gates, published results, labels. What can be written with the
// record of a success is already written with it. This function handles changes without a record, such as a change of
// the NodeJob.
func (p *planner) reconcileNodeMetadata() {
	for i := range p.nodes {
		w := &p.nodes[i]
		mark := p.cordons.markOf(w.node, "", "")
		p.reconcileGate(w, &mark)
		if w.State == Done && p.serves(w.node) {
			p.reconcilePublished(w, &mark)
		} else if p.publisher.owned(w.node) > 0 {
			if mark.Publish = p.publisher.unlisted(w.node); mark.Publish != nil {
				mark.because(v1alpha1.ReasonPublished, "")
			}
		}
		p.noteRemovedLabel(w, &mark)
		if mark.Reason != "" && !w.written {
			p.mark(w, mark)
		}
	}
}

// noteRemovedLabel notes in the record that the node does not have the label that the manager has set. If a user sets it to
// the same value while an attempt runs, that skips the node, and is not the label of an earlier run. When no attempt runs, continues or
// is being prepared, there is no difference.
func (p *planner) noteRemovedLabel(w *nodePlan, mark *PatchNode) {
	if !p.lacksLabel(w.node) || !(w.slot || w.node.On.Record.Rerun) {
		return
	}
	r := *w.node.On.Record
	r.LabelRemoved = true
	mark.Record, mark.KeepLabel = &r, true
	mark.because(v1alpha1.ReasonPublished, "")
}

// lacksLabel reports whether a node does not have the label that the manager has set there, and the record does not say so yet.
func (j *job) lacksLabel(node *Node) bool {
	left := labelLeft(node)
	return left != "" && node.On.Label != left && !j.replaced(node)
}

// because sets the reason of a mark, unless it has one.
func (m *PatchNode) because(reason, message string) {
	if m.Reason == "" {
		m.Reason, m.Message = reason, message
	}
}

// reconcilePublished publishes results and removes labels on a node that is done, because the spec may have changed since.
func (p *planner) reconcilePublished(w *nodePlan, mark *PatchNode) {
	rec := w.node.On.Record
	if !w.node.On.HasLabelOfSuccess() {
		return // a user has set the label, or the revision is not run any more
	}
	p.publisher.reconcileRemovedLabels(w, rec, mark)
	published, reason, message := p.publisher.publish(w.node, rec)
	if reason == v1alpha1.ReasonInvalidResult {
		return // the record had no room for what was published when it was reported
	}
	if reason != "" {
		w.findings().unpublished = message
	} else if mark.Publish = published; published != nil {
		mark.because(v1alpha1.ReasonPublished, "")
	}
}

func (p *publisher) reconcileRemovedLabels(w *nodePlan, rec *record.Record, mark *PatchNode) {
	if len(p.in.Job.Spec.RemoveLabels) == 0 {
		return
	}
	r := *rec
	mark.Record = &r
	if p.removeLabels(w.node, &mark.Change); len(mark.RemoveLabels) == 0 {
		mark.Record = nil
		return
	}
	mark.because(v1alpha1.ReasonPublished, "")
}
