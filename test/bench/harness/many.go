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
	if err := w.runMany(ctx, 0, 1); err != nil || w.Seeded == 0 {
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
	return w.runMany(ctx, 1, 1+w.Seeded)
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
		if err := w.runMany(ctx, i, until); err != nil {
			return err
		}
		w.say("      %d of %d NodeJobs are complete", until, w.NodeJobs)
	}
	return nil
}

// runMany runs NodeJobs at once.
func (w *world) runMany(ctx context.Context, from, until int) error {
	const task, spec = `{script: "sysctl -m vm.max_map_count=262144"}`, "rollout: {maxConcurrent: 10%, steps: [{name: all}]}"
	var jobs [][]byte
	for i := from; i < until; i++ {
		jobs = append(jobs, nodeJob(manyName(i), task, spec))
	}
	return w.complete(ctx, jobs...)
}

// progress is on how many nodes all NodeJobs together are done, how many NodeJobs are complete, and how many there are.
type progress struct{ done, complete, jobs int }

func (p progress) String() string {
	return fmt.Sprintf("%d of %d NodeJobs complete, done on %d nodes altogether", p.complete, p.jobs, p.done)
}

// complete creates NodeJobs, and waits until all that exist are complete.
func (w *world) complete(ctx context.Context, jobs ...[]byte) error {
	for _, job := range jobs {
		if err := w.create(ctx, job); err != nil {
			return err
		}
	}
	return until(ctx, w, "all NodeJobs are complete", 2*time.Second, func() (p progress, err error) {
		list := &v1alpha1.NodeJobList{}
		err = w.objects.List(ctx, list, client.InNamespace(subject.Namespace))
		p.jobs = len(list.Items)
		for i := range list.Items {
			p.done += int(list.Items[i].Status.Nodes.Done)
			if isComplete(&list.Items[i]) {
				p.complete++
			}
		}
		return p, err
	}, func(p progress) bool { return p.complete == p.jobs })
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
