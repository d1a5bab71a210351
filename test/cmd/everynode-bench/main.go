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
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
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
	if err != nil {
		fmt.Fprintln(os.Stderr, "everynode-bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	// The harness starts this program again as each of these subcommands.
	if len(args) > 0 {
		switch args[0] {
		case "floor":
			return floor(ctx, args[1:])
		case "labeler":
			return labeler(ctx)
		case "render":
			return render(args[1:])
		case "cli":
			return commandLine(ctx, args[1:])
		case "many":
			return many(ctx, args[1:])
		case "real":
			return realNodes(ctx, args[1:])
		case "check":
			return check(ctx, args[1:])
		}
	}
	return bench(ctx, args)
}

func config() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
}

func floor(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: everynode-bench floor NODES RECORDED")
	}
	recorded, err := strconv.ParseBool(args[1])
	if err != nil {
		return err
	}
	nodes, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	c, err := config()
	if err != nil {
		return err
	}
	f, err := subject.NewFloor(c, nodes, recorded)
	if err != nil {
		return err
	}
	return f.Run(ctx, os.Stdin, os.Stdout)
}

func labeler(ctx context.Context) error {
	c, err := config()
	if err != nil {
		return err
	}
	l, err := subject.NewLabeler(c)
	if err != nil {
		return err
	}
	return l.Run(ctx, os.Stdin, os.Stdout)
}

// render writes the report of a folder from its raw.json.
func render(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: everynode-bench render FOLDER")
	}
	raw, err := os.ReadFile(filepath.Join(args[0], "raw.json"))
	if err != nil {
		return err
	}
	r := &report.Report{}
	if err := json.Unmarshal(raw, r); err != nil {
		return fmt.Errorf("reading the raw figures: %w", err)
	}
	return write(args[0], r)
}

func bench(ctx context.Context, args []string) error {
	b := harness.Bench{Progress: os.Stderr}
	var only, without string
	set := flag.NewFlagSet("everynode-bench", flag.ContinueOnError)
	set.IntVar(&b.Nodes, "nodes", 1000, "nodes of each run")
	set.IntVar(&b.Pairs, "pairs", 3, "repetitions: how often each subject is measured in each mode")
	set.StringVar(&b.Out, "out", "", "folder for the report; a temporary one when it is empty")
	set.StringVar(&only, "only", "", "a regular expression: runs to make, such as floor/existing or everynode-gate/join; simulator is the check of the simulator")
	set.StringVar(&without, "without", "", "policies that everynode-without-policies lacks, separated by commas; all when it is empty")
	set.IntVar(&b.Base, "base", -1, "also make each run on so many nodes, to compare the cost per node; 0 not to, -1 for 1000 if there are at least 2000 nodes")
	set.DurationVar(&b.Idle, "idle", time.Minute, "how long to measure what is idle; 0 not to")
	set.BoolVar(&b.Count, "count", true, "add a round that counts requests by client")
	set.BoolVar(&b.Profile, "profile", false, "take profiles of the manager, in the first round")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if without != "" {
		b.Without = strings.Split(without, ",")
	}
	if b.Base < 0 {
		b.Base = baseFor(b.Nodes)
	}
	if set.NArg() > 0 || b.Nodes < 1 || b.Pairs < 0 || b.Base >= b.Nodes {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	if err := prepare(&b, only); err != nil {
		return err
	}
	r, err := b.Run(ctx)
	if r == nil {
		return err
	}
	r.Command = command(&b, only)
	r.Commit = commit(ctx, b.Root)
	return errors.Join(err, write(b.Out, r))
}

// baseFor returns the number of nodes with which a large number is compared; 0 for none.
func baseFor(nodes int) int {
	const base = 1000
	if nodes < 2*base {
		return 0
	}
	return base
}

// commandLine measures whole runs of the command line, and prints a table.
func commandLine(ctx context.Context, args []string) (err error) {
	b := harness.Bench{Progress: os.Stderr}
	set := flag.NewFlagSet("everynode-bench cli", flag.ContinueOnError)
	set.IntVar(&b.Nodes, "nodes", 1000, "nodes of each run")
	set.IntVar(&b.Pairs, "pairs", 3, "how many runs")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if set.NArg() > 0 || b.Nodes < 1 || b.Pairs < 1 {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	if b.Root, err = install.Root(); err != nil {
		return err
	}
	runs, err := b.CommandLine(ctx)
	if len(runs) > 0 {
		fmt.Print(report.CommandLineMarkdown(b.Nodes, runs))
	}
	return err
}

// many measures the manager with many NodeJobs.
func many(ctx context.Context, args []string) error {
	b := harness.Bench{Progress: os.Stderr}
	var o harness.ManyOptions
	set := flag.NewFlagSet("everynode-bench many", flag.ContinueOnError)
	set.IntVar(&b.Nodes, "nodes", 1000, "nodes")
	set.IntVar(&o.NodeJobs, "nodejobs", 100, "NodeJobs, each for all nodes")
	set.IntVar(&o.Seeded, "seeded", 89, "how many NodeJobs find their records on the nodes instead of running their tasks")
	set.IntVar(&o.AtOnce, "at-once", 5, "how many of the other NodeJobs run at once")
	set.DurationVar(&b.Idle, "idle", 2*time.Minute, "how long to measure what is idle")
	set.BoolVar(&b.Profile, "profile", false, "serve profiles of the manager while it runs")
	set.StringVar(&b.Out, "out", "", "folder for the report; a temporary one when it is empty")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if set.NArg() > 0 || b.Nodes < 1 || !o.Valid() {
		return fmt.Errorf("unexpected arguments %q", args)
	}
	if err := prepare(&b, ""); err != nil {
		return err
	}
	m, err := b.Many(ctx, o)
	if m == nil || m.PeakStartMiB == 0 { // this is measured last, and a report of an incomplete run would show zeros
		return err
	}
	m.Command = fmt.Sprintf("make bench-many N=%d JOBS=%d SEEDED=%d", b.Nodes, o.NodeJobs, o.Seeded)
	m.Commit = commit(ctx, b.Root)
	return errors.Join(err, writeMany(&b, m))
}

// writeMany prints the report and writes it into its folder.
func writeMany(b *harness.Bench, m *report.Many) error {
	raw, marshalErr := json.Marshal(m)
	fmt.Print(m.Markdown())
	return errors.Join(marshalErr, os.WriteFile(filepath.Join(b.Out, "raw.json"), append(raw, '\n'), 0o644),
		os.WriteFile(filepath.Join(b.Out, "report.md"), []byte(m.Markdown()), 0o644))
}

func prepare(b *harness.Bench, only string) (err error) {
	if only != "" {
		if b.Only, err = regexp.Compile(only); err != nil {
			return fmt.Errorf("reading -only: %w", err)
		}
	}
	if b.Root, err = install.Root(); err != nil {
		return err
	}
	if b.Out == "" {
		b.Out, err = os.MkdirTemp("", "everynode-bench-report-")
	} else {
		err = os.MkdirAll(b.Out, 0o755)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(b.Progress, "the report will be in", b.Out)
	return nil
}

// command returns the command that creates the same report.
func command(b *harness.Bench, only string) string {
	text := fmt.Sprintf("make bench N=%d PAIRS=%d", b.Nodes, b.Pairs)
	if only != "" {
		text += fmt.Sprintf(" ONLY='%s'", only)
	}
	if len(b.Without) > 0 {
		text += " BENCHFLAGS=-without=" + strings.Join(b.Without, ",")
	}
	return text
}

// commit returns the commit of the checkout; "unknown" outside of one.
func commit(ctx context.Context, root string) string {
	if name := os.Getenv("EVERYNODE_BENCH_COMMIT"); name != "" {
		return name
	}
	out, err := exec.CommandContext(context.WithoutCancel(ctx), "git", "-C", root, "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func write(dir string, r *report.Report) error {
	raw, rawErr := json.Marshal(r)
	figures, err := json.Marshal(report.Compact(r))
	if err := errors.Join(rawErr, err); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	for name, content := range map[string][]byte{
		"raw.json": append(raw, '\n'), "figures.json": append(figures, '\n'), "report.md": []byte(report.Markdown(r)), "plot.svg": []byte(report.Plot(r)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		fmt.Println(filepath.Join(dir, name))
	}
	return nil
}
