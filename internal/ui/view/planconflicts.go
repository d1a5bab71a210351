// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// conflicts describes what cannot be published, by label or annotation and its owner, with the remedy.
func (p Plan) conflicts() []text.Line {
	nodes := map[ConflictData][]string{}
	for _, c := range p.Conflicts {
		node := c.Node
		c.Node, c.Value = "", "" // nodes with different values are one conflict
		nodes[c] = append(nodes[c], node)
	}
	keys := slices.SortedFunc(maps.Keys(nodes), func(a, b ConflictData) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Key, b.Key), strings.Compare(a.PublishedBy, b.PublishedBy))
	})
	var lines []text.Line
	for _, c := range keys {
		head := text.Of("  " + plural.Count(len(nodes[c]), "node") + ": ")
		lines = append(lines, text.Wrap(head, text.Warn, p.conflictWords(c), p.Width)...)
		lines = append(lines, p.names(nodes[c])...)
	}
	return section("Conflicts", lines)
}

func (p Plan) conflictWords(c ConflictData) string {
	switch adopt := p.adoptPolicy(c); {
	case c.PublishedBy != "":
		return fmt.Sprintf("%s %s is published by another NodeJob (%s), so an attempt that reports a result for it fails with %s. Publish under another key",
			c.Kind, c.Key, c.PublishedBy, v1alpha1.ReasonPublishConflict)
	case adopt == v1alpha1.AdoptSameValue:
		return fmt.Sprintf("%s %s already exists, so an attempt that reports another value for it fails with %s. To replace the value, set adopt: Always in spec.publish",
			c.Kind, c.Key, v1alpha1.ReasonPublishConflict)
	default:
		return fmt.Sprintf("%s %s already exists and is not managed by this NodeJob, so an attempt that reports a result for it fails with %s. To take it over, set adopt: SameValue or adopt: Always in spec.publish",
			c.Kind, c.Key, v1alpha1.ReasonPublishConflict)
	}
}

func (p Plan) adoptPolicy(c ConflictData) v1alpha1.AdoptPolicy {
	for _, entry := range p.Job.Spec.Publish {
		if c.Key == entry.Label || c.Key == entry.Annotation {
			return entry.Adopt
		}
	}
	return v1alpha1.AdoptNever
}
