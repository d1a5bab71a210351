// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-bench measures the cost of Everynode, and compares it with a minimal program and with the DaemonSet
// pattern. `make bench` runs it. docs/benchmark.md explains it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/test/bench/harness"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
	"github.com/everynode/everynode/test/install"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "everynode-bench:", err)
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	harness.Bench
	only, out           string
	real, check, update bool
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") { // the harness starts this program again
		return runSubject(ctx, args)
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	o.Commit = commit(ctx, o.Root)
	if err := o.Prepare(ctx); err != nil {
		return err
	}
	measure := bench
	if o.check {
		measure = check
	}
	return errors.Join(measure(ctx, o), o.Close())
}

func runSubject(ctx context.Context, args []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	switch args[0] {
	case "floor":
		return subject.RunFloor(ctx, config, args[1:], os.Stdin)
	case "labeler":
		return subject.RunLabeler(ctx, config)
	}
	return fmt.Errorf("unexpected arguments %q", args)
}

func parse(args []string) (*options, error) {
	o := &options{Bench: harness.Bench{Progress: os.Stderr}}
	set := flag.NewFlagSet("everynode-bench", flag.ContinueOnError)
	set.IntVar(&o.Nodes, "nodes", 1000, "nodes of each run")
	set.IntVar(&o.Pairs, "pairs", 3, "repetitions: how often each subject is measured in each mode")
	set.StringVar(&o.out, "out", "", "folder for the report; a temporary one if it is empty")
	set.StringVar(&o.only, "only", "", "a regular expression: runs to make, such as floor/existing, everynode-gate/join, command-line, many, budget, checks or simulator")
	set.IntVar(&o.Base, "base", -1, "also make each run on so many nodes, to compare the cost per node; 0 not to, -1 for 1000 if there are at least 2000 nodes")
	set.DurationVar(&o.Idle, "idle", time.Minute, "how long to measure what is idle; 0 not to")
	set.BoolVar(&o.Count, "count", true, "add a round that counts requests by client")
	set.IntVar(&o.NodeJobs, "nodejobs", 100, "many: NodeJobs, each for all nodes")
	set.IntVar(&o.Seeded, "seeded", 89, "many: how many NodeJobs find their records on the nodes instead of running their tasks")
	set.IntVar(&o.AtOnce, "at-once", 5, "many: how many of the other NodeJobs run at once")
	set.BoolVar(&o.real, "real", false, "measure everynode and daemonset on real nodes")
	set.BoolVar(&o.check, "check", false, "compare a short run with the baseline of the checkout, of the same size")
	set.BoolVar(&o.update, "update", false, "check: write a new baseline instead of comparing")
	set.StringVar(&o.Command, "command", "everynode-bench", "the command that the report names")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if o.Base < 0 {
		o.Base = 0
		if o.Nodes >= 2*baseNodes {
			o.Base = baseNodes
		}
	}
	if set.NArg() > 0 || !o.valid() {
		return nil, fmt.Errorf("unexpected arguments %q", args)
	}
	var err error
	if o.only != "" {
		if o.Only, err = regexp.Compile(o.only); err != nil {
			return nil, fmt.Errorf("reading -only: %w", err)
		}
	}
	o.Root, err = install.Root()
	return o, err
}

// valid reports whether the numbers fit together, and at least one NodeJob of many runs its tasks.
func (o *options) valid() bool {
	return o.Nodes > 0 && o.Pairs >= 0 && o.Base < o.Nodes && o.Seeded >= 0 && o.Seeded < o.NodeJobs && o.AtOnce > 0
}

// baseNodes is the number of nodes with which at least twice as many are compared.
const baseNodes = 1000

// commit returns the commit of the checkout; "unknown" outside of one.
func commit(ctx context.Context, root string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// bench measures the subjects and writes the report.
func bench(ctx context.Context, o *options) (err error) {
	if o.out == "" {
		o.out, err = os.MkdirTemp("", "everynode-bench-report-")
	} else {
		err = os.MkdirAll(o.out, 0o755)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(o.Progress, "the report will be in", o.out)
	measure := o.Run
	if o.real {
		measure = o.RunOnRealNodes
	}
	r, err := measure(ctx)
	if r == nil {
		return err
	}
	return errors.Join(err, write(o.out, r))
}

func write(dir string, r *report.Report) error {
	figures, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	for name, content := range map[string][]byte{"figures.json": append(figures, '\n'), "report.md": []byte(report.Markdown(r))} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		fmt.Println(filepath.Join(dir, name))
	}
	return nil
}
