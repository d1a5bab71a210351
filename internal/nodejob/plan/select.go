// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// selects reports whether a node with these labels matches the NodeJob, or would match with the labels that the success
// of the NodeJob has removed.
func (j *job) selects(node *Node) bool {
	return j.allowsNode(node) && j.named.has(node) && task.FitsOS(j.self.OS, node.Labels) && matchesWith(j.selector, j.in.Job.Spec.RemoveLabels, node, node.On.Record)
}

// names are the names in spec.nodes.names; nil for all nodes.
type names map[string]bool

func namesOf(list []string) names {
	if len(list) == 0 {
		return nil
	}
	set := make(names, len(list))
	for _, name := range list {
		set[name] = true
	}
	return set
}

func (n names) has(node *Node) bool { return n == nil || n[node.Name] }

// matchesWith reports whether the selector matches the node, with its current labels or with the labels that a success
// has removed from it.
func matchesWith(selector labels.Selector, removeLabels []string, node *Node, rec *record.Record) bool {
	if selector.Matches(labels.Set(node.Labels)) {
		return true
	}
	if rec == nil || len(rec.RemovedLabels) == 0 {
		return false
	}
	had := make(map[string]string, len(node.Labels)+len(rec.RemovedLabels))
	for key, value := range rec.RemovedLabels {
		if slices.Contains(removeLabels, key) {
			had[key] = value
		}
	}
	maps.Copy(had, node.Labels)
	return selector.Matches(labels.Set(had))
}

// relabelled is a label that a success removed from the node and that is set again, which requests another run; "" if
// there is none.
func (r *recordReader) relabelled(node *Node) string {
	for _, key := range r.in.Job.Spec.RemoveLabels {
		_, was := node.On.Record.RemovedLabels[key]
		if _, is := node.Labels[key]; is && was {
			return key
		}
	}
	return ""
}

// removeLabels notes in a change and in its record which labels a success removes from the node.
func (p *publisher) removeLabels(node *Node, c *record.Change) {
	removed := map[string]string{}
	for _, key := range p.in.Job.Spec.RemoveLabels {
		if value, ok := c.Record.RemovedLabels[key]; ok {
			removed[key] = value
		}
		if value, ok := node.Labels[key]; ok {
			removed[key] = value
			c.RemoveLabels = append(c.RemoveLabels, key)
		}
	}
	if len(removed) > 0 {
		c.Record.RemovedLabels = removed
	}
}
