// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/everynode/everynode/test/bench/report"
)

// checkedRuns are the runs that are compared.
var checkedRuns = regexp.MustCompile(`^(floor-recorded|everynode)/`)

// check compares a short run with the baseline of the checkout, or replaces the baseline.
func check(ctx context.Context, o *options) error {
	file := filepath.Join(o.Root, "docs", "benchmark", "check.json")
	base := &report.Baseline{}
	if !o.update {
		if err := readBaseline(file, base); err != nil {
			return err
		}
		o.Nodes, o.Pairs = base.Nodes, base.Pairs
	}
	o.Only, o.Command, o.Base, o.Idle, o.Count = checkedRuns, "make bench-check UPDATE=1", 0, 0, false
	r, err := o.Run(ctx)
	if err != nil {
		return err
	}
	if o.update {
		return writeBaseline(file, report.NewBaseline(r))
	}
	return judge(base, report.NewBaseline(r))
}

func readBaseline(file string, base *report.Baseline) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the baseline (make bench-check UPDATE=1 writes it): %w", err)
	}
	if err := json.Unmarshal(data, base); err != nil {
		return fmt.Errorf("reading the baseline %s: %w", file, err)
	}
	return nil
}

func writeBaseline(file string, base *report.Baseline) error {
	data, err := json.MarshalIndent(base, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the baseline: %w", err)
	}
	fmt.Println(file)
	return nil
}

// judge prints the comparison. Its error has a sentence for each ratio that is worse.
func judge(base, now *report.Baseline) error {
	table, worse := report.Compare(base, now)
	fmt.Print(table)
	if len(worse) == 0 {
		fmt.Printf("No ratio is worse than that of the baseline (%d nodes, %d repetitions, commit %s of %s).\n", base.Nodes, base.Pairs, base.Commit, base.Date)
		return nil
	}
	where := ""
	if base.Machine.Cores != now.Machine.Cores {
		where = fmt.Sprintf("\nThe baseline is of a machine with %d cores, and this one has %d: measure the commit of the baseline here", base.Machine.Cores, now.Machine.Cores)
	}
	return fmt.Errorf("%d of %d ratios are worse than the baseline of commit %s, %s, allows:\n- %s\n"+
		"If nothing else ran on the machine, find the commit; if the change is intended: make bench-check UPDATE=1%s",
		len(worse), len(base.Ratios), base.Commit, base.Date, strings.Join(worse, "\n- "), where)
}
