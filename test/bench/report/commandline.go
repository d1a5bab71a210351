// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
)

// CommandLine contains the times of a run of the command line, in seconds since the start of the command.
type CommandLine struct {
	// Times at which the first pod was observed, the last node was done, and the command had ended.
	FirstPod, Done, End float64
	// PeakMiB is the peak memory of the command.
	PeakMiB float64
	// Status contains the durations of the status commands that were executed meanwhile.
	Status []float64
}

// Goals of the command line on 1,000 nodes.
const (
	FirstPodGoal = 2.0
	PeakGoalMiB  = 150.0
	StatusGoal   = 1.0
)

// CommandLineMarkdown is a table of runs on so many nodes.
func CommandLineMarkdown(nodes int, runs []CommandLine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| `run` on %d nodes | Goal |", nodes)
	for i := range runs {
		fmt.Fprintf(&b, " Run %d |", i+1)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(runs)) + "\n")
	for _, row := range []struct {
		name, goal string
		value      func(*CommandLine) string
	}{
		{"first pod", fmt.Sprintf("%.0f s", FirstPodGoal), func(r *CommandLine) string { return fmt.Sprintf("%.2f s", r.FirstPod) }},
		{"all nodes done", "", func(r *CommandLine) string { return fmt.Sprintf("%.1f s", r.Done) }},
		{"end of the command", "", func(r *CommandLine) string { return fmt.Sprintf("%.1f s", r.End) }},
		{"memory at most", fmt.Sprintf("%.0f MiB", PeakGoalMiB), func(r *CommandLine) string { return fmt.Sprintf("%.0f MiB", r.PeakMiB) }},
		{"`status` meanwhile, at most", fmt.Sprintf("%.0f s", StatusGoal), func(r *CommandLine) string {
			most := 0.0
			for _, s := range r.Status {
				most = max(most, s)
			}
			return fmt.Sprintf("%.2f s (of %d)", most, len(r.Status))
		}},
	} {
		fmt.Fprintf(&b, "| %s | %s |", row.name, row.goal)
		for i := range runs {
			b.WriteString(" " + row.value(&runs[i]) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}
