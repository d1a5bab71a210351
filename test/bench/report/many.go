// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/test/bench/measure"
)

// Many is the cost of the manager with many NodeJobs, each for all nodes.
type Many struct {
	Command    string  `json:"command"`
	Date       string  `json:"date"`
	Commit     string  `json:"commit"`
	Machine    Machine `json:"machine"`
	Kubernetes string  `json:"kubernetes"`
	Nodes      int     `json:"nodes"`
	NodeJobs   int     `json:"nodeJobs"`
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

// Goals with 100 NodeJobs on 1,000 nodes.
const (
	ManyPeakGoalMiB   = 350.0
	ManyIdleGoal      = 2.0 // percent of a core
	ManyNotReadyGoalS = 0.3
)

// Markdown is a report of its own.
func (m *Many) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What the manager costs: %d NodeJobs on %d nodes\n\n", m.NodeJobs, m.Nodes)
	fmt.Fprintf(&b, "`%s`, on %s, commit %s, %s, %d cores, Kubernetes %s, %s, GOMEMLIMIT %s.\n\n", m.Command, m.Date, m.Commit,
		m.Machine.CPU, m.Machine.Cores, m.Machine.Kubernetes, m.Machine.Go, orNone(m.MemoryLimit))
	fmt.Fprintf(&b, "One NodeJob ran first; %d others found the same records on the nodes; the remaining %d ran their tasks, %d at once.\n\n",
		m.Seeded, m.NodeJobs-1-m.Seeded, m.AtOnce)
	b.WriteString("| | Goal | Measured |\n|---|---|---|\n")
	row := func(name, goal, format string, args ...any) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, goal, fmt.Sprintf(format, args...))
	}
	row("most memory of the manager", fmt.Sprintf("%.0f MiB", ManyPeakGoalMiB), "%.0f MiB (%.0f MiB until all tasks had run)", m.PeakMiB, m.PeakRunningMiB)
	row("most memory of a manager that is started then", fmt.Sprintf("%.0f MiB", ManyPeakGoalMiB), "%.0f MiB", m.PeakStartMiB)
	row("memory at rest", "", "%.0f MiB", m.IdleMiB)
	if m.Runs > 0 {
		row("runs", "", "%d in %.0f s", m.Runs, m.Running.Seconds)
		row("CPU of the manager for each run", "", "%.2f ms", 1000*m.Running.CPU[Own]/float64(m.Runs))
		row("CPU of the control plane for each run", "", "%.1f ms", 1000*sum(m.Running.CPU, ControlPlane()...)/float64(m.Runs))
	}
	row("CPU of the manager at rest, with heartbeats", fmt.Sprintf("%.0f %% of a core", ManyIdleGoal), "%.2f %% of a core (%.2f s in %.0f s)",
		percent(m.Idle.CPU[Own], m.Idle.Seconds), m.Idle.CPU[Own], m.Idle.Seconds)
	row("CPU of the manager when a node turns NotReady and back", fmt.Sprintf("%.0f ms", 1000*ManyNotReadyGoalS), "%s", rangeOf(m.NotReady))
	row("CPU of the manager when a node is cordoned and uncordoned", "", "%s", rangeOf(m.Cordon))
	return b.String()
}

func percent(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * part / whole
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// rangeOf returns the median and the range of times, in milliseconds.
func rangeOf(seconds []float64) string {
	if len(seconds) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f ms (%.0f–%.0f)", 1000*measure.Median(seconds), 1000*slices.Min(seconds), 1000*slices.Max(seconds))
}
