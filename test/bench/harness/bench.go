// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package harness starts control planes and nodes, runs each subject on them, and measures its cost.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/install"
)

// Bench is what to measure.
type Bench struct {
	report.Head
	// Only names the runs to execute, as "subject/mode"; nil for all.
	Only *regexp.Regexp
	// Idle is the duration of the idle measurement at the end; 0 to skip it.
	Idle time.Duration
	// Base is a smaller number of nodes on which the same runs are made in turn, to compare the cost per node; 0 for none.
	Base int
	// Count adds a round with the audit log, which counts requests by client.
	Count bool
	// NodeJobs, Seeded and AtOnce are those of report.Many: the number of NodeJobs; how many of them find their records on the
	// nodes, as after a restore of the cluster, so that their tasks need not run; and how many of the others run at once.
	NodeJobs, Seeded, AtOnce int
	// Root is the checkout.
	Root string
	// Progress gets a line per step.
	Progress io.Writer

	// temp is the folder of the built programs, and of the runs' files.
	temp string
}

func (b *Bench) say(format string, args ...any) { fmt.Fprintf(b.Progress, format+"\n", args...) }

// Prepare builds the manager as it is in its image. Close removes what was built.
func (b *Bench) Prepare(ctx context.Context) (err error) {
	log.SetLogger(logr.Discard()) // of the client
	if b.Machine, err = machine(); err != nil {
		return err
	}
	b.Date = time.Now().UTC().Format(time.RFC3339)
	if b.temp, err = os.MkdirTemp("", "everynode-bench-"); err != nil {
		return err
	}
	if err := install.Program(ctx, b.Root, "everynode", b.managerProgram(), nil); err != nil {
		return errors.Join(err, b.Close())
	}
	return nil
}

// Close removes the files of the benchmark.
func (b *Bench) Close() error { return os.RemoveAll(b.temp) }

func (b *Bench) managerProgram() string { return filepath.Join(b.temp, "everynode") }

// kind of run.
type kind struct {
	subject report.Subject
	mode    report.Mode
}

func (k kind) String() string {
	switch k.subject {
	case report.CommandLine, report.Many, report.Budget, report.Checks, report.Plain:
		return string(k.subject)
	default:
		mode, _, _ := strings.Cut(string(k.mode), " ")
		return string(k.subject) + "/" + mode
	}
}

// kinds are in the order in which they run. A gate only affects joining nodes. The last ones are only made on request.
func (b *Bench) kinds() []kind {
	kinds := []kind{
		{report.Plain, report.Existing},
		{report.Floor, report.Existing}, {report.Recorded, report.Existing}, {report.DaemonSet, report.Existing},
		{report.Everynode, report.Existing}, {report.Default, report.Existing},
		{report.Floor, report.Join}, {report.Recorded, report.Join}, {report.DaemonSet, report.Join},
		{report.Everynode, report.Join}, {report.Gated, report.Join}, {report.Default, report.Join},
	}
	if b.Only == nil {
		return kinds
	}
	kinds = append(kinds, kind{report.CommandLine, report.Existing}, kind{report.Many, report.Existing},
		kind{report.Budget, report.Existing}, kind{report.Checks, report.Existing})
	return slices.DeleteFunc(kinds, func(k kind) bool { return !b.Only.MatchString(k.String()) })
}

// Run measures all subjects on simulated nodes. If an error occurs, the report contains the earlier measurements. Run
// leaves no processes behind.
func (b *Bench) Run(ctx context.Context) (*report.Report, error) {
	r := &report.Report{Head: b.Head, BaseNodes: b.Base}
	defer func() { r.Machine = b.Machine }() // with the version of Kubernetes
	rounds := b.Pairs
	if b.Count {
		rounds++
	}
	for round := range rounds {
		for _, k := range b.kinds() {
			if k.subject == report.Plain && round > 0 {
				continue // once is enough
			}
			if err := b.measureBoth(ctx, k, round, r); err != nil {
				return r, fmt.Errorf("measuring %s: %w", k, err)
			}
		}
	}
	return r, nil
}

// measureBoth makes a run, and before it the same one on the smaller number of nodes.
func (b *Bench) measureBoth(ctx context.Context, k kind, round int, r *report.Report) error {
	if b.Base > 0 && round < b.Pairs && k.subject != report.Plain {
		small := *b
		small.Nodes, small.Idle = b.Base, 0
		run, err := small.measure(ctx, k, round)
		if err != nil {
			return err
		}
		r.Base = append(r.Base, *run)
	}
	run, err := b.measure(ctx, k, round)
	if err != nil {
		return err
	}
	r.Runs = append(r.Runs, *run)
	return nil
}

// measure makes one run. In the round after the last one, requests are counted.
func (b *Bench) measure(ctx context.Context, k kind, round int) (_ *report.Run, err error) {
	run := &report.Run{Subject: k.subject, Mode: k.mode, Pair: round, Counted: round == b.Pairs && k.subject != report.Plain}
	what := fmt.Sprintf("round %d of %d", round+1, b.Pairs)
	if run.Counted {
		what = "counting requests"
	}
	b.say("%s  %s, %d nodes, %s", time.Now().Format("15:04:05"), k, b.Nodes, what)
	started := time.Now()
	w, err := b.newWorld(ctx, k.subject, b.simulatedNodes(run.Counted))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.down(ctx)) }()
	w.result = run
	if err := w.setUp(ctx, k.mode); err != nil {
		return nil, err
	}
	setUp := time.Since(started).Seconds()
	if err := w.run(ctx, run); err != nil {
		return nil, err
	}
	if err := w.idle(ctx, run); err != nil {
		return nil, err
	}
	if err := w.setMemory(run); err != nil {
		return nil, err
	}
	if k.subject == report.Many {
		err = w.measureStart(ctx, run)
	}
	if run.Counted {
		run.Only(report.Requests, report.Rest)
	}
	b.say("      wall %.1f s, own CPU %.2f s, own peak %.0f MiB, control plane CPU %.1f s (set up in %.1f s, all in %.1f s)",
		run.Figures[report.Times][report.Wall], run.Figures[report.CPU][report.Own], run.Figures[report.Memory][report.Own],
		run.Figures[report.CPU][report.ControlPlane], setUp, time.Since(started).Seconds())
	return run, err
}

// calm is the pause for work that is still in progress.
func calm(of report.Subject, nodes int) time.Duration {
	seconds := 3 * time.Second
	if of == report.Many {
		seconds = 10 * time.Second // their status is written at least a second apart
	}
	return seconds * time.Duration(max(nodes, 1000)) / 1000
}

// setUp creates what must exist first.
func (w *world) setUp(ctx context.Context, mode report.Mode) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	if mode == report.Join {
		if err := w.begin(ctx); err != nil {
			return err
		}
		return pause(ctx, calm(w.subject, w.Nodes))
	}
	if err := w.join(ctx); err != nil {
		return err
	}
	if err := w.untilSeen(ctx, "all nodes are Ready", func(c counts) bool { return c.settled == w.Nodes }); err != nil {
		return err
	}
	if w.subject == report.Many {
		if err := w.seed(ctx); err != nil {
			return err
		}
	}
	return pause(ctx, calm(w.subject, w.Nodes))
}

// run executes the measured part, and sets what it has used.
func (w *world) run(ctx context.Context, run *report.Run) error {
	used, err := w.measure(ctx, func(began time.Time) error { return w.act(ctx, run, began) })
	if err != nil {
		return err
	}
	for process, seconds := range used.cpu {
		run.Set(report.CPU, process, seconds)
	}
	for what, n := range used.requests {
		run.Set(report.Served, what, n)
	}
	run.SetNodes(w.tracker.rows(used.from))
	if used.clients != nil {
		run.SetRequests(used.clients, w.Nodes)
	}
	return nil
}

// act begins, and waits until the subject has nothing left to do.
func (w *world) act(ctx context.Context, run *report.Run, began time.Time) error {
	begin := w.begin
	if run.Mode == report.Join {
		begin = w.join
	}
	if err := begin(ctx); err != nil {
		return err
	}
	switch w.subject {
	case report.Plain, report.Many, report.Budget, report.Checks: // they begin until all is created or complete
		run.Set(report.Times, report.Complete, time.Since(began).Seconds())
	default:
	}
	if err := w.untilSeen(ctx, "all nodes are done and no pod is left", w.ended); err != nil {
		return err
	}
	end := time.Now()
	run.Set(report.Times, report.Wall, end.Sub(began).Seconds())
	if err := w.untilComplete(ctx, run, began); err != nil {
		return err
	}
	tail := report.Tail * time.Second
	if w.real {
		tail += time.Second // kubelets write events with a delay
	}
	return pause(ctx, time.Until(end.Add(tail)))
}

// ended reports whether the subject has nothing left to do.
func (w *world) ended(c counts) bool {
	switch w.subject {
	case report.Plain:
		return c.ended == w.Nodes
	case report.Many, report.Budget, report.Checks:
		return c.pods == 0
	case report.Reverted:
		return c.ended == w.Nodes && c.pods == 0
	case report.CommandLine: // it retains pods for some minutes, for their logs
		return c.done == w.Nodes && c.ended == w.Nodes
	default:
		return c.done == w.Nodes && c.pods == 0
	}
}

// countedIdle is shorter, because requests are regular.
const countedIdle = 30 * time.Second

// idleLength is 0 for what does not differ at rest.
func (b *Bench) idleLength(run *report.Run) time.Duration {
	differs := []report.Subject{report.Floor, report.DaemonSet, report.Everynode, report.Many}
	switch {
	case run.Mode != report.Existing || !slices.Contains(differs, run.Subject) || run.Pair > 0 && !run.Counted:
		return 0
	case run.Counted:
		return min(countedIdle, b.Idle)
	default:
		return b.Idle
	}
}

// idle measures the cost after all work is done: in the first round, and when requests are counted.
func (w *world) idle(ctx context.Context, run *report.Run) error {
	length := w.idleLength(run)
	if length == 0 {
		return nil
	}
	w.say("      idle for %v …", length)
	if err := pause(ctx, calm(w.subject, w.Nodes)); err != nil {
		return err
	}
	used, err := w.measure(ctx, func(time.Time) error { return pause(ctx, length) })
	if err != nil {
		return err
	}
	if run.Counted { // which costs CPU
		used.cpu = nil
	}
	run.SetRest(used.cpu, used.clients, used.to.Sub(used.from).Seconds())
	return nil
}
