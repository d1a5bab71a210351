// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/plural"
)

const (
	// maxExcluded bounds status.excluded, maxExcludedNames the nodes that it names for each reason, and maxExcludedMessage,
	// in bytes, the message of a reason.
	maxExcluded        = 5
	maxExcludedNames   = 3
	maxExcludedMessage = 512
)

// excludedNodes are the selected nodes that the task does not run on, by the reason, those with the most nodes first. Nodes
// that are not selected are not counted: they would change the status of NodeJobs that they do not concern.
func (sb *statusBuilder) excludedNodes() []v1alpha1.ExcludedNodes {
	groups := map[string]*v1alpha1.ExcludedNodes{}
	for i := range sb.nodes {
		w := &sb.nodes[i]
		if !w.isExcludedThoughSelected() {
			continue
		}
		message := outcome.CleanHead(w.Message, maxExcludedMessage)
		g := groups[message]
		if g == nil {
			g = &v1alpha1.ExcludedNodes{Reason: w.Reason, Message: message}
			groups[message] = g
		}
		g.Nodes++
		g.Names = append(g.Names, w.Name)
	}
	var list []v1alpha1.ExcludedNodes
	for _, message := range slices.Sorted(maps.Keys(groups)) {
		g := groups[message]
		slices.Sort(g.Names)
		g.Names = g.Names[:min(len(g.Names), maxExcludedNames)]
		list = append(list, *g)
	}
	slices.SortStableFunc(list, func(a, b v1alpha1.ExcludedNodes) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return list[:min(len(list), maxExcluded)]
}

// excludedMessage counts the selected nodes that the task does not run on, at the end of a message; "" if there are none.
func (su *summarizer) excludedMessage() string {
	taints, limits, systems := 0, 0, 0
	for i := range su.nodes {
		switch w := &su.nodes[i]; {
		case !w.isExcludedThoughSelected():
		case w.Reason == v1alpha1.ReasonUntoleratedTaint:
			taints++
		case w.Reason == v1alpha1.ReasonNodeNotAllowed:
			limits++
		default:
			systems++
		}
	}
	var parts []string
	for _, cause := range []struct {
		nodes int
		what  string
	}{{taints, "by a taint"}, {limits, "by the limit of the namespace"}, {systems, "by the operating system"}} {
		if cause.nodes > 0 {
			parts = append(parts, fmt.Sprintf("%s excluded %s", plural.CountAre(cause.nodes, "node"), cause.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, ", ")
}
