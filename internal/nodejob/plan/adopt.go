// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
)

// What is published, in messages.
const (
	kindLabel      = "label"
	kindAnnotation = "annotation"
)

// maxConflictBytes limits a value or an owner in a message. It fits every key of a record.
const maxConflictBytes = 317

// PublishConflict is a label or annotation in spec.publish that a node already has, and that the NodeJob has not
// published.
type PublishConflict struct {
	// Kind is label or annotation.
	Kind string
	Key  string
	// Value is its value on the node.
	Value string
	// Owner is the key of the record of the NodeJob that has published it; "" if none has.
	Owner string
}

// PublishConflicts returns what would prevent a NodeJob from publishing its results on a node: what another NodeJob has
// published, and what exists there and is not adopted. For the policy SameValue that depends on the result, so the
// NodeJob has to report the Value.
func PublishConflicts(j *v1alpha1.NodeJob, node *Node) []PublishConflict {
	var conflicts []PublishConflict
	own := v1alpha1.RecordKey(j.Namespace, j.Name)
	for _, entry := range j.Spec.Publish {
		if entry.Condition != "" {
			continue
		}
		c := PublishConflict{Kind: kindAnnotation, Key: entry.Annotation}
		have, owners := node.Annotations, node.Published.Annotations
		if entry.Label != "" {
			c.Kind, c.Key, have, owners = kindLabel, entry.Label, node.Labels, node.Published.Labels
		}
		is, there := have[c.Key]
		c.Value, c.Owner = is, owners[c.Key]
		switch {
		case c.Owner == own:
		case c.Owner != "", there && entry.Adopt != v1alpha1.AdoptAlways:
			conflicts = append(conflicts, c)
		}
	}
	return conflicts
}

// message says why a result cannot be published, and what to do.
func (c PublishConflict) message(adopt v1alpha1.AdoptPolicy, result string) string {
	switch {
	case c.Owner != "":
		return fmt.Sprintf("%s %s of the node is published by another NodeJob (%s): publish under another key", c.Kind, c.Key, outcome.Clean(c.Owner, maxConflictBytes))
	case adopt == v1alpha1.AdoptSameValue:
		return fmt.Sprintf("%s %s already exists on the node with the value %q, and the result is %q: remove it, or set adopt: Always in spec.publish",
			c.Kind, c.Key, outcome.Clean(c.Value, maxConflictBytes), result)
	default:
		return fmt.Sprintf("%s %s already exists on the node and is not managed by this NodeJob: remove it, set adopt in spec.publish, or publish under another key", c.Kind, c.Key)
	}
}

// adopts reports whether a label or annotation that exists with a value, and that no NodeJob has published, becomes
// managed by the NodeJob that publishes a result there.
func adopts(policy v1alpha1.AdoptPolicy, value, result string) bool {
	return policy == v1alpha1.AdoptAlways || policy == v1alpha1.AdoptSameValue && value == result
}

// adoptPolicy returns spec.publish[].adopt of a key.
func (p *publisher) adoptPolicy(kind, key string) v1alpha1.AdoptPolicy {
	for i := range p.in.Job.Spec.Publish {
		entry := &p.in.Job.Spec.Publish[i]
		if (kind == kindLabel && entry.Label == key) || (kind == kindAnnotation && entry.Annotation == key) {
			return entry.Adopt
		}
	}
	return v1alpha1.AdoptNever
}
