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
	"strings"

	"github.com/everynode/everynode/test/bench/joins"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/install"
)

// countJoins counts the pods that start on joining nodes before their task has succeeded, and prints a table.
func countJoins(ctx context.Context, args []string) (err error) {
	o := joins.Options{Progress: os.Stderr}
	var only, out string
	set := flag.NewFlagSet("everynode-bench joins", flag.ContinueOnError)
	set.IntVar(&o.Nodes, "nodes", 1000, "nodes that join in each variant")
	set.BoolVar(&o.Real, "real", false, "let real nodes join instead of simulated ones")
	set.StringVar(&o.Kubernetes, "kubernetes", "", "minor version of Kubernetes, such as 1.34")
	set.StringVar(&only, "only", "", "comma-separated names of variants: "+strings.Join(joins.Variants(), ", "))
	set.StringVar(&out, "out", "", "folder for the figures; none are written if it is empty")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if set.NArg() > 0 || o.Nodes < 1 {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	if only != "" {
		o.Only = strings.Split(only, ",")
	}
	if o.Root, err = install.Root(); err != nil {
		return err
	}
	j, err := joins.Run(ctx, o)
	if j == nil || len(j.Variants) == 0 {
		return err
	}
	fmt.Print(j.Markdown())
	return errors.Join(err, writeJoins(out, j))
}

func writeJoins(dir string, j *report.Joins) error {
	if dir == "" {
		return nil
	}
	raw, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "raw.json"), append(raw, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "report.md"), []byte(j.Markdown()), 0o644))
}
