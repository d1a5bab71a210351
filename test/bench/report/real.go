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

// Real is what was measured on real nodes.
type Real struct {
	Command string  `json:"command"`
	Date    string  `json:"date"`
	Commit  string  `json:"commit"`
	Machine Machine `json:"machine"`
	Nodes   int     `json:"nodes"`
	Pairs   int     `json:"pairs"`
	// Columns name the values of RealTurn.Nodes.
	Columns []string   `json:"columns"`
	Turns   []RealTurn `json:"turns"`
}

// RealTurn is the measurement of one subject on all nodes.
type RealTurn struct {
	Subject Subject `json:"subject"`
	Pair    int     `json:"pair"`
	// Wall is the time until all nodes are done and no pod is left, in seconds.
	Wall float64 `json:"wallSeconds"`
	// PodsCreated is larger than the number of nodes if a task ran twice.
	PodsCreated int `json:"podsCreated"`
	// Clients are the requests by client.
	Clients measure.ClientCounts `json:"clients"`
	// Nodes contains for each node the seconds since the creation of the object at which each of Columns was observed; 0 if
	// it was not.
	Nodes [][]float64 `json:"nodes"`
}

// Columns of RealTurn.Nodes.
const (
	RealCreated = iota
	RealRunning
	RealEnded
	RealDone
	RealGone
	// RealColumns is their number.
	RealColumns
)

// RealColumnNames are those of the columns.
func RealColumnNames() []string {
	return []string{"pod created", "container running", "container ended", "node done", "pod gone"}
}

// column returns the times of a column, without nodes for which it was not observed.
func (t *RealTurn) column(column int) []float64 {
	var times []float64
	for _, node := range t.Nodes {
		if node[column] > 0 {
			times = append(times, node[column])
		}
	}
	return times
}

// LastDone is when the last node was done.
func (t *RealTurn) LastDone() float64 { return measure.Percentile(t.column(RealDone), 100) }

// phases are the columns in the order in which they happen. A container of the DaemonSet ends after it has set the label.
func phases(s Subject) []int {
	if s == DaemonSet {
		return []int{RealCreated, RealRunning, RealDone, RealGone}
	}
	return []int{RealCreated, RealRunning, RealEnded, RealDone, RealGone}
}

// since returns the times of a column since the last phase that was observed before it, or since the creation of the object.
// A container that ends at once may never be reported as running.
func (t *RealTurn) since(column int) []float64 {
	order := phases(t.Subject)
	i := slices.Index(order, column)
	if i < 0 {
		return nil
	}
	var times []float64
	for _, node := range t.Nodes {
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

// requests returns the requests of all clients without heartbeats, or only those that write.
func (t *RealTurn) requests(writes bool) float64 {
	total := 0.0
	for client, counts := range t.Clients {
		for what, n := range counts {
			if !Heartbeat(client, what) && (!writes || measure.Write(what)) {
				total += n
			}
		}
	}
	return total
}

// Markdown is a report of its own.
func (r *Real) Markdown() string {
	w := &writer{}
	w.line("# On %d real nodes\n", r.Nodes)
	w.line("`%s`, on %s, commit %s, %s, %d cores, Kubernetes %s, %s.", r.Command, r.Date, r.Commit, r.Machine.CPU, r.Machine.Cores, r.Machine.Kubernetes, r.Machine.Go)
	w.line("[docs/benchmark.md](https://github.com/everynode/everynode/blob/main/docs/benchmark.md#real-nodes) says what is measured.\n")
	w.line("A task that does nothing, with its image on the nodes. Medians of %d turns of each subject, in brackets the lowest and the highest.\n", r.Pairs)
	var head, split, requests [][]string
	for _, s := range []Subject{DaemonSet, Everynode} {
		turns := r.of(s)
		if len(turns) == 0 {
			continue
		}
		head = append(head, append([]string{string(s)}, r.headRow(turns)...))
		split = append(split, append([]string{string(s)}, splitRow(turns)...))
		requests = append(requests, r.requestRows(s, turns)...)
	}
	if a, b := r.of(Everynode), r.of(DaemonSet); len(a) > 0 && len(b) > 0 {
		head = append(head, r.ratioRow(a, b))
	}
	w.table([]string{"subject", "node done p50 s", "last node done s", "no pod left s", "container end to record p50 ms", "requests per node", "writes per node"}, head)
	w.line("Requests and writes are those of all clients, kubelets included, without heartbeats and this program's own.\n")
	w.line("## Phases\n")
	w.line("Milliseconds since the phase before, p50 of all nodes and turns, as a watch sees it; in brackets the nodes for which it was seen, if not all:\n")
	w.table(append([]string{"subject"}, RealColumnNames()...), split)
	w.line("## Requests per node\n")
	w.line("By client, median of the turns; less than 0.05 left out:\n")
	w.table([]string{"subject", "client", "requests per node"}, requests)
	return strings.TrimSuffix(w.String(), "\n")
}

func (r *Real) of(s Subject) []RealTurn {
	var turns []RealTurn
	for _, t := range r.Turns {
		if t.Subject == s {
			turns = append(turns, t)
		}
	}
	return turns
}

func each(turns []RealTurn, figure func(*RealTurn) float64) []float64 {
	var values []float64
	for i := range turns {
		values = append(values, figure(&turns[i]))
	}
	return values
}

// realFigures are the columns of the first table.
func (r *Real) realFigures() []struct {
	format string
	figure func(*RealTurn) float64
} {
	nodes := float64(r.Nodes)
	return []struct {
		format string
		figure func(*RealTurn) float64
	}{
		{"%.2f", func(t *RealTurn) float64 { return measure.Percentile(t.column(RealDone), 50) }},
		{"%.2f", (*RealTurn).LastDone},
		{"%.2f", func(t *RealTurn) float64 { return t.Wall }},
		{"%.0f", func(t *RealTurn) float64 {
			if t.Subject == DaemonSet {
				return math.NaN() // it has no record
			}
			return 1000 * measure.Percentile(t.since(RealDone), 50)
		}},
		{"%.1f", func(t *RealTurn) float64 { return t.requests(false) / nodes }},
		{"%.1f", func(t *RealTurn) float64 { return t.requests(true) / nodes }},
	}
}

func (r *Real) headRow(turns []RealTurn) []string {
	var row []string
	for _, f := range r.realFigures() {
		row = append(row, spread(each(turns, f.figure), f.format))
	}
	return row
}

func (r *Real) ratioRow(turns, base []RealTurn) []string {
	row := []string{"× the DaemonSet"}
	for _, f := range r.realFigures() {
		row = append(row, times(each(turns, f.figure), each(base, f.figure)))
	}
	return row
}

func splitRow(turns []RealTurn) []string {
	var row []string
	for column := range RealColumns {
		var all []float64
		nodes := 0
		for i := range turns {
			all = append(all, turns[i].since(column)...)
			nodes += len(turns[i].Nodes)
		}
		cell := spread([]float64{1000 * measure.Percentile(all, 50)}, "%.0f")
		if len(all) > 0 && len(all) < nodes {
			cell += fmt.Sprintf(" (%d of %d)", len(all), nodes)
		}
		row = append(row, cell)
	}
	return row
}

// requestRows returns a row for each client, heartbeats separately.
func (r *Real) requestRows(s Subject, turns []RealTurn) [][]string {
	clients, heartbeats := measure.ClientCounts{}, measure.Counts{}
	for client, whats := range keysOf(turns) {
		for _, what := range whats {
			n := measure.Median(each(turns, func(t *RealTurn) float64 { return t.Clients[client][what] }))
			if Heartbeat(client, what) {
				heartbeats[client+" "+what] += n
				continue
			}
			if clients[client] == nil {
				clients[client] = measure.Counts{}
			}
			clients[client][what] = n
		}
	}
	w := &writer{Report: &Report{Nodes: r.Nodes}}
	rows := w.requestRows(&Run{Subject: s, Clients: clients})
	if row := w.clientRow(heartbeats); row != "" {
		rows = append(rows, []string{string(s), "heartbeats", row})
	}
	return rows
}

// keysOf returns the clients of all turns, each with what it has requested in any of them.
func keysOf(turns []RealTurn) map[string][]string {
	sets := map[string]map[string]bool{}
	for i := range turns {
		for client, counts := range turns[i].Clients {
			if sets[client] == nil {
				sets[client] = map[string]bool{}
			}
			for what := range counts {
				sets[client][what] = true
			}
		}
	}
	keys := map[string][]string{}
	for client, set := range sets {
		keys[client] = slices.Sorted(maps.Keys(set))
	}
	return keys
}
