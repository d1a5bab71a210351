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
	w.line("# What it costs: %d nodes\n", w.Nodes)
	w.head(&w.Head, ", a control plane started fresh for each run; etcd does not wait for the disk; client limits of the controller manager "+
		"and the scheduler 500/s, burst 1000 (stock: 20/s, 30 and 50/s, 100)")
	w.summary()
	w.growth()
	w.mode(Existing)
	w.mode(Join)
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

// head says where the report is from. about follows the version of Kubernetes.
func (w *writer) head(h *Head, about string) {
	w.line("`%s`, on %s, commit %s. [docs/benchmark.md](https://github.com/everynode/everynode/blob/main/docs/benchmark.md)", h.Command, h.Date, h.Commit)
	w.line("says what is measured, how, and how to read it. `figures.json` has the figures of each run.\n")
	m := h.Machine
	w.table([]string{"machine", ""}, [][]string{
		{"processor", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)},
		{"memory", fmt.Sprintf("%.0f GiB", m.MemoryGiB)},
		{"Kubernetes", m.Kubernetes + about},
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

func figures(runs []Run, of func(*Run) float64) []float64 {
	values := make([]float64, 0, len(runs))
	for i := range runs {
		values = append(values, of(&runs[i]))
	}
	return values
}

// spread is the median of a figure, with its range if there is more than one run.
func (f figure) spread() column {
	return column{f.name, func(runs []Run) string { return spread(figures(runs, f.of), f.format) }}
}

// ratio is the ratio of the medians of a figure to the floor.
func (w *writer) ratio(f figure) column {
	return column{"×", func(runs []Run) string {
		return times(figures(runs, f.of), figures(w.of(Floor, runs[0].Mode, false), f.of))
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
	half        = figure{"node done p50 s", "%.1f", done(50)}
	most        = figure{"node done p99 s", "%.1f", done(99)}
	wall        = figure{"wall s", "%.1f", func(r *Run) float64 { return r.Wall }}
	controlCPU  = figure{"control plane CPU s", "%.1f", func(r *Run) float64 { return r.Cost.ControlCPU() }}
	ownCPU      = figure{"own CPU s", "%.2f", func(r *Run) float64 { return known(r.Cost.CPU, Own) }}
	ownPeak     = figure{"own peak MiB", "%.0f", func(r *Run) float64 { return known(r.PeakMiB, Own) }}
	completeAt  = figure{"Complete s", "%.1f", func(r *Run) float64 { return unlessZero(r.Complete) }}
	lastCreated = figure{"last node created", "%.1f", lastJoined}
)

// done returns a percentile of the delays until nodes are done.
func done(p float64) func(*Run) float64 {
	return func(r *Run) float64 { return Percentile(r.Delays(Done), p) }
}

// known is NaN for a process that a subject does not have.
func known(by map[string]float64, process string) float64 {
	if value, found := by[process]; found {
		return value
	}
	return math.NaN()
}

func unlessZero(n float64) float64 {
	if n == 0 {
		return math.NaN()
	}
	return n
}

// lastJoined is when the creation of the last node began. A subject that delays the API server also delays the creation of
// nodes, and their delays count from their creation.
func lastJoined(r *Run) float64 {
	last := 0.0
	for _, node := range r.Nodes {
		last = max(last, node[Joined])
	}
	return last
}

// summary has first what a user waits for, then what the cluster pays.
func (w *writer) summary() {
	w.line("## Summary\n")
	w.line("%s. In brackets: the ratio to the floor, and the ratio to the DaemonSet, of the same report.\n", w.medians())
	var columns []column
	for _, f := range []figure{half, most, wall, controlCPU, ownCPU} {
		columns = append(columns, column{f.name, func(runs []Run) string {
			values := figures(runs, f.of)
			median := number(f.format, Median(values))
			if median == none {
				return none
			}
			to := func(s Subject) string { return times(values, figures(w.of(s, runs[0].Mode, false), f.of)) }
			return fmt.Sprintf("%s (%s / %s)", median, to(Floor), to(DaemonSet))
		}})
	}
	for _, mode := range []Mode{Existing, Join} {
		w.table(names(string(mode), columns), w.rows(columns, mode))
	}
	w.line("A node is done when a watch shows its record, or for the DaemonSet its label; the time counts from the creation of the")
	w.line("object, or of the node in a join storm.\n")
	w.line("![nodes done over time](plot.svg)\n")
}

// medians says what the figures are.
func (w *writer) medians() string {
	if w.Pairs == 1 {
		return "Figures of one run"
	}
	return fmt.Sprintf("Medians of %d runs", w.Pairs)
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

func (w *writer) mode(mode Mode) {
	columns := []column{
		wall.spread(), w.ratio(wall), controlCPU.spread(), w.ratio(controlCPU), ownCPU.spread(), w.ratio(ownCPU), ownPeak.spread(),
		{"own requests per node", w.counted(func(r *Run) string {
			own := r.Subject.own(r.Clients)
			return w.perNode(own.Sum()) + ", writes " + w.perNode(own.Writes())
		})},
		{"all per node", w.counted(func(r *Run) string {
			total := 0.0
			for _, counts := range r.Clients {
				total += counts.Sum()
			}
			return w.perNode(total)
		})},
		completeAt.spread(),
	}
	rows := w.rows(columns, mode)
	if len(rows) == 0 {
		return
	}
	w.line("## %s\n", strings.ToUpper(string(mode[:1]))+string(mode[1:]))
	w.line("%s, in brackets the lowest and the highest. × is the ratio to the floor. The program of the DaemonSet is the controller manager.\n", w.medians())
	w.table(names("subject", columns), rows)
	w.delays(mode)
	w.line("CPU seconds by process:\n")
	w.processes(mode, "%.2f", func(r *Run) map[string]float64 { return r.Cost.CPU })
	w.line("Most memory resident, in MiB:\n")
	w.processes(mode, "%.0f", func(r *Run) map[string]float64 { return r.PeakMiB })
	var requests [][]string
	for _, s := range Subjects() {
		requests = append(requests, w.requestRows(w.of(s, mode, true))...)
	}
	if len(requests) > 0 {
		w.line("Requests per node by client, verb and resource, in a run of its own with the audit log on; less than 0.05 left out:\n")
		w.table([]string{"subject", "client", "requests per node"}, requests)
	}
}

// counted returns a cell with figures of the run in which requests were counted.
func (w *writer) counted(text func(*Run) string) func([]Run) string {
	return func(runs []Run) string {
		for _, r := range w.of(runs[0].Subject, runs[0].Mode, true) {
			return text(&r)
		}
		return none
	}
}

func (w *writer) perNode(n float64) string { return fmt.Sprintf("%.2f", n/float64(w.Nodes)) }

// delays is a table of when nodes were how far.
func (w *writer) delays(mode Mode) {
	columns := []column{
		percentiles("pod created", func(r *Run) []float64 { return r.Delays(Created) }),
		percentiles("pod Running", func(r *Run) []float64 { return r.Delays(Running) }),
		percentiles("node done", func(r *Run) []float64 { return r.Delays(Done) }),
		percentiles("pod ended to node done", func(r *Run) []float64 { return r.Between(Ended, Done) }),
	}
	since := "the creation of the object"
	if mode == Join {
		since = "the creation of the node"
		ready := percentiles("node Ready", func(r *Run) []float64 { return r.Delays(Ready) })
		columns = append(append([]column{ready}, columns...), lastCreated.spread())
	}
	w.line("Seconds since %s, p50 / p90 / p99, the median of each over the runs:\n", since)
	w.table(names("subject", columns), w.rows(columns, mode))
}

// percentiles has the medians over the runs of three percentiles.
func percentiles(name string, of func(*Run) []float64) column {
	return column{name, func(runs []Run) string {
		var parts []string
		for _, p := range []float64{50, 90, 99} {
			parts = append(parts, number("%.1f", Median(figures(runs, func(r *Run) float64 { return Percentile(of(r), p) }))))
		}
		if parts[0] == none {
			return none // a pod of the DaemonSet does not end before its node is done
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

// requestRows returns a row for each client, with the medians over the runs. The client with the most requests comes first.
// On real nodes, heartbeats are shown separately.
func (w *writer) requestRows(runs []Run) [][]string {
	clients := ClientCounts{}
	for i := range runs {
		for client, counts := range runs[i].Clients {
			for what := range counts {
				n := Median(figures(runs, func(r *Run) float64 { return r.Clients[client][what] }))
				if runs[i].Mode == Real && Heartbeat(client, what) {
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
	return fmt.Sprintf("**%s**: %s", w.perNode(counts.Sum()), strings.Join(parts, ", "))
}

func (w *writer) idle() {
	perMinute := func(name, process string) column {
		return column{name, func(runs []Run) string {
			for i := range runs {
				if idle := runs[i].Idle; idle != nil {
					return number("%.2f", known(idle.CPU, process)/idle.Seconds*60)
				}
			}
			return none
		}}
	}
	columns := []column{
		perMinute("own", Own), perMinute("kube-controller-manager", "kube-controller-manager"),
		perMinute("kube-apiserver", "kube-apiserver"), perMinute("etcd", "etcd"),
		{"own writes, its leader's lease aside", w.counted(func(r *Run) string {
			if r.Idle == nil || r.Subject == DaemonSet {
				return none
			}
			return fmt.Sprintf("%.0f in %.0f s", r.Subject.own(r.Idle.Clients).Writes(), r.Idle.Seconds)
		})},
	}
	rows := w.rows(columns, Existing)
	if len(rows) == 0 {
		return
	}
	w.line("## Idle\n")
	w.line("All nodes are done, and nothing happens but heartbeats: %s. CPU seconds per minute:\n", heartbeatsOf(w.Nodes))
	w.table(names("subject", columns), rows)
}

func (w *writer) simulator() {
	between := func(name string, from, to int) column {
		return column{name, func(runs []Run) string {
			middle := func(p float64) float64 {
				return Median(figures(runs, func(r *Run) float64 { return Percentile(r.Between(from, to), p) }))
			}
			if math.IsNaN(middle(50)) {
				return none // a pod of the DaemonSet does not end
			}
			return fmt.Sprintf("%.2f / %.2f", middle(50), middle(99))
		}}
	}
	share := func(name string, seconds func(*Run) float64) column {
		return figure{name, "%.0f", func(r *Run) float64 {
			return 100 * seconds(r) / r.Cost.Seconds / float64(max(w.Machine.Cores, 1))
		}}.spread()
	}
	columns := []column{
		between("pod created to Running", Created, Running), between("Running to ended", Running, Ended),
		share("CPU of kwok", func(r *Run) float64 { return r.Cost.CPU[Simulator] }),
		share("CPU of the machine", func(r *Run) float64 { return r.Cost.MachineCPU }),
	}
	w.line("## Is the simulator of nodes what is measured?\n")
	var rows [][]string
	if s := w.Simulator; s != nil {
		w.line("With pods created in a plain loop, and nothing else running, it had all %d pods created after %.1f s and ended after", w.Nodes, s.Complete)
		w.line("%.1f s, of which the task itself is 1 s.\n", s.Wall)
		rows = append(rows, row("a plain loop", columns, []Run{*s}))
	}
	w.line("Seconds, p50 / p99, and percent of all cores:\n")
	w.table(names("", columns), append(rows, w.rows(columns, Existing, Join)...))
}
