// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/everynode/everynode/test/bench/harness"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/install"
)

// checkedRuns are the runs that are compared.
var checkedRuns = regexp.MustCompile(`^(floor-recorded|everynode)/`)

// check compares a short run with the baseline of the checkout, or replaces the baseline.
func check(ctx context.Context, args []string) (err error) {
	b := harness.Bench{Progress: os.Stderr, Only: checkedRuns}
	var update bool
	set := flag.NewFlagSet("everynode-bench check", flag.ContinueOnError)
	set.IntVar(&b.Nodes, "nodes", 300, "nodes of a new baseline; a comparison takes as many as the baseline")
	set.IntVar(&b.Pairs, "pairs", 2, "repetitions, as with -nodes")
	set.BoolVar(&update, "update", false, "write a new baseline instead of comparing")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if set.NArg() > 0 || b.Nodes < 1 || b.Pairs < 1 {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	if b.Root, err = install.Root(); err != nil {
		return err
	}
	file := filepath.Join(b.Root, "docs", "benchmark", "check.json")
	base := &report.Baseline{}
	if !update {
		if err := readBaseline(file, base); err != nil {
			return err
		}
		b.Nodes, b.Pairs = base.Nodes, base.Pairs
	}
	r, err := b.Run(ctx)
	if err != nil {
		return err
	}
	r.Command, r.Commit = "make bench-check UPDATE=1", commit(ctx, b.Root)
	if update {
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
	if err != nil {
		return fmt.Errorf("writing the baseline: %w", err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the baseline: %w", err)
	}
	fmt.Println(file)
	return nil
}

// judge prints the comparison. Its error has a sentence for each ratio that is worse.
func judge(base, now *report.Baseline) error {
	result := report.Compare(base, now)
	fmt.Print(result.Table)
	if len(result.Worse) == 0 {
		fmt.Printf("\nNo ratio is worse than that of the baseline (%d nodes, %d repetitions, commit %s of %s).\n", base.Nodes, base.Pairs, base.Commit, base.Date)
		return nil
	}
	where := ""
	if base.Machine.Cores != now.Machine.Cores {
		where = fmt.Sprintf("\nThe baseline is of a machine with %d cores, and this one has %d: measure the commit of the baseline here", base.Machine.Cores, now.Machine.Cores)
	}
	return fmt.Errorf("%d of %d ratios are worse than the baseline of commit %s, %s, allows:\n- %s\n"+
		"If nothing else ran on the machine, find the commit; if the change is intended: make bench-check UPDATE=1%s",
		len(result.Worse), len(base.Ratios), base.Commit, base.Date, strings.Join(result.Worse, "\n- "), where)
}
