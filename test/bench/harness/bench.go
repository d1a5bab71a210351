// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package harness starts control planes and simulated nodes, runs each subject on its own control plane, and measures
// its cost.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/everynode/everynode/test/bench/measure"
	"github.com/everynode/everynode/test/bench/report"
)

// Bench is what to measure.
type Bench struct {
	// Nodes of each run.
	Nodes int
	// Pairs is the number of measurements of each subject in each mode.
	Pairs int
	// Only names the runs to execute, as "subject/mode"; nil for all.
	Only *regexp.Regexp
	// Without are the policies that report.Unchecked lacks; all if there are none.
	Without []string
	// Idle is the duration of the idle measurement at the end; 0 to skip it.
	Idle time.Duration
	// Base is a smaller number of nodes on which the same runs are made in turn, to compare the cost per node; 0 for none.
	Base int
	// Count adds a round with the audit log, which counts requests by client.
	Count bool
	// Profile writes profiles of the manager into Out. It distorts the results a little.
	Profile bool
	// Root is the checkout. Out is the folder for the profiles.
	Root, Out string
	// Progress gets a line per step.
	Progress io.Writer

	temp string
	// kubernetes is the version of the control planes.
	kubernetes     string
	managerProgram string
}

// kind of run.
type kind struct {
	subject report.Subject
	mode    report.Mode
}

func (k kind) String() string {
	mode := "existing"
	if k.mode == report.Join {
		mode = "join"
	}
	return string(k.subject) + "/" + mode
}

// kinds are in the order in which they run.
func (b *Bench) kinds() []kind {
	var kinds []kind
	for _, mode := range []report.Mode{report.Existing, report.Join} {
		for _, s := range []report.Subject{report.Floor, report.Recorded, report.DaemonSet, report.Everynode, report.Gated, report.Default, report.Unchecked} {
			if s == report.Unchecked && b.Only == nil {
				continue // only on request
			}
			if s == report.Gated && mode == report.Existing {
				continue // a gate only affects joining nodes
			}
			if k := (kind{s, mode}); b.Only == nil || b.Only.MatchString(k.String()) {
				kinds = append(kinds, k)
			}
		}
	}
	return kinds
}

func (b *Bench) say(format string, args ...any) { fmt.Fprintf(b.Progress, format+"\n", args...) }

// Run executes all measurements. If an error occurs, the report contains the earlier measurements. Run leaves no
// processes behind.
func (b *Bench) Run(ctx context.Context) (*report.Report, error) {
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.temp)
	r := &report.Report{Nodes: b.Nodes, BaseNodes: b.Base, Pairs: b.Pairs, Columns: report.ColumnNames(), Date: time.Now().UTC().Format(time.RFC3339)}
	var err error
	if r.Machine, err = Machine(); err != nil {
		return nil, err
	}
	defer func() { r.Machine.Kubernetes = b.kubernetes }()
	if b.Only == nil || b.Only.MatchString("simulator") {
		if r.Simulator, err = b.simulator(ctx); err != nil {
			return r, err
		}
	}
	rounds := b.Pairs
	if b.Count {
		rounds++
	}
	for round := range rounds {
		for _, k := range b.kinds() {
			if err := b.measureBoth(ctx, k, round, r); err != nil {
				return r, fmt.Errorf("measuring %s: %w", k, err)
			}
		}
	}
	return r, nil
}

func (b *Bench) prepare(ctx context.Context) error {
	if err := ClearAway(ctx, b.Progress); err != nil {
		return err
	}
	var err error
	if b.temp, err = os.MkdirTemp("", "everynode-bench-"); err != nil {
		return err
	}
	if err := b.buildManager(ctx); err != nil {
		return errors.Join(err, os.RemoveAll(b.temp))
	}
	return nil
}

// Machine describes this machine.
func Machine() (report.Machine, error) {
	m := report.Machine{CPU: measure.CPUModel(), Cores: runtime.NumCPU(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	var err error
	m.MemoryGiB, err = measure.MachineMemoryGiB()
	return m, err
}

// measureBoth makes a run, and before it the same one on the smaller number of nodes.
func (b *Bench) measureBoth(ctx context.Context, k kind, round int, r *report.Report) error {
	counted := round == b.Pairs
	if b.Base > 0 && !counted {
		small := *b
		small.Nodes, small.Idle = b.Base, 0
		run, err := small.measure(ctx, k, round, false)
		if err != nil {
			return err
		}
		r.Base = append(r.Base, *run)
	}
	run, err := b.measure(ctx, k, round, counted)
	if err != nil {
		return err
	}
	r.Runs = append(r.Runs, *run)
	return nil
}

// measure makes one run.
func (b *Bench) measure(ctx context.Context, k kind, round int, counted bool) (_ *report.Run, err error) {
	what := fmt.Sprintf("round %d of %d", round+1, b.Pairs)
	if counted {
		what = "counting requests"
	}
	b.say("%s  %s, %d nodes, %s", time.Now().Format("15:04:05"), k, b.Nodes, what)
	started := time.Now()
	w, err := b.newWorld(ctx, counted, doneLabel(k.subject))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.down(ctx)) }()
	s := w.contender(k.subject)
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	run := &report.Run{Subject: k.subject, Mode: k.mode, Pair: round, Counted: counted}
	if err := w.setUp(ctx, s, k.mode); err != nil {
		return nil, err
	}
	run.SetUp = time.Since(started).Seconds()
	if err := w.run(ctx, s, run); err != nil {
		return nil, err
	}
	if err := w.idle(ctx, s, run); err != nil {
		return nil, err
	}
	run.PeakMiB, err = w.peaks(s)
	control := 0.0
	for _, name := range report.ControlPlane() {
		control += run.Cost.CPU[name]
	}
	b.say("      wall %.1f s, own CPU %.2f s, own peak %.0f MiB, control plane CPU %.1f s, %s CPU %.1f s (set up in %.1f s, all in %.1f s)", run.Wall,
		run.Cost.CPU[report.Own], run.PeakMiB[report.Own], control, report.Simulator, run.Cost.CPU[report.Simulator], run.SetUp, time.Since(started).Seconds())
	return run, err
}

// calm is the pause after the set-up, for work that is still in progress.
func (b *Bench) calm() time.Duration {
	return 3 * time.Second * time.Duration(max(b.Nodes, 1000)) / 1000
}

// setUp creates what must exist first.
func (w *world) setUp(ctx context.Context, s contender, mode report.Mode) error {
	if mode == report.Join {
		if err := s.begin(ctx); err != nil {
			return err
		}
		return pause(ctx, w.calm())
	}
	if err := w.join(ctx); err != nil {
		return err
	}
	err := w.until(ctx, s, "all nodes are Ready", func(c counts) bool { return c.settled == w.Nodes })
	if err != nil {
		return err
	}
	return pause(ctx, w.calm())
}

// run executes the measured part.
func (w *world) run(ctx context.Context, s contender, run *report.Run) error {
	before, err := w.read(ctx, s, true)
	if err != nil {
		return err
	}
	stopProfile := w.startProfile(ctx, run)
	act := s.begin
	if run.Mode == report.Join {
		act = w.join
	}
	if err := act(ctx); err != nil {
		return err
	}
	err = w.until(ctx, s, "all nodes are done and no pod is left", func(c counts) bool { return c.done == w.Nodes && c.pods == 0 })
	if err != nil {
		return err
	}
	end := time.Now()
	run.Wall = end.Sub(before.at).Seconds()
	if err := w.untilComplete(ctx, s, run, before.at); err != nil {
		return err
	}
	if err := pause(ctx, time.Until(end.Add(report.Tail*time.Second))); err != nil {
		return err
	}
	stopProfile()
	after, err := w.read(ctx, s, false)
	if err != nil {
		return err
	}
	run.Cost = after.since(before)
	run.Nodes = w.tracker.rows(before.at)
	run.PodsCreated = w.tracker.counts().created
	if run.Counted {
		run.Clients, err = Clients(ctx, w.cluster, before.at, after.at)
	}
	return err
}

func (w *world) alive(s contender) error {
	_, err := w.processes(s)
	return err
}

// untilComplete waits until the object reports completion, if it does so.
func (w *world) untilComplete(ctx context.Context, s contender, run *report.Run, begin time.Time) error {
	err := w.eventually(ctx, "the object says so", func() error {
		complete, err := s.complete(ctx)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return nil
		case err != nil:
			return err
		case !complete:
			return errors.New("it does not say that it is complete")
		}
		run.Complete = time.Since(begin).Seconds()
		return nil
	})
	return err
}

// countedIdle is shorter, because requests are regular.
const countedIdle = 30 * time.Second

func (b *Bench) idleLength(run *report.Run) time.Duration {
	if run.Mode != report.Existing || slices.Contains([]report.Subject{report.Recorded, report.Gated, report.Default, report.Unchecked}, run.Subject) {
		return 0 // at rest, these rounds do not differ
	}
	switch {
	case run.Counted:
		return min(countedIdle, b.Idle)
	case run.Pair == 0:
		return b.Idle
	}
	return 0
}

// idle measures the cost after all work is done: in the first round, and when requests are counted.
func (w *world) idle(ctx context.Context, s contender, run *report.Run) error {
	length := w.idleLength(run)
	if length == 0 {
		return nil
	}
	w.say("      idle for %v …", length)
	if err := pause(ctx, w.calm()); err != nil {
		return err
	}
	before, err := w.read(ctx, s, true)
	if err != nil {
		return err
	}
	waitForProfile := w.profileIdle(ctx, run, length)
	if err := pause(ctx, length); err != nil {
		return err
	}
	after, err := w.read(ctx, s, false)
	if err != nil {
		return err
	}
	waitForProfile()
	run.Idle = &report.Idle{Cost: after.since(before)}
	if run.Counted {
		run.Idle.Clients, err = Clients(ctx, w.cluster, before.at, after.at)
	}
	return err
}
