// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
)

// Many is the cost of the manager with many NodeJobs, each for all nodes.
type Many struct {
	Head
	NodeJobs int `json:"nodeJobs"`
	// Seeded is how many NodeJobs found their records on the nodes, and AtOnce how many of the others ran at once.
	Seeded int `json:"seeded"`
	AtOnce int `json:"atOnce"`
	// MemoryLimit is the manager's GOMEMLIMIT; "" without one.
	MemoryLimit string `json:"memoryLimit"`
	// Runs is the number of tasks that ran while Running was measured.
	Runs    int  `json:"runs"`
	Running Cost `json:"running"`
	// Idle is the cost of heartbeats only.
	Idle Cost `json:"idle"`
	// PeakMiB is the peak memory of the manager from its start to the end, PeakRunningMiB until all tasks had run, and
	// IdleMiB its memory at rest. PeakStartMiB is the peak memory of a manager that was restarted after that.
	PeakMiB        float64 `json:"peakMiB"`
	PeakRunningMiB float64 `json:"peakRunningMiB"`
	IdleMiB        float64 `json:"idleMiB"`
	PeakStartMiB   float64 `json:"peakStartMiB"`
	// NotReady and Cordon are the CPU seconds of the manager each time that a node turned NotReady and Ready again, or was
	// cordoned and uncordoned.
	NotReady []float64 `json:"notReadyCPUSeconds"`
	Cordon   []float64 `json:"cordonCPUSeconds"`
}

// Markdown is a report of its own. The goals are those with 100 NodeJobs on 1,000 nodes.
func (m *Many) Markdown() string {
	w := &writer{}
	w.line("# What the manager costs: %d NodeJobs on %d nodes\n", m.NodeJobs, m.Nodes)
	w.head(&m.Head, ", GOMEMLIMIT of the manager "+cmp.Or(m.MemoryLimit, "none"))
	w.line("One NodeJob ran first; %d others found the same records on the nodes; the remaining %d ran their tasks, %d at once.\n",
		m.Seeded, m.NodeJobs-1-m.Seeded, m.AtOnce)
	var rows [][]string
	row := func(name, goal, format string, args ...any) {
		rows = append(rows, []string{name, goal, fmt.Sprintf(format, args...)})
	}
	row("most memory of the manager", "350 MiB", "%.0f MiB (%.0f MiB until all tasks had run)", m.PeakMiB, m.PeakRunningMiB)
	row("most memory of a manager that is started then", "350 MiB", "%.0f MiB", m.PeakStartMiB)
	row("memory at rest", "", "%.0f MiB", m.IdleMiB)
	if m.Runs > 0 {
		row("runs", "", "%d in %.0f s", m.Runs, m.Running.Seconds)
		row("CPU of the manager for each run", "", "%.2f ms", 1000*m.Running.CPU[Own]/float64(m.Runs))
		row("CPU of the control plane for each run", "", "%.1f ms", 1000*m.Running.ControlCPU()/float64(m.Runs))
	}
	row("CPU of the manager at rest, with heartbeats", "2 % of a core", "%s %% of a core (%.2f s in %.0f s)",
		number("%.2f", 100*m.Idle.CPU[Own]/m.Idle.Seconds), m.Idle.CPU[Own], m.Idle.Seconds)
	row("CPU of the manager when a node turns NotReady and back", "300 ms", "%s", rangeOf(m.NotReady))
	row("CPU of the manager when a node is cordoned and uncordoned", "", "%s", rangeOf(m.Cordon))
	w.table([]string{"", "Goal", "Measured"}, rows)
	return w.String()
}

// rangeOf returns the median and the range of times, in milliseconds.
func rangeOf(seconds []float64) string {
	if len(seconds) == 0 {
		return none
	}
	return fmt.Sprintf("%.0f ms (%.0f–%.0f)", 1000*Median(seconds), 1000*slices.Min(seconds), 1000*slices.Max(seconds))
}

// CommandLine contains the times of a run of the command line, in seconds since the start of the command.
type CommandLine struct {
	// Times at which the first pod was observed, the last node was done, and the command had ended.
	FirstPod, Done, End float64
	// PeakMiB is the peak memory of the command.
	PeakMiB float64
	// Status contains the durations of the status commands that were executed meanwhile.
	Status []float64
}

// CommandLineMarkdown is a table of runs on so many nodes. The goals are those on 1,000 nodes.
func CommandLineMarkdown(nodes int, runs []CommandLine) string {
	head := []string{fmt.Sprintf("`run` on %d nodes", nodes), "Goal"}
	rows := [][]string{
		{"first pod", "2 s"}, {"all nodes done", ""}, {"end of the command", ""}, {"memory at most", "150 MiB"}, {"`status` meanwhile, at most", "1 s"},
	}
	for i := range runs {
		r := &runs[i]
		head = append(head, fmt.Sprintf("Run %d", i+1))
		for line, cell := range []string{
			fmt.Sprintf("%.2f s", r.FirstPod), fmt.Sprintf("%.1f s", r.Done), fmt.Sprintf("%.1f s", r.End), fmt.Sprintf("%.0f MiB", r.PeakMiB),
			fmt.Sprintf("%s (of %d)", number("%.2f s", Percentile(r.Status, 100)), len(r.Status)),
		} {
			rows[line] = append(rows[line], cell)
		}
	}
	w := &writer{}
	w.table(head, rows)
	return w.String()
}
