// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/bench/report"
)

// tenPercent applies to all nodes, also those that were just created.
const tenPercent = `apiVersion: everynode.dev/v1alpha1
kind: NodeDisruptionBudget
metadata: {name: bench}
spec:
  joiningNodes: Included
  limits: [{maxUnavailable: 10%}]
`

// disrupting cordons each node for its task, as many at once as the budget allows.
const disrupting = `maintenance: {cordon: true, maxUnavailable: 10%}
  rollout: {maxConcurrent: 10%, steps: [{name: all}]}`

// measureBudget measures the same without a budget and with one: a NodeJob that cordons each node, and a time at rest. Between them, it
// measures how all nodes get their seats.
func (w *world) measureBudget(ctx context.Context) error {
	err := w.counted(ctx, "NodeJob without", func() error { return w.complete(ctx, nodeJob("without", plainTask, disrupting)) })
	if err != nil {
		return err
	}
	if err := w.rest(ctx, "without"); err != nil {
		return err
	}
	err = w.counted(ctx, "seats", func() error {
		if err := w.create(ctx, []byte(tenPercent)); err != nil {
			return err
		}
		return w.untilSeated(ctx)
	})
	if err != nil {
		return err
	}
	if err := w.rest(ctx, "with"); err != nil {
		return err
	}
	return w.counted(ctx, "NodeJob with", func() error {
		if err := w.complete(ctx, nodeJob("with", plainTask, disrupting)); err != nil {
			return err
		}
		return w.untilSeated(ctx)
	})
}

// untilSeated waits until all nodes have their seats, and no node is unavailable.
func (w *world) untilSeated(ctx context.Context) error {
	return w.eventually(ctx, "all nodes have their seats", func() error {
		b := &v1alpha1.NodeDisruptionBudget{}
		if err := w.objects.Get(ctx, client.ObjectKey{Name: "bench"}, b); err != nil {
			return fmt.Errorf("reading the NodeDisruptionBudget: %w", err)
		}
		if n := b.Status.Nodes; int(n.Seats) != w.Nodes || n.Unavailable > 0 {
			return fmt.Errorf("%d of %d nodes have seats, and %d are unavailable", n.Seats, w.Nodes, n.Unavailable)
		}
		return nil
	})
}

// counted notes how long something takes, the CPU that it uses, and the writes of all clients for each node, as the API server counts
// them.
func (w *world) counted(ctx context.Context, what string, do func() error) error {
	used, err := w.measure(ctx, func(began time.Time) error {
		if err := do(); err != nil {
			return err
		}
		w.note(what+": seconds", time.Since(began).Seconds())
		w.say("      %s: done after %.0f s", what, time.Since(began).Seconds())
		return pause(ctx, calm(w.subject, w.Nodes)) // for deferred writes
	})
	if err != nil {
		return err
	}
	w.noteCPU(what, used.cpu, 1)
	for request, n := range used.requests {
		if report.Write(request) && !report.Heartbeat("kubelet", strings.ToLower(request)) {
			w.note(fmt.Sprintf("%s: writes per node, %s", what, request), n/float64(w.Nodes))
		}
	}
	return nil
}

// rest notes the CPU of a minute at rest, and the memory of the manager, unless idle times are skipped.
func (w *world) rest(ctx context.Context, budgets string) error {
	if w.Idle == 0 {
		return nil
	}
	what := "at rest " + budgets
	w.say("      %s, for %v …", what, w.Idle)
	used, err := w.measure(ctx, func(time.Time) error { return pause(ctx, w.Idle) })
	if err != nil {
		return err
	}
	w.noteCPU(what+", per minute", used.cpu, w.Idle.Minutes())
	resident, _, err := memoryMiB(w.program.pid())
	w.note(what+": memory of the manager, MiB", resident)
	return err
}

func (w *world) noteCPU(what string, used map[string]float64, per float64) {
	w.note(what+": CPU seconds of the manager", used[report.Own]/per)
	w.note(what+": CPU seconds of the control plane", used[report.ControlPlane]/per)
	w.note(what+": CPU seconds of the API server", used["kube-apiserver"]/per)
}
