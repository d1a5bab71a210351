package view

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/guard"
)

// Guards says of each NodeGuard that holds a node, or has let it go, what it waits for. Nothing is said of the others.
func Guards(guards []v1alpha1.NodeGuard, node string, now time.Time, width int) []text.Line {
	var lines []text.Line
	for i := range guards {
		g := &guards[i]
		name := g.Namespace + "/" + g.Name
		for k := range g.Status.Held {
			if held := &g.Status.Held[k]; held.Node == node {
				lines = append(lines, text.Wrap(nil, text.Plain, guard.Sentence(name, held)+askedFor(held, now)+".", width)...)
			}
		}
		for _, going := range g.Status.Going {
			if going.Node == node {
				lines = append(lines, text.Wrap(nil, text.Plain, letGo(name, &going, now), width)...)
			}
		}
	}
	return lines
}

func askedFor(h *v1alpha1.HeldNode, now time.Time) string {
	since := ""
	if !h.AskedSince.IsZero() {
		since = "; it asked " + ago(now, h.AskedSince.Time) + " ago"
	}
	if !h.Deadline.IsZero() {
		since += ", with a deadline at " + clock(now, h.Deadline.Time)
	}
	return since
}

func letGo(name string, g *v1alpha1.GoingNode, now time.Time) string {
	sentence := fmt.Sprintf("NodeGuard %s has let node %s go %s ago (%s)", name, g.Node, ago(now, g.Since.Time), g.Reason)
	if g.Message != "" {
		sentence += ": " + g.Message
	}
	if g.Returning {
		return sentence + "; it asks no more, and is not back with a ready companion and a ready pod of the target."
	}
	return sentence + "; its eviction is not held."
}
