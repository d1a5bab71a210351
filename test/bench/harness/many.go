// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

// manyRun measures many NodeJobs.
type manyRun struct {
	*world
}

// seed runs the first NodeJob, and gives the nodes the same records for the seeded NodeJobs.
func (m *manyRun) seed(ctx context.Context) error {
	began := time.Now()
	if err := m.runJobs(ctx, 0, 1); err != nil || m.Seeded == 0 {
		return err
	}
	nodes, err := m.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	err = inParallel(ctx, len(nodes.Items), func(ctx context.Context, i int) error { return m.seedNode(ctx, &nodes.Items[i]) })
	if err != nil {
		return err
	}
	m.say("      records of %d NodeJobs are on the nodes after %.0f s", m.Seeded, time.Since(began).Seconds())
	return m.runJobs(ctx, 1, 1+m.Seeded)
}

func (m *manyRun) seedNode(ctx context.Context, node *corev1.Node) error {
	labels, annotations := map[string]string{}, map[string]string{}
	encoded := node.Annotations[manyLabel(0)]
	for i := range m.Seeded {
		key := manyLabel(1 + i)
		labels[key], labels[record.SealKey(key)], annotations[key] = node.Labels[manyLabel(0)], record.Seal(encoded), encoded
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	if err != nil {
		return err
	}
	return m.patchNode(ctx, node.Name, patch)
}

// measure runs the tasks of the remaining NodeJobs on all nodes.
func (m *manyRun) measure(ctx context.Context) error {
	for i := 1 + m.Seeded; i < m.NodeJobs; i += m.AtOnce {
		until := min(i+m.AtOnce, m.NodeJobs)
		if err := m.runJobs(ctx, i, until); err != nil {
			return err
		}
		m.say("      %d of %d NodeJobs are complete", until, m.NodeJobs)
	}
	return nil
}

// runJobs creates NodeJobs and waits until they are complete.
func (m *manyRun) runJobs(ctx context.Context, from, until int) error {
	for i := from; i < until; i++ {
		job := nodeJob(manyName(i), "sysctl -m vm.max_map_count=262144", "rollout: {maxConcurrent: 10%, steps: [{name: all}]}")
		if _, err := m.create(ctx, nodeJobs, job); err != nil {
			return err
		}
	}
	return m.untilJobsComplete(ctx, until)
}

// untilJobsComplete waits until a number of NodeJobs are complete.
func (w *world) untilJobsComplete(ctx context.Context, until int) error {
	last, changed := map[string]int32{}, time.Now()
	for {
		if err := errors.Join(w.program.alive(), pause(ctx, 2*time.Second)); err != nil {
			return err
		}
		done, complete, err := w.progress(ctx)
		if err != nil {
			return err
		}
		if complete == until {
			return nil
		}
		if !maps.Equal(done, last) {
			last, changed = done, time.Now()
		}
		if time.Since(changed) > w.patience() {
			return fmt.Errorf("waiting until %d NodeJobs are complete: nothing has happened for %v, and %d are", until, w.patience(), complete)
		}
	}
}

// progress returns on how many nodes each NodeJob is done, and how many NodeJobs are complete.
func (w *world) progress(ctx context.Context) (done map[string]int32, complete int, err error) {
	list, err := w.dynamic.Resource(nodeJobs).Namespace(subject.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, 0, fmt.Errorf("listing NodeJobs: %w", err)
	}
	done = map[string]int32{}
	for i := range list.Items {
		job := &v1alpha1.NodeJob{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, job); err != nil {
			return nil, 0, fmt.Errorf("reading a NodeJob: %w", err)
		}
		done[job.Name] = job.Status.Nodes.Done
		if isComplete(job) {
			complete++
		}
	}
	return done, complete, nil
}

// measureStart notes what each task has cost, and measures the peak memory of a manager that starts with all these objects.
func (m *manyRun) measureStart(ctx context.Context, run *report.Run) error {
	if tasks := float64((m.NodeJobs - 1 - m.Seeded) * m.Nodes); tasks > 0 {
		m.note("CPU of the manager for each task, ms", 1000*run.Figures[report.CPU][report.Own]/tasks)
		m.note("CPU of the control plane for each task, ms", 1000*run.Figures[report.CPU][report.ControlPlane]/tasks)
	}
	resident, _, err := memoryMiB(m.program.pid())
	if err != nil {
		return err
	}
	m.note("memory at rest, MiB", resident)
	m.program.stop()
	if err := m.startManager(ctx); err != nil {
		return err
	}
	if err := pause(ctx, startTime); err != nil {
		return err
	}
	_, peak, err := memoryMiB(m.program.pid())
	m.note("memory at most of a manager that is started then, MiB", peak)
	return err
}
