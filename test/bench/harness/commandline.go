// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
	"github.com/everynode/everynode/test/install"
)

// CommandLine measures whole runs of kubectl everynode with the manager and simulated nodes, each on its own control
// plane.
func (b *Bench) CommandLine(ctx context.Context) ([]report.CommandLine, error) {
	plugin, err := install.Plugin(ctx, b.Root, b.temp)
	if err != nil {
		return nil, err
	}
	var runs []report.CommandLine
	for i := range b.Pairs {
		b.say("%s  run on %d nodes, %d of %d", time.Now().Format("15:04:05"), b.Nodes, i+1, b.Pairs)
		r, err := b.commandLine(ctx, plugin)
		if err != nil {
			return runs, err
		}
		runs = append(runs, *r)
	}
	return runs, nil
}

// commandLine executes one run.
func (b *Bench) commandLine(ctx context.Context, plugin string) (_ *report.CommandLine, err error) {
	w, err := b.newWorld(ctx, report.Everynode, b.simulatedNodes(false))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.down(ctx)) }()
	if err := w.setUp(ctx, report.Existing); err != nil {
		return nil, err
	}
	began := time.Now()
	run, err := startProcess(ctx, w.dir, "run", []string{"KUBECONFIG=" + w.cluster.Kubeconfig()},
		plugin, "run", "--all", "--yes", "--name", w.job, "-n", subject.Namespace, "--", "true")
	if err != nil {
		return nil, err
	}
	defer run.stop()
	go func() { _, _ = io.Copy(io.Discard, run.out) }()
	r := &report.CommandLine{}
	if err := w.followCommand(ctx, run, plugin, r); err != nil {
		return nil, err
	}
	r.End = time.Since(began).Seconds()
	if done := w.tracker.counts().done; run.err != nil || done != w.Nodes {
		return nil, fmt.Errorf("%d of %d nodes are done; the run has ended (%w):\n%s", done, w.Nodes, run.err, run.tail())
	}
	observed := report.Run{Nodes: w.tracker.rows(began)}
	r.FirstPod, r.Done = report.Percentile(observed.Delays(report.Created), 0), report.Percentile(observed.Delays(report.Done), 100)
	return r, nil
}

// Intervals at which the memory of a run is read, and its status is requested.
const (
	memoryEvery = 50 * time.Millisecond
	statusEvery = 2 * time.Second
)

// followCommand observes a run until it has ended.
func (w *world) followCommand(ctx context.Context, run *process, plugin string, r *report.CommandLine) error {
	looks, asks := time.NewTicker(memoryEvery), time.NewTicker(statusEvery)
	defer looks.Stop()
	defer asks.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-run.ended:
			return nil
		case <-looks.C:
			if _, peak, err := memoryMiB(run.pid()); err == nil { // the process may end at any moment
				r.PeakMiB = max(r.PeakMiB, peak)
			}
		case <-asks.C:
			status := exec.CommandContext(ctx, plugin, "status", w.job, "-n", subject.Namespace)
			status.Env = w.cluster.Environ()
			began := time.Now()
			if out, err := status.CombinedOutput(); err != nil {
				return fmt.Errorf("asking for the status: %w\n%s", err, out)
			}
			r.Status = append(r.Status, time.Since(began).Seconds())
			w.say("      nodes done %d, status in %.2f s", w.tracker.counts().done, r.Status[len(r.Status)-1])
		}
	}
}
