// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"

	"github.com/everynode/everynode/test/bench/measure"
)

// PercentileNames are those of the values of Run.Percentiles.
func PercentileNames() []string { return []string{"p50", "p90", "p99", "p100"} }

// Compact returns a report without the figures of single nodes, and without the API server's own count of requests, which
// is small enough to be committed.
func Compact(r *Report) *Report {
	c := *r
	c.Columns = PercentileNames()
	c.Runs, c.Base = compactRuns(r.Runs), compactRuns(r.Base)
	if r.Simulator != nil {
		c.Simulator = &compactRuns([]Run{*r.Simulator})[0]
	}
	return &c
}

func compactRuns(runs []Run) []Run {
	var all []Run
	for i := range runs {
		r := runs[i]
		r.Percentiles = map[string][]float64{}
		for column, name := range ColumnNames() {
			delays := r.Delays(column)
			if column == Joined || len(delays) == 0 {
				continue
			}
			for _, p := range []float64{50, 90, 99, 100} {
				r.Percentiles[name] = append(r.Percentiles[name], rounded(measure.Percentile(delays, p)))
			}
		}
		r.Nodes = nil
		r.SetUp, r.Wall, r.Complete = rounded(r.SetUp), rounded(r.Wall), rounded(r.Complete)
		r.Cost, r.PeakMiB = compactCost(r.Cost), compactMap(r.PeakMiB)
		if r.Idle != nil {
			r.Idle = &Idle{Cost: compactCost(r.Idle.Cost), Clients: r.Idle.Clients}
		}
		all = append(all, r)
	}
	return all
}

func compactCost(c Cost) Cost {
	return Cost{Seconds: rounded(c.Seconds), CPU: compactMap(c.CPU), MachineCPU: rounded(c.MachineCPU)}
}

func compactMap(m map[string]float64) map[string]float64 {
	small := map[string]float64{}
	for name, value := range m {
		small[name] = rounded(value)
	}
	return small
}

// rounded returns a figure with two decimals.
func rounded(n float64) float64 { return math.Round(n*100) / 100 }
