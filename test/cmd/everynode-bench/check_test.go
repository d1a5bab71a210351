// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/test/bench/report"
)

func baseline(cores int, ratio float64) *report.Baseline {
	return &report.Baseline{
		Head:   report.Head{Commit: "0123456", Date: "2026-03-01", Nodes: 300, Pairs: 2, Machine: report.Machine{Cores: cores}},
		Ratios: map[string]float64{"existing nodes, node done p50": ratio},
	}
}

func TestAWorseRatioIsAnErrorWithItsFigures(t *testing.T) {
	tests := map[string]struct {
		now  *report.Baseline
		want []string
	}{
		"the same": {now: baseline(2, 1)},
		"worse": {
			baseline(2, 1.5),
			[]string{
				"1 of 1 ratios",
				"commit 0123456",
				"existing nodes, node done p50 is 1.50 ×",
				"at most 1.30",
				"make bench-check UPDATE=1",
			},
		},
		"worse, on a larger machine":  {baseline(8, 1.5), []string{"1.50 ×", "a machine with 2 cores, and this one has 8"}},
		"better, on a larger machine": {now: baseline(8, 0.5)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := judge(baseline(2, 1), tt.now)
			if (err != nil) != (tt.want != nil) {
				t.Fatalf("the error is %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
}

func TestTheBaselineIsReadAsItWasWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "check.json")
	if err := readBaseline(file, &report.Baseline{}); err == nil || !strings.Contains(err.Error(), "make bench-check UPDATE=1") {
		t.Errorf("without a file, the error is %v", err)
	}
	if err := writeBaseline(file, baseline(2, 1.25)); err != nil {
		t.Fatal(err)
	}
	got := &report.Baseline{}
	if err := readBaseline(file, got); err != nil || got.Nodes != 300 || got.Ratios["existing nodes, node done p50"] != 1.25 {
		t.Errorf("it reads %+v (%v)", got, err)
	}
}
