// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// conflicts describes what cannot be published, by label or annotation and its owner, with the remedy.
func (p Plan) conflicts() []text.Line {
	nodes := map[plan.PublishConflict][]string{}
	for _, node := range p.Conflicts {
		for _, c := range node.Conflicts {
			c.Value = "" // nodes with different values are one conflict
			nodes[c] = append(nodes[c], node.Node)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	keys := make([]plan.PublishConflict, 0, len(nodes))
	for c := range nodes {
		keys = append(keys, c)
	}
	slices.SortFunc(keys, func(a, b plan.PublishConflict) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Key, b.Key), strings.Compare(a.Owner, b.Owner))
	})
	lines := []text.Line{label("Conflicts")}
	for _, c := range keys {
		head := text.Of("  " + plural.Count(len(nodes[c]), "node") + ": ")
		lines = append(lines, text.Wrap(head, text.Warn, p.conflictWords(c), p.Width)...)
		lines = append(lines, p.names(nodes[c])...)
	}
	return lines
}

func (p Plan) conflictWords(c plan.PublishConflict) string {
	switch adopt := p.adoptPolicy(c); {
	case c.Owner != "":
		return fmt.Sprintf("%s %s is published by another NodeJob (%s), so an attempt that reports a result for it fails with %s. Publish under another key",
			c.Kind, c.Key, c.Owner, v1alpha1.ReasonPublishConflict)
	case adopt == v1alpha1.AdoptSameValue:
		return fmt.Sprintf("%s %s already exists, so an attempt that reports another value for it fails with %s. To replace the value, set adopt: Always in spec.publish",
			c.Kind, c.Key, v1alpha1.ReasonPublishConflict)
	default:
		return fmt.Sprintf("%s %s already exists and is not managed by this NodeJob, so an attempt that reports a result for it fails with %s. To take it over, set adopt: SameValue or adopt: Always in spec.publish",
			c.Kind, c.Key, v1alpha1.ReasonPublishConflict)
	}
}

func (p Plan) adoptPolicy(c plan.PublishConflict) v1alpha1.AdoptPolicy {
	for _, entry := range p.Job.Spec.Publish {
		if c.Key == entry.Label || c.Key == entry.Annotation {
			return entry.Adopt
		}
	}
	return v1alpha1.AdoptNever
}
