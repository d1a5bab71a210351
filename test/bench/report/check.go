// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/everynode/everynode/test/bench/measure"
)

// Baseline are ratios of Everynode to the floor with a record, with which later runs are compared. They depend less on the
// machine than the figures do.
type Baseline struct {
	Command string  `json:"command"`
	Date    string  `json:"date"`
	Commit  string  `json:"commit"`
	Machine Machine `json:"machine"`
	Nodes   int     `json:"nodes"`
	Pairs   int     `json:"pairs"`
	Ratios  []Ratio `json:"ratios"`
}

// Ratio is how much more Everynode needs of something.
type Ratio struct {
	Mode   Mode    `json:"mode"`
	Figure string  `json:"figure"`
	Value  float64 `json:"value"`
}

// checked are the figures that are compared. A ratio may be higher than that of the baseline by the tolerance, which is more
// than two runs of the same program differ.
var checked = []struct {
	name      string
	tolerance float64
	figure    func(*Run) float64
}{
	{"node done p50", 0.30, half},
	{"node done p99", 0.25, func(r *Run) float64 { return r.Done(99) }},
	{"wall time", 0.25, wallOf},
	{"control plane CPU", 0.20, (*Run).ControlCPU},
	{"own CPU", 0.30, ownCPU},
	{"own peak memory", 0.25, func(r *Run) float64 { return r.PeakMiB[Own] }},
	{"writes", 0.05, ownWrites},
}

// ownWrites are the writes of the subject itself, from the API server's own count. In a join storm, others patch nodes too.
func ownWrites(r *Run) float64 {
	if r.Mode == Join {
		return math.NaN()
	}
	return r.Cost.Requests["POST pods"] + r.Cost.Requests["PATCH pods"] + r.Cost.Requests["DELETE pods"] + r.Cost.Requests["PATCH nodes"]
}

// NewBaseline returns the ratios of a report of both subjects.
func NewBaseline(r *Report) *Baseline {
	b := &Baseline{Command: r.Command, Date: r.Date, Commit: r.Commit, Machine: r.Machine, Nodes: r.Nodes, Pairs: r.Pairs}
	for _, mode := range []Mode{Existing, Join} {
		runs, floor := of(r.Runs, Everynode, mode, false), of(r.Runs, Recorded, mode, false)
		for _, c := range checked {
			ratio := measure.Median(figures(runs, c.figure)) / measure.Median(figures(floor, c.figure))
			if !math.IsNaN(ratio) && !math.IsInf(ratio, 0) {
				b.Ratios = append(b.Ratios, Ratio{mode, c.name, rounded(ratio)})
			}
		}
	}
	return b
}

// Check is the result of a comparison.
type Check struct {
	// Table is for people.
	Table string
	// Worse has a sentence for each ratio that is higher than it may be, or that was not measured.
	Worse []string
}

// Compare compares ratios with those of a baseline.
func Compare(base, now *Baseline) Check {
	var c Check
	var b strings.Builder
	b.WriteString("| Everynode to the floor with a record | Baseline | At most | Now | |\n|---|---|---|---|---|\n")
	for _, before := range base.Ratios {
		name := fmt.Sprintf("%s, %s", before.Mode, before.Figure)
		most := rounded(before.Value * (1 + toleranceOf(before.Figure)))
		i := slices.IndexFunc(now.Ratios, func(r Ratio) bool { return r.Mode == before.Mode && r.Figure == before.Figure })
		if i < 0 {
			c.Worse = append(c.Worse, name+" was not measured")
			continue
		}
		ratio, verdict := now.Ratios[i].Value, ""
		switch {
		case ratio > most:
			verdict = "worse"
			c.Worse = append(c.Worse, fmt.Sprintf("%s is %.2f × that of the floor, at most %.2f is allowed (%.2f before)", name, ratio, most, before.Value))
		case ratio < before.Value*(1-toleranceOf(before.Figure)):
			verdict = "better"
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.2f | %s |\n", name, before.Value, most, ratio, verdict)
	}
	c.Table = b.String()
	return c
}

// toleranceOf returns 0 for a figure that is unknown.
func toleranceOf(figure string) float64 {
	for _, c := range checked {
		if c.name == figure {
			return c.tolerance
		}
	}
	return 0
}
