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
	only, without string
	update        bool
}

// command is a benchmark, with its defaults.
type command struct {
	nodes, pairs int
	idle         time.Duration
	run          func(context.Context, *options) error
}

var commands = map[string]command{
	"bench": {nodes: 1000, pairs: 3, idle: time.Minute, run: bench},
	"cli":   {nodes: 1000, pairs: 3, run: commandLine},
	"many":  {nodes: 1000, pairs: 1, idle: 2 * time.Minute, run: many},
	"real":  {nodes: 4, pairs: 5, run: realNodes},
	"check": {nodes: 300, pairs: 2, run: check},
}

func run(ctx context.Context, args []string) error {
	name := "bench"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	if name == "floor" || name == "labeler" { // the harness starts this program again as each of them
		return runSubject(ctx, name, args)
	}
	c, found := commands[name]
	if !found {
		return fmt.Errorf("unknown benchmark %q", name)
	}
	o, err := parse(name, &c, args)
	if err != nil {
		return err
	}
	o.Commit = commit(ctx, o.Root)
	if err := o.Prepare(ctx); err != nil {
		return err
	}
	return errors.Join(c.run(ctx, o), o.Close())
}

func runSubject(ctx context.Context, name string, args []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	if name == "labeler" {
		return subject.RunLabeler(ctx, config, os.Stdin, os.Stdout)
	}
	return subject.RunFloor(ctx, config, args, os.Stdin, os.Stdout)
}

// parse returns the options of a benchmark. All benchmarks have the same flags, and each uses those that apply to it.
func parse(name string, c *command, args []string) (*options, error) {
	o := &options{Bench: harness.Bench{Progress: os.Stderr}}
	set := flag.NewFlagSet("everynode-bench "+name, flag.ContinueOnError)
	set.IntVar(&o.Nodes, "nodes", c.nodes, "nodes of each run; check: of a new baseline, because a comparison takes as many as the baseline")
	set.IntVar(&o.Pairs, "pairs", c.pairs, "repetitions: how often each subject is measured in each mode")
	set.StringVar(&o.Out, "out", "", "folder for the report; a temporary one if it is empty")
	set.StringVar(&o.only, "only", "", "a regular expression: runs to make, such as floor/existing or everynode-gate/join; simulator is the check of the simulator")
	set.StringVar(&o.without, "without", "", "policies that everynode-without-policies lacks, separated by commas; all if it is empty")
	set.IntVar(&o.Base, "base", -1, "also make each run on so many nodes, to compare the cost per node; 0 not to, -1 for 1000 if there are at least 2000 nodes")
	set.DurationVar(&o.Idle, "idle", c.idle, "how long to measure what is idle; 0 not to")
	set.BoolVar(&o.Count, "count", name == "bench", "add a round that counts requests by client")
	set.BoolVar(&o.Profile, "profile", false, "take profiles of the manager, in the first round; many: serve them while it runs")
	set.IntVar(&o.NodeJobs, "nodejobs", 100, "many: NodeJobs, each for all nodes")
	set.IntVar(&o.Seeded, "seeded", 89, "many: how many NodeJobs find their records on the nodes instead of running their tasks")
	set.IntVar(&o.AtOnce, "at-once", 5, "many: how many of the other NodeJobs run at once")
	set.BoolVar(&o.update, "update", false, "check: write a new baseline instead of comparing")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if o.Base < 0 {
		o.Base = baseFor(o.Nodes)
	}
	fewest := 1
	if name == "bench" {
		fewest = 0 // only the round that counts requests
	}
	if set.NArg() > 0 || o.Nodes < 1 || o.Pairs < fewest || o.Base >= o.Nodes || o.Seeded < 0 || o.Seeded >= o.NodeJobs || o.AtOnce < 1 {
		return nil, fmt.Errorf("unexpected arguments %q", args)
	}
	if o.without != "" {
		o.Without = strings.Split(o.without, ",")
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

// baseFor returns the number of nodes with which a large number is compared; 0 for none.
func baseFor(nodes int) int {
	const base = 1000
	if nodes < 2*base {
		return 0
	}
	return base
}

// commit returns the commit of the checkout; "unknown" outside of one.
func commit(ctx context.Context, root string) string {
	if name := os.Getenv("EVERYNODE_BENCH_COMMIT"); name != "" {
		return name
	}
	out, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// bench measures all subjects on simulated nodes.
func bench(ctx context.Context, o *options) error {
	o.Command = fmt.Sprintf("make bench N=%d PAIRS=%d", o.Nodes, o.Pairs)
	if o.only != "" {
		o.Command += fmt.Sprintf(" ONLY='%s'", o.only)
	}
	if o.without != "" {
		o.Command += " BENCHFLAGS=-without=" + o.without
	}
	if err := makeFolder(o); err != nil {
		return err
	}
	r, err := o.Run(ctx)
	return errors.Join(err, write(o.Out, r, map[string]string{"report.md": report.Markdown(r), "plot.svg": report.Plot(r)}))
}

// commandLine measures whole runs of the command line, and prints a table.
func commandLine(ctx context.Context, o *options) error {
	runs, err := o.CommandLine(ctx)
	if len(runs) > 0 {
		fmt.Print(report.CommandLineMarkdown(o.Nodes, runs))
	}
	return err
}

// many measures the manager with many NodeJobs.
func many(ctx context.Context, o *options) error {
	o.Command = fmt.Sprintf("make bench-many N=%d JOBS=%d SEEDED=%d", o.Nodes, o.NodeJobs, o.Seeded)
	if err := makeFolder(o); err != nil {
		return err
	}
	m, err := o.Many(ctx)
	if m == nil || m.PeakStartMiB == 0 { // this is measured last, and a report of an incomplete run would show zeros
		return err
	}
	fmt.Print(m.Markdown())
	return errors.Join(err, write(o.Out, m, map[string]string{"report.md": m.Markdown()}))
}

// realNodes measures Everynode and the DaemonSet pattern on real nodes.
func realNodes(ctx context.Context, o *options) error {
	o.Command = fmt.Sprintf("make bench-real PAIRS=%d", o.Pairs)
	if err := makeFolder(o); err != nil {
		return err
	}
	r, err := o.RunOnRealNodes(ctx)
	if r == nil || len(r.Runs) == 0 {
		return err
	}
	fmt.Print(report.RealMarkdown(r))
	return errors.Join(err, write(o.Out, r, map[string]string{"report.md": report.RealMarkdown(r)}))
}

// makeFolder makes the folder of the report.
func makeFolder(o *options) (err error) {
	if o.Out == "" {
		o.Out, err = os.MkdirTemp("", "everynode-bench-report-")
	} else {
		err = os.MkdirAll(o.Out, 0o755)
	}
	fmt.Fprintln(o.Progress, "the report will be in", o.Out)
	return err
}

// write writes the files of a report into its folder.
func write(dir string, figures any, files map[string]string) error {
	data, err := json.Marshal(figures)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	files["figures.json"] = string(data) + "\n"
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		fmt.Println(filepath.Join(dir, name))
	}
	return nil
}
