// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
)

// publisher determines the labels and annotations of nodes.
type publisher struct{ *job }

// wantedResults are the results that a run publishes, by key. A result that the run did not report is not published.
func (p *publisher) wantedResults(r *record.Record) (labelled, annotated map[string]string, problem string) {
	labelled, annotated = map[string]string{}, map[string]string{}
	for i := range p.in.Job.Spec.Publish {
		entry := &p.in.Job.Spec.Publish[i]
		value, reported := r.Results[entry.Result]
		switch {
		case entry.Condition != "":
		case r.Truncated && (!reported || len(value) > outcome.MaxValueBytes-4):
			return nil, nil, fmt.Sprintf("the result %s cannot be published, because results were omitted or cut: one may have %d bytes, and all together %d",
				entry.Result, outcome.MaxValueBytes, outcome.MaxResultsBytes)
		case !reported:
		case entry.Label == "":
			annotated[entry.Annotation] = value
		default:
			if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
				return nil, nil, fmt.Sprintf("the result %s cannot be published as label %s, since %q is no valid label value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
					entry.Result, entry.Label, outcome.Clean(value, 80))
			}
			labelled[entry.Label] = value
		}
	}
	return labelled, annotated, ""
}

// publish is the change that updates what is published on a node after a run; nil if it is up to date. It does not
// overwrite what others have set. Then the reason and the message say so.
func (p *publisher) publish(node *Node, r *record.Record) (published *record.Publish, reason, message string) {
	if p.isPublished(node, r) {
		return nil, "", ""
	}
	labelled, annotated, problem := p.wantedResults(r)
	if problem != "" {
		return nil, v1alpha1.ReasonInvalidResult, problem
	}
	published, conflict := p.publishChange(node, labelled, annotated)
	switch {
	case conflict != "":
		return nil, v1alpha1.ReasonPublishConflict, conflict
	case published != nil && !published.Published.Fits():
		return nil, v1alpha1.ReasonPublishConflict, "the node has no room for more published results: publish fewer"
	}
	return published, "", ""
}

// publishChange is the change after which the NodeJob has published exactly these labels and annotations on the node; nil
// if it already has. A key that belongs to others is the conflict.
func (p *publisher) publishChange(node *Node, labelled, annotated map[string]string) (published *record.Publish, conflict string) {
	f := &record.Publish{Labels: map[string]*string{}, Annotations: map[string]*string{}, Published: node.Published.Clone()}
	conflict = firstOf(
		p.publishKind(kindLabel, labelled, node.Labels, f.Published.Labels, f.Labels),
		p.publishKind(kindAnnotation, annotated, node.Annotations, f.Published.Annotations, f.Annotations))
	if conflict != "" || len(f.Labels)+len(f.Annotations) == 0 {
		return nil, conflict
	}
	return f, ""
}

// isPublished reports whether everything is published correctly. That is almost always so, and each pass checks it for
// every node.
func (p *publisher) isPublished(node *Node, r *record.Record) bool {
	spec, reported := p.in.Job.Spec.Publish, 0
	for i := range spec {
		entry := &spec[i]
		value, ok := r.Results[entry.Result]
		if !ok {
			continue
		}
		reported++
		key, have, owners := entry.Annotation, node.Annotations, node.Published.Annotations
		if entry.Label != "" {
			key, have, owners = entry.Label, node.Labels, node.Published.Labels
		}
		if is, there := have[key]; !there || is != value || owners[key] != p.key {
			return false
		}
	}
	published := len(node.Published.Labels) + len(node.Published.Annotations) // by any NodeJob
	return (reported == published || reported == p.owned(node)) && !r.Truncated
}

// publishKind adds the changes of the labels, or of the annotations, to owners and change.
func (p *publisher) publishKind(kind string, want, have, owners map[string]string, change map[string]*string) (conflict string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value := want[key]
		is, there := have[key]
		c := PublishConflict{Kind: kind, Key: key, Value: is, Owner: owners[key]}
		switch {
		case c.Owner == p.key && there && is == value:
			continue
		case c.Owner == p.key:
		case c.Owner == "" && !there:
		case c.Owner == "" && adopts(p.adoptPolicy(kind, key), is, value):
		default:
			return c.message(p.adoptPolicy(kind, key), value)
		}
		owners[key], change[key] = p.key, &value
	}
	p.unpublishKind(want, owners, change)
	return ""
}

// unpublishKind adds the removal of what this NodeJob has published and no longer wants.
func (p *publisher) unpublishKind(want, owners map[string]string, change map[string]*string) {
	for key, owner := range owners {
		// The list of owners is on the node, where its kubelet can write too. Keys that a NodeJob could not have published
		// are never removed because of it.
		if _, wanted := want[key]; owner == p.key && !wanted && record.MayPublish(key) {
			delete(owners, key)
			change[key] = nil
		}
	}
}

// unpublish is the change that removes all published results of the NodeJob from a node; nil if there are none.
func (p *publisher) unpublish(node *Node) *record.Publish {
	published, _ := p.publishChange(node, nil, nil) // without published keys there is no conflict
	return published
}

// owned counts what the NodeJob has published on the node.
func (p *publisher) owned(node *Node) int {
	n := 0
	for _, owners := range []map[string]string{node.Published.Labels, node.Published.Annotations} {
		for _, owner := range owners {
			if owner == p.key {
				n++
			}
		}
	}
	return n
}

// unlisted is the change that removes from a node what spec.publish no longer lists; nil if there is nothing to remove.
func (p *publisher) unlisted(node *Node) *record.Publish {
	labelled, annotated := map[string]string{}, map[string]string{}
	for _, entry := range p.in.Job.Spec.Publish {
		// A published result that is still listed does not change.
		if is, there := node.Labels[entry.Label]; there && node.Published.Labels[entry.Label] == p.key {
			labelled[entry.Label] = is
		}
		if is, there := node.Annotations[entry.Annotation]; there && node.Published.Annotations[entry.Annotation] == p.key {
			annotated[entry.Annotation] = is
		}
	}
	published, _ := p.publishChange(node, labelled, annotated) // what is listed already belongs to this NodeJob
	return published
}
