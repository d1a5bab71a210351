// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/bench/report"
)

var nodeDisruptionBudgets = schema.GroupVersionResource{Group: v1alpha1.Group, Version: "v1alpha1", Resource: "nodedisruptionbudgets"}

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

// budgetRun measures NodeDisruptionBudgets.
type budgetRun struct {
	*world
}

// measure measures the same without a budget and with one: a NodeJob that cordons each node, and a time at rest. Between them, it
// measures how all nodes get their seats.
func (r *budgetRun) measure(ctx context.Context) error {
	if err := r.disrupt(ctx, "without", 1); err != nil {
		return err
	}
	if err := r.rest(ctx, "without"); err != nil {
		return err
	}
	if err := r.counted(ctx, "seats", r.seat); err != nil {
		return err
	}
	if err := r.rest(ctx, "with"); err != nil {
		return err
	}
	return r.disrupt(ctx, "with", 2)
}

// disrupt runs a NodeJob that cordons all nodes, and waits until no node is unavailable. It is the nth NodeJob.
func (r *budgetRun) disrupt(ctx context.Context, budgets string, n int) error {
	return r.counted(ctx, "NodeJob "+budgets, func(ctx context.Context) error {
		if _, err := r.create(ctx, nodeJobs, nodeJob(manyName(n), "true", disrupting)); err != nil {
			return err
		}
		if err := r.untilJobsComplete(ctx, n); err != nil || budgets == "without" {
			return err
		}
		return r.untilSeated(ctx)
	})
}

// seat creates the budget, and waits until all nodes have their seats.
func (r *budgetRun) seat(ctx context.Context) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(tenPercent), &o.Object); err != nil {
		return fmt.Errorf("reading a manifest: %w", err)
	}
	if _, err := r.dynamic.Resource(nodeDisruptionBudgets).Create(ctx, o, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the NodeDisruptionBudget: %w", err)
	}
	return r.untilSeated(ctx)
}

func (r *budgetRun) untilSeated(ctx context.Context) error {
	return r.eventually(ctx, "all nodes have their seats", func() error {
		o, err := r.dynamic.Resource(nodeDisruptionBudgets).Get(ctx, "bench", metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading the NodeDisruptionBudget: %w", err)
		}
		b := &v1alpha1.NodeDisruptionBudget{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, b); err != nil {
			return fmt.Errorf("reading the NodeDisruptionBudget: %w", err)
		}
		if n := b.Status.Nodes; int(n.Seats) != r.Nodes || n.Unavailable > 0 {
			return fmt.Errorf("%d of %d nodes have seats, and %d are unavailable", n.Seats, r.Nodes, n.Unavailable)
		}
		return nil
	})
}

// counted notes how long something takes, the CPU that it uses, and the writes of all clients for each node, as the API server counts
// them.
func (w *world) counted(ctx context.Context, what string, do func(context.Context) error) error {
	before, err := w.read(ctx, true)
	if err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return err
	}
	w.note(what+": seconds", time.Since(before.at).Seconds())
	if err := pause(ctx, calm(w.subject, w.Nodes)); err != nil { // for deferred writes
		return err
	}
	after, err := w.read(ctx, false)
	if err != nil {
		return err
	}
	w.noteCPU(what, after.cpuSince(before), 1)
	for request, n := range after.requests.Since(before.requests) {
		if report.Write(request) && !isHeartbeat(request) {
			w.note(fmt.Sprintf("%s: writes per node, %s", what, request), n/float64(w.Nodes))
		}
	}
	w.say("      %s: done after %.0f s", what, time.Since(before.at).Seconds())
	return nil
}

// isHeartbeat reports whether a request is made regularly, by a node or a leader.
func isHeartbeat(request string) bool {
	return strings.HasSuffix(request, " leases") || strings.HasSuffix(request, " nodes/status")
}

// rest notes the CPU of a minute at rest, and the memory of the manager.
func (r *budgetRun) rest(ctx context.Context, budgets string) error {
	what := "at rest " + budgets
	r.say("      %s, for %v …", what, r.Idle)
	before, err := r.read(ctx, true)
	if err != nil {
		return err
	}
	if err := pause(ctx, r.Idle); err != nil {
		return err
	}
	after, err := r.read(ctx, false)
	if err != nil {
		return err
	}
	r.noteCPU(what+", per minute", after.cpuSince(before), r.Idle.Minutes())
	resident, _, err := memoryMiB(r.program.pid())
	r.note(what+": memory of the manager, MiB", resident)
	return err
}

func (w *world) noteCPU(what string, used map[string]float64, per float64) {
	w.note(what+": CPU seconds of the manager", used[report.Own]/per)
	w.note(what+": CPU seconds of the control plane", used[report.ControlPlane]/per)
	w.note(what+": CPU seconds of the API server", used["kube-apiserver"]/per)
}
