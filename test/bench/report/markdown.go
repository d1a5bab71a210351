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
	w.growth()
	for _, mode := range []Mode{Existing, Join, Real} {
		w.mode(mode)
	}
	w.more()
	w.idle()
	w.simulator()
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
	m := w.Machine
	w.table([]string{"machine", ""}, [][]string{
		{"processor", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)},
		{"memory", fmt.Sprintf("%.0f GiB", m.MemoryGiB)},
		{"Kubernetes", m.Kubernetes + "; etcd does not wait for the disk; client limits of the controller manager and the scheduler 500/s, burst 1000 (stock: 20/s, 30 and 50/s, 100)"},
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

// column is a column of a table with a row for each subject.
type column struct {
	name string
	cell func(runs []Run) string
}

const none = "–"

func row(name string, columns []column, runs []Run) []string {
	cells := []string{name}
	for _, c := range columns {
		cells = append(cells, c.cell(runs))
	}
	return cells
}

// rows returns the rows of the subjects that were measured. A row without any figure is left out.
func (w *writer) rows(columns []column, modes ...Mode) [][]string {
	var rows [][]string
	for _, mode := range modes {
		for _, s := range Subjects() {
			name := string(s)
			if len(modes) > 1 {
				name += ", " + string(mode)
			}
			if runs := w.of(s, mode, false); len(runs) > 0 {
				rows = append(rows, row(name, columns, runs))
			}
		}
	}
	return slices.DeleteFunc(rows, func(cells []string) bool {
		return !slices.ContainsFunc(cells[1:], func(cell string) bool { return cell != none })
	})
}

func names(first string, columns []column) []string {
	all := []string{first}
	for _, c := range columns {
		all = append(all, c.name)
	}
	return all
}

// figure is what is compared between runs: NaN if a run does not have it.
type figure struct {
	name, format string
	of           func(*Run) float64
}

// figures are those of the runs that have it.
func figures(runs []Run, of func(*Run) float64) []float64 {
	var values []float64
	for i := range runs {
		if value := of(&runs[i]); !math.IsNaN(value) {
			values = append(values, value)
		}
	}
	return values
}

// spread is the median of a figure, with its range if there is more than one run.
func (f figure) spread() column {
	return column{f.name, func(runs []Run) string { return spread(figures(runs, f.of), f.format) }}
}

// compared is the same, with the ratios of the median to that of the floor and to that of the DaemonSet.
func (w *writer) compared(f figure) column {
	return column{f.name, func(runs []Run) string {
		values := figures(runs, f.of)
		floor, daemonSet := w.of(Floor, runs[0].Mode, false), w.of(DaemonSet, runs[0].Mode, false)
		if len(values) == 0 || len(floor)+len(daemonSet) == 0 {
			return spread(values, f.format)
		}
		return fmt.Sprintf("%s × %s / %s", spread(values, f.format), times(values, figures(floor, f.of)), times(values, figures(daemonSet, f.of)))
	}}
}

// number returns a figure as text, also if there is none.
func number(format string, n float64) string {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return none
	}
	return fmt.Sprintf(format, n)
}

// spread returns a median, with its range if there is more than one value.
func spread(values []float64, format string) string {
	median := number(format, Median(values))
	if len(values) < 2 || median == none {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, fmt.Sprintf(format, slices.Min(values)), fmt.Sprintf(format, slices.Max(values)))
}

// times returns the ratio of two medians.
func times(values, base []float64) string { return number("%.2f", Median(values)/Median(base)) }

var (
	half       = figure{"node done p50 s", "%.2f", func(r *Run) float64 { return r.Percentile("node done", 0) }}
	most       = figure{"node done p99 s", "%.2f", func(r *Run) float64 { return r.Percentile("node done", 2) }}
	wall       = figure{"wall s", "%.2f", func(r *Run) float64 { return r.Wall }}
	controlCPU = figure{"control plane CPU s", "%.1f", func(r *Run) float64 { return r.Cost.ControlCPU() }}
	ownCPU     = figure{"own CPU s", "%.2f", func(r *Run) float64 { return known(r.Cost.CPU, Own) }}
	ownPeak    = figure{"own peak MiB", "%.0f", func(r *Run) float64 { return known(r.PeakMiB, Own) }}
	completeAt = figure{"Complete s", "%.2f", func(r *Run) float64 {
		if r.Complete == 0 {
			return math.NaN()
		}
		return r.Complete
	}}
)

// known is NaN for a process that a subject does not have.
func known(by map[string]float64, process string) float64 {
	if value, found := by[process]; found {
		return value
	}
	return math.NaN()
}

// growth shows how the cost per node grows with the number of nodes.
func (w *writer) growth() {
	if len(w.Base) == 0 {
		return
	}
	w.line("## Cost per node, relative to %d nodes\n", w.BaseNodes)
	w.line("The same subjects were also measured on %d nodes, in turn. Figures per 1,000 nodes, and in brackets their ratio to those on", w.BaseNodes)
	w.line("%d nodes. The last column is not per node: all nodes begin at once.\n", w.BaseNodes)
	base := func(runs []Run) []Run { return of(w.Base, runs[0].Subject, runs[0].Mode, false) }
	var columns []column
	for _, f := range []figure{wall, controlCPU, ownCPU, ownPeak} {
		columns = append(columns, column{f.name, func(runs []Run) string {
			per := func(n int) func(*Run) float64 { return func(r *Run) float64 { return f.of(r) * 1000 / float64(n) } }
			now, before := figures(runs, per(w.Nodes)), figures(base(runs), per(w.BaseNodes))
			if ratio := times(now, before); ratio != none {
				return fmt.Sprintf("%.1f (%s)", Median(now), ratio)
			}
			return none
		}})
	}
	columns = append(columns, column{half.name, func(runs []Run) string {
		if before := number(half.format, Median(figures(base(runs), half.of))); before != none {
			return fmt.Sprintf("%.1f, on %d nodes %s", Median(figures(runs, half.of)), w.BaseNodes, before)
		}
		return none
	}})
	w.table(names("per 1,000 nodes", columns), w.rows(columns, Existing, Join))
	w.line("Heartbeats of %d nodes: %s; of %d nodes: %s.\n", w.Nodes, heartbeatsOf(w.Nodes), w.BaseNodes, heartbeatsOf(w.BaseNodes))
}

// mode begins with what a user waits for, then what the cluster pays.
func (w *writer) mode(mode Mode) {
	requests := func(name string, of func(*Run) float64) column {
		return column{name, func(runs []Run) string {
			return spread(figures(w.counted(&runs[0]), func(r *Run) float64 { return of(r) / float64(w.Nodes) }), "%.2f")
		}}
	}
	columns := []column{
		w.compared(half), w.compared(most), w.compared(wall), w.compared(controlCPU), w.compared(ownCPU), ownPeak.spread(), completeAt.spread(),
		requests("own requests per node", func(r *Run) float64 { return r.Subject.own(r.Clients).Sum() }),
		requests("own writes", func(r *Run) float64 { return r.Subject.own(r.Clients).Writes() }),
		requests("all requests", func(r *Run) float64 { return r.work().Sum() }),
		requests("all writes", func(r *Run) float64 { return r.work().Writes() }),
	}
	rows := w.rows(columns, mode)
	if len(rows) == 0 {
		return
	}
	w.line("## %s\n", strings.ToUpper(string(mode[:1]))+string(mode[1:]))
	w.line("Medians of %d runs, in brackets the lowest and the highest. × is the ratio to the floor, and to the DaemonSet, of the same report. The", w.Pairs)
	w.line("DaemonSet's own program is part of the controller manager. All requests are those without heartbeats.\n")
	w.table(names("subject", columns), rows)
	w.delays(mode)
	w.line("CPU seconds by process:\n")
	w.processes(mode, "%.2f", func(r *Run) map[string]float64 { return r.Cost.CPU })
	w.line("Most memory resident, in MiB:\n")
	w.processes(mode, "%.0f", func(r *Run) map[string]float64 { return r.PeakMiB })
	var clients [][]string
	for _, s := range Subjects() {
		clients = append(clients, w.requestRows(w.counted(&Run{Subject: s, Mode: mode}))...)
	}
	if len(clients) > 0 {
		w.line("Requests per node by client, verb and resource, in runs with the audit log on; less than 0.05 left out:\n")
		w.table([]string{"subject", "client", "requests per node"}, clients)
	}
}

// counted returns the runs of the same subject and mode in which requests were counted by client.
func (w *writer) counted(r *Run) []Run {
	runs := append(w.of(r.Subject, r.Mode, true), w.of(r.Subject, r.Mode, false)...)
	return slices.DeleteFunc(runs, func(r Run) bool { return r.Clients == nil })
}

// delays is a table of when nodes were how far.
func (w *writer) delays(mode Mode) {
	format, since := "%.1f", "the creation of the object"
	if mode == Real {
		format = "%.3f"
	}
	spans := []string{"pod created", "pod Running", "node done", "pod gone", "pod ended to node done"}
	if mode == Join {
		since = "the creation of the node"
		spans = append([]string{"node created", "node Ready"}, spans...)
	}
	var columns []column
	for _, span := range spans {
		columns = append(columns, percentiles(span, format, 0, 1, 2))
	}
	w.line("Seconds since %s, p50 / p90 / p99, the median of each over the runs. Nodes are created since the beginning:\n", since)
	w.table(names("subject", columns), w.rows(columns, mode))
}

// percentiles has the medians over the runs of some percentiles of a span.
func percentiles(span, format string, which ...int) column {
	return column{span, func(runs []Run) string {
		var parts []string
		for _, i := range which {
			parts = append(parts, number(format, Median(figures(runs, func(r *Run) float64 { return r.Percentile(span, i) }))))
		}
		if parts[0] == none {
			return none
		}
		return strings.Join(parts, " / ")
	}}
}

func (w *writer) processes(mode Mode, format string, of func(*Run) map[string]float64) {
	var columns []column
	for _, name := range []string{Own, Labeler, "kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", Simulator, Harness} {
		columns = append(columns, column{name, func(runs []Run) string {
			return number(format, Median(figures(runs, func(r *Run) float64 { return known(of(r), name) })))
		}})
	}
	w.table(names("subject", columns), w.rows(columns, mode))
}

// Heartbeat reports whether a request is made regularly, without any work: a lease, or the status of a node.
func Heartbeat(client, what string) bool {
	return strings.HasSuffix(what, " leases") || client == "kubelet" && (what == "get nodes" || what == "patch nodes/status")
}

// work returns the requests of all clients without heartbeats.
func (r *Run) work() Counts {
	work := Counts{}
	for client, counts := range r.Clients {
		for what, n := range counts {
			if !Heartbeat(client, what) {
				work[what] += n
			}
		}
	}
	return work
}

// requestRows returns a row for each client, with the medians over the runs. The client with the most requests comes first.
// Heartbeats are shown separately.
func (w *writer) requestRows(runs []Run) [][]string {
	clients := ClientCounts{}
	for i := range runs {
		for client, counts := range runs[i].Clients {
			for what := range counts {
				n := Median(figures(runs, func(r *Run) float64 { return r.Clients[client][what] }))
				if Heartbeat(client, what) {
					clients.of("heartbeats")[client+" "+what] = n
				} else {
					clients.of(client)[what] = n
				}
			}
		}
	}
	sums := Counts{}
	for client, counts := range clients {
		sums[client] = counts.Sum()
	}
	var rows [][]string
	for _, client := range byNumber(sums) {
		if text := w.requests(clients[client]); text != "" {
			rows = append(rows, []string{string(runs[0].Subject), client, text})
		}
	}
	return rows
}

// byNumber returns what was counted, the most frequent first.
func byNumber(counts Counts) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return int(math.Copysign(1, counts[b]-counts[a]))
		}
		return strings.Compare(a, b)
	})
}

// requests returns the requests of a client, the most frequent first; "" if there are almost none.
func (w *writer) requests(counts Counts) string {
	const least = 0.05
	var parts []string
	for _, what := range byNumber(counts) {
		if n := counts[what] / float64(w.Nodes); n >= least {
			parts = append(parts, fmt.Sprintf("%s %.2f", what, n))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("**%.2f**: %s", counts.Sum()/float64(w.Nodes), strings.Join(parts, ", "))
}

// more has the figures that only some subjects have.
func (w *writer) more() {
	var rows [][]string
	for i := range w.Runs {
		r := &w.Runs[i]
		for _, f := range r.More {
			cells := []string{string(r.Subject), f.Name, spread(valuesOf(w.of(r.Subject, r.Mode, false), f.Name), "%.2f")}
			if !slices.ContainsFunc(rows, func(row []string) bool { return slices.Equal(row, cells) }) {
				rows = append(rows, cells)
			}
		}
	}
	if len(rows) > 0 {
		w.line("## More figures\n")
		w.table([]string{"subject", "figure", ""}, rows)
	}
}

func valuesOf(runs []Run, name string) []float64 {
	var values []float64
	for i := range runs {
		for _, f := range runs[i].More {
			if f.Name == name {
				values = append(values, f.Value)
			}
		}
	}
	return values
}

func (w *writer) idle() {
	var columns []column
	for _, process := range []string{Own, "kube-controller-manager", "kube-apiserver", "etcd"} {
		columns = append(columns, figure{process, "%.2f", func(r *Run) float64 {
			if r.Idle == nil {
				return math.NaN()
			}
			return known(r.Idle.CPU, process) / r.Idle.Seconds * 60
		}}.spread())
	}
	columns = append(columns, column{"own writes per minute, its leader's lease aside", func(runs []Run) string {
		return spread(figures(w.counted(&runs[0]), func(r *Run) float64 {
			if r.Idle == nil {
				return math.NaN()
			}
			return r.Subject.own(r.Idle.Clients).Writes() / r.Idle.Seconds * 60
		}), "%.1f")
	}})
	if rows := w.rows(columns, Existing); len(rows) > 0 {
		w.line("## Idle\n")
		w.line("All nodes are done, and nothing happens but heartbeats: %s. CPU seconds per minute:\n", heartbeatsOf(w.Nodes))
		w.table(names("subject", columns), rows)
	}
}

func (w *writer) simulator() {
	share := func(name string, seconds func(*Run) float64) column {
		return figure{name, "%.0f", func(r *Run) float64 {
			return 100 * seconds(r) / r.Cost.Seconds / float64(max(w.Machine.Cores, 1))
		}}.spread()
	}
	columns := []column{
		percentiles("pod created to Running", "%.2f", 0, 2), percentiles("Running to ended", "%.2f", 0, 2),
		share("CPU of kwok", func(r *Run) float64 { return r.Cost.CPU[Simulator] }),
		share("CPU of the machine", func(r *Run) float64 { return r.Cost.MachineCPU }),
	}
	if rows := w.rows(columns, Existing, Join); len(rows) > 0 {
		w.line("## Is the simulator of nodes what is measured?\n")
		w.line("Seconds, p50 / p99, and percent of all cores. `%s` is a plain loop that creates a pod on each node, while nothing else runs:\n", Plain)
		w.table(names("", columns), rows)
	}
}
