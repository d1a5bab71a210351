// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/everynode/everynode/test/bench/measure"
)

// delays is a table of when nodes were how far.
func (w *writer) delays(mode Mode, rows [][]string) {
	since, head := "the creation of the object", []string{"subject", "pod created", "pod Running", "node done", "pod ended to node done"}
	if mode == Join {
		since, head = "the creation of the node", []string{"subject", "node Ready", "pod created", "pod Running", "node done", "pod ended to node done", "last node created"}
	}
	w.line("Seconds since %s, p50 / p90 / p99, the median of each over the runs:\n", since)
	w.table(head, rows)
}

func timesRow(runs []Run, mode Mode) []string {
	columns := []int{Created, Running, Done}
	if mode == Join {
		columns = []int{Ready, Created, Running, Done}
	}
	var row []string
	for _, column := range columns {
		row = append(row, percentiles(runs, func(r *Run) []float64 { return r.Delays(column) }))
	}
	row = append(row, percentiles(runs, func(r *Run) []float64 { return r.Between(Ended, Done) }))
	if mode == Join {
		row = append(row, spread(figures(runs, lastJoined), "%.1f"))
	}
	return row
}

// percentiles returns the medians over the runs of three percentiles.
func percentiles(runs []Run, of func(*Run) []float64) string {
	var parts []string
	for _, p := range []float64{50, 90, 99} {
		median := measure.Median(figures(runs, func(r *Run) float64 { return measure.Percentile(of(r), p) }))
		if math.IsNaN(median) {
			return "–" // a pod of the DaemonSet does not end before its node is done
		}
		parts = append(parts, fmt.Sprintf("%.1f", median))
	}
	return strings.Join(parts, " / ")
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
