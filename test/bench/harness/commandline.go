// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

// Intervals at which the memory of a command is read, and the status is requested.
const (
	memoryEvery = 50 * time.Millisecond
	statusEvery = 2 * time.Second
)

func (b *Bench) plugin() string { return filepath.Join(b.temp, "kubectl-everynode") }

// runCommand runs the command line until it ends, and asks for the status meanwhile.
func (w *world) runCommand(ctx context.Context) error {
	began := time.Now()
	run, err := startProcess(ctx, w.dir, "run", []string{"KUBECONFIG=" + w.cluster.Kubeconfig()},
		w.plugin(), "run", "--all", "--yes", "--name", w.job, "-n", subject.Namespace, "--", "true")
	if err != nil {
		return err
	}
	defer run.stop()
	peak, slowest, err := w.follow(ctx, run)
	if err != nil {
		return err
	}
	if done := w.tracker.counts().done; run.err != nil || done != w.Nodes {
		return fmt.Errorf("%d of %d nodes are done; the run has ended (%w):\n%s", done, w.Nodes, run.err, run.tail())
	}
	end := time.Since(began).Seconds()
	first := end
	for _, node := range w.tracker.rows(began) {
		first = min(first, node[report.Created])
	}
	w.note("first pod, s", first)
	w.note("end of the command, s", end)
	w.note("memory of the command at most, MiB", peak)
	w.note("`status` meanwhile at most, s", slowest.Seconds())
	return nil
}

// follow observes a command until it has ended. It returns its peak memory, and how long the slowest status took.
func (w *world) follow(ctx context.Context, run *process) (peak float64, slowest time.Duration, err error) {
	looks, asks := time.NewTicker(memoryEvery), time.NewTicker(statusEvery)
	defer looks.Stop()
	defer asks.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		case <-run.ended:
			return peak, slowest, nil
		case <-looks.C:
			if _, now, err := memoryMiB(run.pid()); err == nil { // the process may end at any moment
				peak = max(peak, now)
			}
		case <-asks.C:
			status := exec.CommandContext(ctx, w.plugin(), "status", w.job, "-n", subject.Namespace)
			status.Env = w.cluster.Environ()
			began := time.Now()
			if out, err := status.CombinedOutput(); err != nil {
				return 0, 0, fmt.Errorf("asking for the status: %w\n%s", err, out)
			}
			slowest = max(slowest, time.Since(began))
		}
	}
}
