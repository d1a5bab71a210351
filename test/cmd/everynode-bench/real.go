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

	"github.com/everynode/everynode/test/bench/harness"
	"github.com/everynode/everynode/test/bench/realnodes"
	"github.com/everynode/everynode/test/bench/report"
)

// realNodes measures Everynode and the DaemonSet pattern on real nodes.
func realNodes(ctx context.Context, args []string) error {
	// The folder of the report is prepared as for the other benchmarks.
	h := harness.Bench{Progress: os.Stderr}
	b := realnodes.Bench{Progress: os.Stderr}
	set := flag.NewFlagSet("everynode-bench real", flag.ContinueOnError)
	set.IntVar(&b.Nodes, "nodes", 4, "real nodes")
	set.IntVar(&b.Pairs, "pairs", 5, "how often each subject is measured")
	set.StringVar(&h.Out, "out", "", "folder for the report; a temporary one when it is empty")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if set.NArg() > 0 || b.Nodes < 1 || b.Pairs < 1 {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	if err := realnodes.Possible(); err != nil {
		return err
	}
	if err := prepare(&h, ""); err != nil {
		return err
	}
	b.Root = h.Root
	r, err := b.Run(ctx)
	if r == nil || len(r.Turns) == 0 {
		return err
	}
	r.Command, r.Commit = fmt.Sprintf("make bench-real PAIRS=%d", b.Pairs), commit(ctx, b.Root)
	return errors.Join(err, writeReal(h.Out, r))
}

// writeReal prints the report and writes it into its folder.
func writeReal(dir string, r *report.Real) error {
	raw, err := json.Marshal(r)
	fmt.Print(r.Markdown())
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "raw.json"), append(raw, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "report.md"), []byte(r.Markdown()), 0o644))
}
