// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/everynode/everynode/test/bench/measure"
)

// headline is what the summary shows: first what a user waits for, then what the cluster pays.
var headline = []struct {
	name, format string
	figure       func(*Run) float64
}{
	{"node done p50 s", "%.1f", half},
	{"node done p99 s", "%.1f", func(r *Run) float64 { return r.Done(99) }},
	{"wall s", "%.1f", wallOf},
	{"control plane CPU s", "%.1f", (*Run).ControlCPU},
	{"own CPU s", "%.2f", ownCPU},
}

// summary is the headline of both modes.
func (w *writer) summary() {
	w.line("## Summary\n")
	w.line("%s. In brackets: the ratio to the floor, and the ratio to the DaemonSet, of the same report.\n", w.medians())
	for _, mode := range []Mode{Existing, Join} {
		head := []string{string(mode)}
		for _, h := range headline {
			head = append(head, h.name)
		}
		var rows [][]string
		for _, s := range subjects {
			if runs := w.of(s, mode, false); len(runs) > 0 {
				rows = append(rows, append([]string{string(s)}, w.headlineRow(runs, mode)...))
			}
		}
		w.table(head, rows)
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

func (w *writer) headlineRow(runs []Run, mode Mode) []string {
	floor, daemonset := w.of(Floor, mode, false), w.of(DaemonSet, mode, false)
	var row []string
	for _, h := range headline {
		values := figures(runs, h.figure)
		median := measure.Median(values)
		if math.IsNaN(median) {
			row = append(row, "–")
			continue
		}
		row = append(row, fmt.Sprintf(h.format+" (%s / %s)", median, times(values, figures(floor, h.figure)), times(values, figures(daemonset, h.figure))))
	}
	return row
}

// growth shows how the cost per node grows with the number of nodes.
func (w *writer) growth() {
	if len(w.Base) == 0 {
		return
	}
	w.line("## Cost per node, relative to %d nodes\n", w.BaseNodes)
	w.line("The same subjects were also measured on %d nodes, in turn. Figures per 1,000 nodes, and in brackets their ratio to those on", w.BaseNodes)
	w.line("%d nodes. The last column is not per node: all nodes begin at once.\n", w.BaseNodes)
	var rows [][]string
	for _, mode := range []Mode{Existing, Join} {
		for _, s := range subjects {
			runs, base := w.of(s, mode, false), of(w.Base, s, mode, false)
			if len(runs) > 0 && len(base) > 0 {
				rows = append(rows, append([]string{fmt.Sprintf("%s, %s", s, mode)}, w.growthRow(runs, base)...))
			}
		}
	}
	w.table([]string{"per 1,000 nodes", "wall s", "control plane CPU s", "own CPU s", "own peak MiB", "node done p50 s"}, rows)
	w.line("Heartbeats of %d nodes: %s; of %d nodes: %s.\n", w.Nodes, HeartbeatsOf(w.Nodes), w.BaseNodes, HeartbeatsOf(w.BaseNodes))
}

func (w *writer) growthRow(runs, base []Run) []string {
	peak := func(r *Run) float64 {
		if own, found := r.PeakMiB[Own]; found {
			return own
		}
		return math.NaN()
	}
	var row []string
	for _, f := range []func(*Run) float64{wallOf, (*Run).ControlCPU, ownCPU, peak} {
		per := func(n int) func(*Run) float64 { return func(r *Run) float64 { return f(r) * 1000 / float64(n) } }
		now, before := figures(runs, per(w.Nodes)), figures(base, per(w.BaseNodes))
		if median := measure.Median(now); !math.IsNaN(median) {
			row = append(row, fmt.Sprintf("%.1f (%s)", median, times(now, before)))
		} else {
			row = append(row, "–")
		}
	}
	return append(row, fmt.Sprintf("%.1f, on %d nodes %.1f", measure.Median(figures(runs, half)), w.BaseNodes, measure.Median(figures(base, half))))
}

func half(r *Run) float64 { return r.Done(50) }

func wallOf(r *Run) float64 { return r.Wall }

// ownCPU is NaN for a subject without a process of its own.
func ownCPU(r *Run) float64 {
	if own, found := r.Cost.CPU[Own]; found {
		return own
	}
	return math.NaN()
}

func title(mode Mode) string { return strings.ToUpper(string(mode[:1])) + string(mode[1:]) }
