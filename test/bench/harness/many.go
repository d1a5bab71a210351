// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

func manyName(i int) string { return fmt.Sprintf("many-%03d", i) }

func manyLabel(i int) string { return v1alpha1.RecordKey(subject.Namespace, manyName(i)) }

// startTime is the time until a restarted manager has planned all NodeJobs. The lease of the previous one is released
// at once.
const startTime = 20 * time.Second

// seed runs the first NodeJob, and gives the nodes the same records for the seeded NodeJobs.
func (w *world) seed(ctx context.Context) error {
	began := time.Now()
	if err := w.runJobs(ctx, 0, 1); err != nil || w.Seeded == 0 {
		return err
	}
	nodes := &corev1.NodeList{}
	if err := w.objects.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	err := inParallel(ctx, len(nodes.Items), func(ctx context.Context, i int) error { return w.seedNode(ctx, &nodes.Items[i]) })
	if err != nil {
		return err
	}
	w.say("      records of %d NodeJobs are on the nodes after %.0f s", w.Seeded, time.Since(began).Seconds())
	return w.runJobs(ctx, 1, 1+w.Seeded)
}

func (w *world) seedNode(ctx context.Context, node *corev1.Node) error {
	labels, annotations := map[string]string{}, map[string]string{}
	encoded := node.Annotations[manyLabel(0)]
	for i := range w.Seeded {
		key := manyLabel(1 + i)
		labels[key], labels[record.SealKey(key)], annotations[key] = node.Labels[manyLabel(0)], record.Seal(encoded), encoded
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	if err != nil {
		return err
	}
	return w.objects.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
}

// measureMany runs the tasks of the remaining NodeJobs on all nodes.
func (w *world) measureMany(ctx context.Context) error {
	for i := 1 + w.Seeded; i < w.NodeJobs; i += w.AtOnce {
		until := min(i+w.AtOnce, w.NodeJobs)
		if err := w.runJobs(ctx, i, until); err != nil {
			return err
		}
		w.say("      %d of %d NodeJobs are complete", until, w.NodeJobs)
	}
	return nil
}

// runJobs creates NodeJobs and waits until they are complete.
func (w *world) runJobs(ctx context.Context, from, until int) error {
	for i := from; i < until; i++ {
		job := nodeJob(manyName(i), "sysctl -m vm.max_map_count=262144", "rollout: {maxConcurrent: 10%, steps: [{name: all}]}")
		if err := w.create(ctx, job); err != nil {
			return err
		}
	}
	return w.untilJobsComplete(ctx, until)
}

// progress is on how many nodes all NodeJobs together are done, and how many NodeJobs are complete.
type progress struct{ done, complete int }

func (p progress) String() string {
	return fmt.Sprintf("%d NodeJobs complete, done on %d nodes altogether", p.complete, p.done)
}

// untilJobsComplete waits until a number of NodeJobs are complete.
func (w *world) untilJobsComplete(ctx context.Context, n int) error {
	what := fmt.Sprintf("%d NodeJobs are complete", n)
	return until(ctx, w, what, 2*time.Second, func() (p progress, err error) {
		jobs := &v1alpha1.NodeJobList{}
		err = w.objects.List(ctx, jobs, client.InNamespace(subject.Namespace))
		for i := range jobs.Items {
			p.done += int(jobs.Items[i].Status.Nodes.Done)
			if isComplete(&jobs.Items[i]) {
				p.complete++
			}
		}
		return p, err
	}, func(p progress) bool { return p.complete == n })
}

// complete creates the nth NodeJob, and waits until it is complete.
func (w *world) complete(ctx context.Context, job []byte, n int) error {
	if err := w.create(ctx, job); err != nil {
		return err
	}
	return w.untilJobsComplete(ctx, n)
}

// measureStart notes what each task has cost, and measures the peak memory of a manager that starts with all these objects.
func (w *world) measureStart(ctx context.Context, run *report.Run) error {
	if tasks := float64((w.NodeJobs - 1 - w.Seeded) * w.Nodes); tasks > 0 {
		w.note("CPU of the manager for each task, ms", 1000*run.Figures[report.CPU][report.Own]/tasks)
		w.note("CPU of the control plane for each task, ms", 1000*run.Figures[report.CPU][report.ControlPlane]/tasks)
	}
	resident, _, err := memoryMiB(w.program.pid())
	if err != nil {
		return err
	}
	w.note("memory at rest, MiB", resident)
	w.program.stop()
	if err := w.startManager(ctx); err != nil {
		return err
	}
	if err := pause(ctx, startTime); err != nil {
		return err
	}
	_, peak, err := memoryMiB(w.program.pid())
	w.note("memory at most of a manager that is started then, MiB", peak)
	return err
}
