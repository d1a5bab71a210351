// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
)

// Baseline are ratios of Everynode to the floor with a record, with which later runs are compared. They depend less on the
// machine than the figures do.
type Baseline struct {
	Head
	// Ratios are by name, such as "join storm, wall time".
	Ratios map[string]float64 `json:"ratios"`
}

var checkedModes = []Mode{Existing, Join}

// checked are the figures that are compared. A ratio may be higher than that of the baseline by the tolerance, which is more
// than two runs of the same program differ.
var checked = []struct {
	name      string
	tolerance float64
	section   Section
	figure    string
}{
	{"node done p50", 0.30, Times, "node done p50"},
	{"node done p99", 0.25, Times, "node done p99"},
	{"wall time", 0.25, Times, Wall},
	{"control plane CPU", 0.20, CPU, ControlPlane},
	{"own CPU", 0.30, CPU, Own},
	{"own peak memory", 0.25, Memory, Own},
	{"writes", 0.05, Served, "writes"},
}

// setWrites sets the writes of the subject itself, from the API server's own count. In a join storm, others patch nodes too.
func (r *Run) setWrites() {
	if served := r.Figures[Served]; r.Mode == Existing {
		r.Set(Served, "writes", served["POST pods"]+served["PATCH pods"]+served["DELETE pods"]+served["PATCH nodes"])
	}
}

// NewBaseline returns the ratios of a report of both subjects.
func NewBaseline(r *Report) *Baseline {
	b := &Baseline{Head: r.Head, Ratios: map[string]float64{}}
	for i := range r.Runs {
		r.Runs[i].setWrites()
	}
	for _, mode := range checkedModes {
		runs, floor := of(r.Runs, Everynode, mode), of(r.Runs, Recorded, mode)
		for _, c := range checked {
			ratio := Median(figures(runs, c.section, c.figure)) / Median(figures(floor, c.section, c.figure))
			if !math.IsNaN(ratio) && !math.IsInf(ratio, 0) {
				b.Ratios[string(mode)+", "+c.name] = Rounded(ratio)
			}
		}
	}
	return b
}

// Compare compares ratios with those of a baseline. It returns a table for people, and a sentence for each ratio that is
// higher than it may be, or that was not measured.
func Compare(base, now *Baseline) (table string, worse []string) {
	var rows [][]string
	for _, mode := range checkedModes {
		for _, c := range checked {
			name := string(mode) + ", " + c.name
			before, compared := base.Ratios[name]
			ratio, measured := now.Ratios[name]
			limit, verdict := Rounded(before*(1+c.tolerance)), ""
			switch {
			case !compared:
				continue
			case !measured:
				worse = append(worse, name+" was not measured")
				continue
			case ratio > limit:
				verdict = "worse"
				worse = append(worse, fmt.Sprintf("%s is %.2f × that of the floor, at most %.2f is allowed (%.2f before)", name, ratio, limit, before))
			case ratio < before*(1-c.tolerance):
				verdict = "better"
			}
			rows = append(rows, []string{name, fmt.Sprintf("%.2f", before), fmt.Sprintf("%.2f", limit), fmt.Sprintf("%.2f", ratio), verdict})
		}
	}
	w := &writer{}
	w.table([]string{"Everynode to the floor with a record", "Baseline", "At most", "Now", ""}, rows)
	return w.String(), worse
}
