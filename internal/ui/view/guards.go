// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// Guards describes what each NodeGuard that holds or has released a node waits for, and which NodeGuards may hold the
// node although their status does not say so. Other NodeGuards are omitted.
func Guards(guards []v1alpha1.NodeGuard, node *plan.Node, now time.Time, width int) []text.Line {
	var lines []text.Line
	for i := range guards {
		g := &guards[i]
		sentences := guardSentences(g, node.Name, now)
		if unknown := guardUnknown(g); unknown != "" && len(sentences) == 0 && node.Unschedulable {
			sentences = append(sentences, unknown)
		}
		for _, sentence := range sentences {
			lines = append(lines, text.Wrap(nil, text.Plain, sentence, width)...)
		}
	}
	return lines
}

// guardSentences describe a node according to the status of a NodeGuard.
func guardSentences(g *v1alpha1.NodeGuard, node string, now time.Time) []string {
	var sentences []string
	name := g.Namespace + "/" + g.Name
	for k := range g.Status.Waiting {
		if held := &g.Status.Waiting[k]; held.Node == node {
			sentences = append(sentences, guard.Sentence(name, held)+requestedFor(g, held, now)+".")
		}
	}
	for k := range g.Status.Released {
		if released := &g.Status.Released[k]; released.Node == node {
			sentences = append(sentences, releasedSentence(name, released, now))
		}
	}
	return sentences
}

// guardUnknown returns the reason why a NodeGuard may hold a node that its status does not name; "" if it does not.
func guardUnknown(g *v1alpha1.NodeGuard) string {
	name := g.Namespace + "/" + g.Name
	switch {
	case g.Status.ObservedGeneration <= 0:
		return "NodeGuard " + name + " may hold the node: the manager has not observed the NodeGuard yet; check that it is running: " + CheckManager
	case int(g.Status.Nodes.Waiting) > len(g.Status.Waiting):
		return fmt.Sprintf("NodeGuard %s may hold the node: it holds %s, and its status names the first %d only.", name, plural.Count(g.Status.Nodes.Waiting, "node"), len(g.Status.Waiting))
	}
	return ""
}

func requestedFor(g *v1alpha1.NodeGuard, h *v1alpha1.WaitingNode, now time.Time) string {
	since := ""
	if !h.Since.IsZero() {
		since = "; requested " + ago(now, h.Since.Time) + " ago"
	}
	switch limit := g.Spec.Release.DeadlineSeconds; {
	case !h.Until.IsZero():
		since += ", with a deadline at " + clock(now, h.Until.Time)
	case limit != nil:
		since += ", and its deadline passed at " + clock(now, h.Since.Add(time.Duration(*limit)*time.Second))
	}
	return since
}

func releasedSentence(name string, g *v1alpha1.ReleasedNode, now time.Time) string {
	sentence := fmt.Sprintf("NodeGuard %s released node %s %s ago (%s)", name, g.Node, ago(now, g.Since.Time), g.Reason)
	if g.Message != "" {
		sentence += ": " + g.Message
	}
	if g.Returning {
		return sentence + "; its release request has ended, and its companion or its pod of the target is not ready yet."
	}
	return sentence + "; it can be drained."
}
