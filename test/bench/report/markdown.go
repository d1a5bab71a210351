// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/everynode/everynode/test/bench/measure"
)

// Markdown returns the report for users. It contains the data of raw.json as medians and ranges.
func Markdown(r *Report) string {
	w := &writer{Report: r}
	w.head()
	w.summary()
	w.growth()
	for _, mode := range []Mode{Existing, Join} {
		w.mode(mode)
	}
	w.idle()
	w.simulator()
	return w.String()
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
	w.line("says what is measured, how, and how to read it. `raw.json` has all figures of all runs, `figures.json` those that are not per node.\n")
	m := w.Machine
	w.table([]string{"machine", ""}, [][]string{
		{"processor", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)},
		{"memory", fmt.Sprintf("%.0f GiB", m.MemoryGiB)},
		{"Kubernetes", m.Kubernetes + ", a control plane started fresh for each run; etcd does not wait for the disk; client limits of the controller manager and the scheduler 500/s, burst 1000 (stock: 20/s, 30 and 50/s, 100)"},
		{"Go", m.Go + ", " + m.OS},
	})
}

// of returns the runs of a subject, counted or not.
func (w *writer) of(s Subject, mode Mode, counted bool) []Run { return of(w.Runs, s, mode, counted) }

func of(all []Run, s Subject, mode Mode, counted bool) []Run {
	var runs []Run
	for i := range all {
		if r := &all[i]; r.Subject == s && r.Mode == mode && r.Counted == counted {
			runs = append(runs, *r)
		}
	}
	return runs
}

var subjects = []Subject{Floor, Recorded, DaemonSet, Everynode, Gated, Default, Unchecked}

func (w *writer) mode(mode Mode) {
	var walls, times, memory, cpu, requests [][]string
	for _, s := range subjects {
		runs := w.of(s, mode, false)
		if len(runs) == 0 {
			continue
		}
		base := w.of(Floor, mode, false)
		walls = append(walls, append([]string{string(s)}, w.wallRow(runs, base)...))
		times = append(times, append([]string{string(s)}, timesRow(runs, mode)...))
		cpu = append(cpu, append([]string{string(s)}, processRow(runs, "%.2f", func(r *Run) map[string]float64 { return r.Cost.CPU })...))
		memory = append(memory, append([]string{string(s)}, processRow(runs, "%.0f", func(r *Run) map[string]float64 { return r.PeakMiB })...))
		for _, r := range w.of(s, mode, true) {
			requests = append(requests, w.requestRows(&r)...)
		}
	}
	if len(walls) == 0 {
		return
	}
	w.line("## %s\n", title(mode))
	w.line("%s, in brackets the lowest and the highest. × is the ratio to the floor.\n", w.medians())
	w.table([]string{"subject", "wall s", "×", "control plane CPU s", "×", "own CPU s", "×", "own peak MiB", "own requests per node", "all per node", "Complete s"}, walls)
	w.delays(mode, times)
	w.line("CPU seconds by process:\n")
	w.table(append([]string{"subject"}, processNames...), cpu)
	w.line("Most memory resident, in MiB:\n")
	w.table(append([]string{"subject"}, processNames...), memory)
	if len(requests) > 0 {
		w.line("Requests per node by client, verb and resource, in a run of its own with the audit log on; less than 0.05 left out:\n")
		w.table([]string{"subject", "client", "requests per node"}, requests)
	}
}

var processNames = []string{Own, Labeler, "kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", Simulator, Harness}

func figures(runs []Run, figure func(*Run) float64) []float64 {
	values := make([]float64, 0, len(runs))
	for i := range runs {
		values = append(values, figure(&runs[i]))
	}
	return values
}

// spread returns a median, with its range if there is more than one value.
func spread(values []float64, format string) string {
	if len(values) == 0 || math.IsNaN(measure.Median(values)) {
		return "–"
	}
	median := fmt.Sprintf(format, measure.Median(values))
	if len(values) == 1 {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, fmt.Sprintf(format, slices.Min(values)), fmt.Sprintf(format, slices.Max(values)))
}

// times returns the ratio of two medians.
func times(values, base []float64) string {
	ratio := measure.Median(values) / measure.Median(base)
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return "–"
	}
	return fmt.Sprintf("%.2f", ratio)
}

func (w *writer) wallRow(runs, base []Run) []string {
	wall := func(r *Run) float64 { return r.Wall }
	control := (*Run).ControlCPU
	own := func(r *Run) float64 { return r.Cost.CPU[Own] }
	row := []string{
		spread(figures(runs, wall), "%.1f"), times(figures(runs, wall), figures(base, wall)),
		spread(figures(runs, control), "%.1f"), times(figures(runs, control), figures(base, control)),
	}
	if runs[0].Subject == DaemonSet {
		row = append(row, "in the controller manager", "–", "–")
	} else {
		row = append(row, spread(figures(runs, own), "%.2f"), times(figures(runs, own), figures(base, own)),
			spread(figures(runs, func(r *Run) float64 { return r.PeakMiB[Own] }), "%.0f"))
	}
	counted := w.of(runs[0].Subject, runs[0].Mode, true)
	mine, all := "–", "–"
	if len(counted) > 0 {
		writes := 0.0
		for _, agent := range runs[0].Subject.agents() {
			writes += counted[0].Clients[agent].Writes()
		}
		mine = w.perNode(requestsOf(&counted[0], runs[0].Subject.agents()...)) + ", writes " + w.perNode(writes)
		all = w.perNode(requestsOf(&counted[0], slices.Collect(maps.Keys(counted[0].Clients))...))
	}
	complete := "–"
	if runs[0].Complete > 0 {
		complete = spread(figures(runs, func(r *Run) float64 { return r.Complete }), "%.1f")
	}
	return append(row, mine, all, complete)
}

func (w *writer) perNode(n float64) string { return fmt.Sprintf("%.2f", n/float64(w.Nodes)) }

func requestsOf(r *Run, clients ...string) float64 {
	total := 0.0
	for _, name := range clients {
		total += r.Clients[name].Sum()
	}
	return total
}

func processRow(runs []Run, format string, of func(*Run) map[string]float64) []string {
	var row []string
	for _, name := range processNames {
		if _, found := of(&runs[0])[name]; !found {
			row = append(row, "–")
			continue
		}
		row = append(row, fmt.Sprintf(format, measure.Median(figures(runs, func(r *Run) float64 { return of(r)[name] }))))
	}
	return row
}

// requestRows returns a row for each client. The client with the most requests comes first.
func (w *writer) requestRows(r *Run) [][]string {
	var rows [][]string
	clients := slices.SortedFunc(maps.Keys(r.Clients), func(a, b string) int {
		if c := requestsOf(r, b) - requestsOf(r, a); c != 0 {
			return int(math.Copysign(1, c))
		}
		return strings.Compare(a, b)
	})
	for _, client := range clients {
		if row := w.clientRow(r.Clients[client]); row != "" {
			rows = append(rows, []string{string(r.Subject), client, row})
		}
	}
	return rows
}

// clientRow returns the requests of a client, the most frequent first; "" if there are almost none.
func (w *writer) clientRow(counts measure.Counts) string {
	const least = 0.05
	whats := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return int(math.Copysign(1, counts[b]-counts[a]))
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, what := range whats {
		if n := counts[what] / float64(w.Nodes); n >= least {
			parts = append(parts, fmt.Sprintf("%s %.2f", what, n))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("**%s**: %s", w.perNode(counts.Sum()), strings.Join(parts, ", "))
}

func (w *writer) idle() {
	var rows [][]string
	for i := range w.Runs {
		r := &w.Runs[i]
		if r.Idle == nil || r.Counted {
			continue
		}
		perMinute := func(seconds float64) string { return fmt.Sprintf("%.2f", seconds/r.Idle.Seconds*60) }
		own := "in the controller manager"
		if _, found := r.Idle.CPU[Own]; found {
			own = perMinute(r.Idle.CPU[Own])
		}
		writes := "–"
		for _, counted := range w.of(r.Subject, r.Mode, true) {
			if counted.Idle != nil && own != "in the controller manager" {
				total := 0.0
				for _, agent := range r.Subject.agents() {
					total += counted.Idle.Clients[agent].Writes()
				}
				writes = fmt.Sprintf("%.0f in %.0f s", total, counted.Idle.Seconds)
			}
		}
		rows = append(rows, []string{
			string(r.Subject), own, perMinute(r.Idle.CPU["kube-controller-manager"]), perMinute(r.Idle.CPU["kube-apiserver"]), perMinute(r.Idle.CPU["etcd"]), writes,
		})
	}
	if len(rows) == 0 {
		return
	}
	w.line("## Idle\n")
	w.line("All nodes are done, and nothing happens but heartbeats: %s. CPU seconds per minute:\n", HeartbeatsOf(w.Nodes))
	w.table([]string{"subject", "own", "kube-controller-manager", "kube-apiserver", "etcd", "own writes, its leader's lease aside"}, rows)
}

func (w *writer) simulator() {
	w.line("## Is the simulator of nodes what is measured?\n")
	var rows [][]string
	row := func(name string, runs []Run) {
		between := func(from, to int) string {
			half, most := middle(runs, from, to, 50), middle(runs, from, to, 99)
			if math.IsNaN(half) {
				return "–" // a pod of the DaemonSet does not end
			}
			return fmt.Sprintf("%.2f / %.2f", half, most)
		}
		share := figures(runs, func(r *Run) float64 {
			return 100 * r.Cost.CPU[Simulator] / r.Cost.Seconds / float64(max(w.Machine.Cores, 1))
		})
		busy := figures(runs, func(r *Run) float64 {
			return 100 * r.Cost.MachineCPU / r.Cost.Seconds / float64(max(w.Machine.Cores, 1))
		})
		rows = append(rows, []string{name, between(Created, Running), between(Running, Ended), spread(share, "%.0f"), spread(busy, "%.0f")})
	}
	if s := w.Simulator; s != nil {
		w.line("With pods created in a plain loop, and nothing else running, it had all %d pods created after %.1f s and ended after", w.Nodes, s.Complete)
		w.line("%.1f s, of which the task itself is 1 s.\n", s.Wall)
		row("a plain loop", []Run{*s})
	}
	for _, mode := range []Mode{Existing, Join} {
		for _, s := range subjects {
			if runs := w.of(s, mode, false); len(runs) > 0 {
				row(fmt.Sprintf("%s, %s", s, mode), runs)
			}
		}
	}
	w.line("Seconds, p50 / p99, and percent of all cores:\n")
	w.table([]string{"", "pod created to Running", "Running to ended", "CPU of kwok", "CPU of the machine"}, rows)
}

// middle returns the median over the runs of a percentile of the time from one column to another.
func middle(runs []Run, from, to int, p float64) float64 {
	return measure.Median(figures(runs, func(r *Run) float64 { return measure.Percentile(r.Between(from, to), p) }))
}
