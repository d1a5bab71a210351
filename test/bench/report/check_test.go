// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// pairOf is a report of one run of each subject. Everynode needs so many times the floor in all respects.
func pairOf(factor float64) *Report {
	floor, ours := run(Recorded, Existing, 0, 1), run(Everynode, Existing, 0, factor)
	floor.Figures[Served] = map[string]float64{
		"POST pods":   100,
		"PATCH pods":  100,
		"DELETE pods": 100,
		"PATCH nodes": 100,
		"PUT leases":  70,
	}
	ours.Figures[Served] = map[string]float64{"POST pods": 100, "PATCH pods": 100, "DELETE pods": 100, "PATCH nodes": 100 * (4*factor - 3)}
	return &Report{Head: Head{Nodes: 4, Pairs: 1}, Runs: []Run{floor, ours}}
}

func TestABaselineHasTheRatiosToTheFloorWithARecord(t *testing.T) {
	want := map[string]float64{
		"existing nodes, node done p50": 2, "existing nodes, node done p99": 2, "existing nodes, wall time": 2,
		"existing nodes, control plane CPU": 2, "existing nodes, own CPU": 2, "existing nodes, own peak memory": 2,
		"existing nodes, writes": 2,
	}
	if got := NewBaseline(pairOf(2)).Ratios; !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestCompare(t *testing.T) {
	tests := map[string]struct {
		factor    float64
		change    func(*Baseline)
		wantWorse []string
		wantTable string
	}{
		"the same is not worse":             {factor: 2},
		"a difference within the tolerance": {factor: 2.09},
		"less is better, and not an error": {
			factor:    1,
			wantTable: "| existing nodes, own CPU | 2.00 | 2.60 | 1.00 | better |",
		},
		"a few more writes are worse, but not a little more time": {
			factor:    2.2,
			wantWorse: []string{"existing nodes, writes is 2.20 × that of the floor, at most 2.10 is allowed (2.00 before)"},
		},
		"one figure is worse": {
			factor: 2, change: func(b *Baseline) { b.Ratios["existing nodes, node done p50"] = 2.61 },
			wantWorse: []string{"existing nodes, node done p50 is 2.61 × that of the floor, at most 2.60 is allowed (2.00 before)"},
			wantTable: "| existing nodes, node done p50 | 2.00 | 2.60 | 2.61 | worse |",
		},
		"a figure was not measured": {
			factor: 2, change: func(b *Baseline) { delete(b.Ratios, "existing nodes, node done p50") },
			wantWorse: []string{"existing nodes, node done p50 was not measured"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now := NewBaseline(pairOf(tt.factor))
			if tt.change != nil {
				tt.change(now)
			}
			table, worse := Compare(NewBaseline(pairOf(2)), now)
			if fmt.Sprint(worse) != fmt.Sprint(tt.wantWorse) {
				t.Errorf("worse:\n%q\nwant\n%q", worse, tt.wantWorse)
			}
			if !strings.Contains(table, tt.wantTable) {
				t.Errorf("%q is missing in\n%s", tt.wantTable, table)
			}
		})
	}
}
