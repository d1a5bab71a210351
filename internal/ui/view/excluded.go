// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// excludedGroup are nodes on which a task does not run, all for the same reason.
type excludedGroup struct {
	why   string
	nodes int
	// names may be of fewer nodes.
	names []string
}

// head returns how many nodes there are, and why.
func (g *excludedGroup) head(width int) []text.Line {
	return text.Wrap(text.Of("  "+plural.Count(g.nodes, "node")+": "), text.Dim, g.why, width)
}

// excluded lists the selected nodes on which the task does not run, by reason, and counts those that are not selected.
func (s Status) excluded() []text.Line {
	var lines []text.Line
	left := int(s.Job.Status.Nodes.Excluded)
	for i := range s.Job.Status.Excluded {
		e := &s.Job.Status.Excluded[i]
		g := excludedGroup{why: e.Message, nodes: int(e.Nodes), names: e.Names}
		names := strings.Join(g.names, ", ")
		if more := g.nodes - len(g.names); more > 0 {
			names += fmt.Sprintf(" and %d more%s", more, s.onRequest())
		}
		lines = append(lines, g.head(s.Width)...)
		lines = append(lines, text.Wrap(text.Of("      "), text.Plain, names, s.Width)...)
		left -= g.nodes
	}
	for _, g := range []excludedGroup{{why: "for other reasons" + s.onRequest(), nodes: left}, {why: "not selected by spec.nodes.selector or spec.nodes.names", nodes: s.NotSelected}} {
		if g.nodes > 0 {
			lines = append(lines, g.head(s.Width)...)
		}
	}
	return section("Excluded", lines)
}

// onRequest returns how to see what is left out; "" if the user has requested it.
func (s Status) onRequest() string {
	if s.All {
		return ""
	}
	return " (-o wide)"
}

// NotSelected counts the nodes that a NodeJob does not select.
func NotSelected(nodes []plan.NodeState) int {
	n := 0
	for i := range nodes {
		if nodes[i].State == plan.Excluded && nodes[i].Reason == v1alpha1.ReasonNotSelected {
			n++
		}
	}
	return n
}
