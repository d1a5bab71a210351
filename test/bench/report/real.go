// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// phases are the columns in the order in which they happen. A container of the DaemonSet ends after it has set the label.
func (r *Run) phases() []int {
	if r.Subject == DaemonSet {
		return []int{Created, Running, Done, Gone}
	}
	return []int{Created, Running, Ended, Done, Gone}
}

// since returns the times of a column since the last phase that was observed before it, or since the creation of the object.
// A container that ends at once may never be reported as running.
func (r *Run) since(column int) []float64 {
	order := r.phases()
	i := slices.Index(order, column)
	if i < 0 {
		return nil
	}
	var times []float64
	for _, node := range r.Nodes {
		if node[column] == 0 {
			continue
		}
		before := 0.0
		for _, earlier := range order[:i] {
			if node[earlier] <= node[column] { // nodes and pods are observed by two watches
				before = max(before, node[earlier])
			}
		}
		times = append(times, node[column]-before)
	}
	return times
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

// RealMarkdown returns the report of real nodes.
func RealMarkdown(r *Report) string {
	w := &writer{Report: r}
	w.line("# On %d real nodes\n", r.Nodes)
	w.head(&r.Head, "; etcd does not wait for the disk")
	w.line("A task that does nothing, with its image on the nodes. Medians of %d turns of each subject, in brackets the lowest and the highest.\n", r.Pairs)
	nodes := float64(r.Nodes)
	ratios := []string{"× the DaemonSet"}
	var columns []column
	for _, f := range []figure{
		{half.name, "%.2f", half.of}, {"last node done s", "%.2f", done(100)}, {"no pod left s", "%.2f", wall.of},
		{"container end to record p50 ms", "%.0f", endToRecord},
		{"requests per node", "%.1f", func(r *Run) float64 { return r.work().Sum() / nodes }},
		{"writes per node", "%.1f", func(r *Run) float64 { return r.work().Writes() / nodes }},
	} {
		columns = append(columns, f.spread())
		ratios = append(ratios, times(figures(w.of(Everynode, Real, false), f.of), figures(w.of(DaemonSet, Real, false), f.of)))
	}
	w.table(names("subject", columns), append(w.rows(columns, Real), ratios))
	w.line("Requests and writes are those of all clients, kubelets included, without heartbeats and this program's own.\n")
	w.line("## Phases\n")
	w.line("Milliseconds since the phase before, p50 of all nodes and turns, as a watch sees it; in brackets the nodes for which it was seen, if not all:\n")
	columns = []column{
		phase("pod created", Created), phase("container running", Running), phase("container ended", Ended), phase("node done", Done), phase("pod gone", Gone),
	}
	w.table(names("subject", columns), w.rows(columns, Real))
	w.line("## Requests per node\n")
	w.line("By client, median of the turns; less than 0.05 left out:\n")
	w.table([]string{"subject", "client", "requests per node"},
		append(w.requestRows(w.of(DaemonSet, Real, false)), w.requestRows(w.of(Everynode, Real, false))...))
	return strings.TrimSuffix(w.String(), "\n")
}

// endToRecord is NaN for the DaemonSet, which has no record.
func endToRecord(r *Run) float64 {
	if r.Subject == DaemonSet {
		return math.NaN()
	}
	return 1000 * Percentile(r.since(Done), 50)
}

func phase(name string, which int) column {
	return column{name, func(runs []Run) string {
		var all []float64
		nodes := 0
		for i := range runs {
			all = append(all, runs[i].since(which)...)
			nodes += len(runs[i].Nodes)
		}
		cell := number("%.0f", 1000*Percentile(all, 50))
		if len(all) > 0 && len(all) < nodes {
			cell += fmt.Sprintf(" (%d of %d)", len(all), nodes)
		}
		return cell
	}}
}
