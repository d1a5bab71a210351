// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Markdown returns the report for users. It contains the data of figures.json as medians and ranges.
func Markdown(r *Report) string {
	w := &writer{Report: r}
	w.head()
	for _, mode := range []Mode{Existing, Join, Real} {
		w.mode(mode)
	}
	return strings.TrimSuffix(w.String(), "\n")
}

type writer struct {
	*Report
	strings.Builder
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// table writes a header and rows of the same width.
func (w *writer) table(head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	w.line("| %s |", strings.Join(head, " | "))
	w.line("|%s", strings.Repeat("---|", len(head)))
	for _, row := range rows {
		w.line("| %s |", strings.Join(row, " | "))
	}
	w.line("")
}

func (w *writer) head() {
	w.line("# What it costs: %d nodes\n", w.Nodes)
	w.line("`%s`, on %s, commit %s. [docs/benchmark.md](https://github.com/everynode/everynode/blob/main/docs/benchmark.md)", w.Command, w.Date, w.Commit)
	w.line("says what is measured, how, and how to read it. `figures.json` has the figures of each run.\n")
	lease, status := Heartbeats(w.Nodes)
	m := w.Machine
	w.table([]string{"machine", ""}, [][]string{
		{"processor", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)},
		{"memory", fmt.Sprintf("%.0f GiB", m.MemoryGiB)},
		{"Kubernetes", m.Kubernetes + "; etcd does not wait for the disk; client limits of the controller manager and the scheduler 500/s, burst 1000 (stock: 20/s, 30 and 50/s, 100)"},
		{"heartbeats of simulated nodes", fmt.Sprintf("a lease every %.0f s and a status every %.0f min from each node", lease.Seconds(), status.Minutes())},
		{"Go", m.Go + ", " + m.OS},
	})
	w.line("Medians of %d runs, in brackets the lowest and the highest, and the ratio (×) to the floor, and to the DaemonSet, of the same", w.Pairs)
	w.line("report. The DaemonSet has no process of its own: it is part of the controller manager.\n")
}

func of(all []Run, s Subject, mode Mode) []Run {
	return slices.DeleteFunc(slices.Clone(all), func(r Run) bool { return r.Subject != s || r.Mode != mode })
}

// figures are those of the runs that have it.
func figures(runs []Run, section Section, name string) []float64 {
	var values []float64
	for i := range runs {
		if value, found := runs[i].Figures[section][name]; found {
			values = append(values, value)
		}
	}
	return values
}

// mode writes a table for each section, with a column for each subject that was measured.
func (w *writer) mode(mode Mode) {
	subjects := slices.DeleteFunc(Subjects(), func(s Subject) bool { return len(of(w.Runs, s, mode)) == 0 })
	if len(subjects) == 0 {
		return
	}
	w.line("## %s\n", strings.ToUpper(string(mode[:1]))+string(mode[1:]))
	w.growth(mode, subjects)
	for _, section := range []Section{Times, CPU, Memory, Phases, Requests, Rest, More} {
		names := map[string]bool{}
		for _, s := range subjects {
			for _, r := range of(w.Runs, s, mode) {
				for name, value := range r.Figures[section] {
					if section != Requests || value >= least {
						names[name] = true
					}
				}
			}
		}
		head, rows := []string{string(section)}, [][]string{}
		for _, s := range subjects {
			head = append(head, string(s))
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			row := []string{name}
			for _, s := range subjects {
				row = append(row, w.cell(s, mode, section, name))
			}
			rows = append(rows, row)
		}
		w.table(head, rows)
	}
}

// least is the lowest number of requests per node that is shown.
const least = 0.05

const none = "–"

// cell returns the median of a figure, with its range if there is more than one run, and its ratios.
func (w *writer) cell(s Subject, mode Mode, section Section, name string) string {
	values := figures(of(w.Runs, s, mode), section, name)
	if len(values) == 0 {
		return none
	}
	cell := fmt.Sprintf("%.2f", Median(values))
	if section == Phases && Median(values) < 1 {
		cell = fmt.Sprintf("%.3f", Median(values))
	}
	if len(values) > 1 {
		cell += fmt.Sprintf(" (%.2f–%.2f)", slices.Min(values), slices.Max(values))
	}
	floor, daemonSet := figures(of(w.Runs, Floor, mode), section, name), figures(of(w.Runs, DaemonSet, mode), section, name)
	if len(floor)+len(daemonSet) > 0 {
		cell += " × " + ratio(Median(values)/Median(floor)) + " / " + ratio(Median(values)/Median(daemonSet))
	}
	return cell
}

func ratio(n float64) string {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return none
	}
	return fmt.Sprintf("%.2f", n)
}

// growth shows how the cost per node grows with the number of nodes.
func (w *writer) growth(mode Mode, subjects []Subject) {
	var rows [][]string
	for _, s := range subjects {
		runs, base := of(w.Runs, s, mode), of(w.Base, s, mode)
		if len(base) == 0 {
			continue
		}
		perNode := func(section Section, name string) string {
			now, before := Median(figures(runs, section, name)), Median(figures(base, section, name))
			return ratio(now / float64(w.Nodes) / (before / float64(w.BaseNodes)))
		}
		rows = append(rows, []string{string(s), perNode(Times, Wall), perNode(CPU, ControlPlane), perNode(CPU, Own), perNode(Memory, Own)})
	}
	w.table([]string{fmt.Sprintf("per node, relative to %d nodes", w.BaseNodes), "wall time", "CPU of the control plane", "own CPU", "own peak memory"}, rows)
}
