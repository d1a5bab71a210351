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
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

// Many measures the manager with many NodeJobs for all nodes.
func (b *Bench) Many(ctx context.Context) (_ *report.Many, err error) {
	w, err := b.newWorld(ctx, report.Default, b.simulatedNodes(false))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.down(ctx)) }()
	if err := w.setUp(ctx, report.Existing); err != nil {
		return nil, err
	}
	settings, err := b.goSettings()
	if err != nil {
		return nil, err
	}
	m := &many{world: w, result: &report.Many{
		Head: b.Head, NodeJobs: b.NodeJobs, Seeded: b.Seeded, AtOnce: b.AtOnce, MemoryLimit: settings["GOMEMLIMIT"],
	}}
	return m.result, m.measure(ctx)
}

// many is a run with many NodeJobs.
type many struct {
	*world
	result *report.Many
}

func manyName(i int) string { return fmt.Sprintf("many-%03d", i) }

func manyLabel(i int) string { return v1alpha1.RecordKey(subject.Namespace, manyName(i)) }

// manyJob is a NodeJob with the defaults, in one step.
func manyJob(i int) []byte {
	return nodeJob(manyName(i), "sysctl -w vm.max_map_count=262144", "rollout: {maxConcurrent: 10%, steps: [{name: all}]}")
}

func (m *many) measure(ctx context.Context) error {
	for _, part := range []func(context.Context) error{m.seed, m.runs, m.atRest, m.flips, m.restart} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restart measures the peak memory of a manager that starts with all these objects.
func (m *many) restart(ctx context.Context) (err error) {
	if _, m.result.PeakMiB, err = memoryMiB(m.program.pid()); err != nil {
		return err
	}
	m.program.stop()
	if err := m.startManager(ctx); err != nil {
		return err
	}
	if err := pause(ctx, startTime); err != nil {
		return err
	}
	_, m.result.PeakStartMiB, err = memoryMiB(m.program.pid())
	return err
}

// startTime is the time until a restarted manager has planned all NodeJobs. The lease of the previous one is released
// at once.
const startTime = 20 * time.Second

// seed runs the first NodeJob, and gives the nodes the same records for the seeded NodeJobs.
func (m *many) seed(ctx context.Context) error {
	began := time.Now()
	if err := m.run(ctx, 0, 1); err != nil || m.Seeded == 0 {
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
	return m.run(ctx, 1, 1+m.Seeded)
}

func (m *many) seedNode(ctx context.Context, node *corev1.Node) error {
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

// runs runs the tasks of the remaining NodeJobs on all nodes.
func (m *many) runs(ctx context.Context) error {
	first := 1 + m.Seeded
	before, err := m.read(ctx, true)
	if err != nil {
		return err
	}
	for i := first; i < m.NodeJobs; i += m.AtOnce {
		until := min(i+m.AtOnce, m.NodeJobs)
		if err := m.run(ctx, i, until); err != nil {
			return err
		}
		m.say("      %d of %d NodeJobs are complete", until, m.NodeJobs)
	}
	if err := pause(ctx, report.Tail*time.Second); err != nil {
		return err
	}
	after, err := m.read(ctx, false)
	if err != nil {
		return err
	}
	m.result.Runs, m.result.Running = (m.NodeJobs-first)*m.Nodes, after.since(before)
	_, m.result.PeakRunningMiB, err = memoryMiB(m.program.pid())
	return err
}

// run creates NodeJobs and waits until they are complete.
func (m *many) run(ctx context.Context, from, until int) error {
	for i := from; i < until; i++ {
		if _, err := m.create(ctx, nodeJobs, manyJob(i)); err != nil {
			return err
		}
	}
	last, changed := map[string]int32{}, time.Now()
	for {
		if err := errors.Join(m.program.alive(), pause(ctx, 2*time.Second)); err != nil {
			return err
		}
		done, complete, err := m.progress(ctx)
		if err != nil {
			return err
		}
		if complete == until {
			return nil
		}
		if !maps.Equal(done, last) {
			last, changed = done, time.Now()
		}
		if time.Since(changed) > m.patience() {
			return fmt.Errorf("waiting until %d NodeJobs are complete: nothing has happened for %v, and %d are", until, m.patience(), complete)
		}
	}
}

// progress returns on how many nodes each NodeJob is done, and how many NodeJobs are complete.
func (m *many) progress(ctx context.Context) (done map[string]int32, complete int, err error) {
	list, err := m.dynamic.Resource(nodeJobs).Namespace(subject.Namespace).List(ctx, metav1.ListOptions{})
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

// atRest measures the cost of heartbeats.
func (m *many) atRest(ctx context.Context) error {
	m.say("      idle for %v …", m.Idle)
	if err := pause(ctx, restBefore); err != nil {
		return err
	}
	before, err := m.read(ctx, true)
	if err != nil {
		return err
	}
	if err := pause(ctx, m.Idle); err != nil {
		return err
	}
	after, err := m.read(ctx, false)
	if err != nil {
		return err
	}
	m.result.Idle = after.since(before)
	m.result.IdleMiB, _, err = memoryMiB(m.program.pid())
	return err
}

// restBefore is the pause until the previous work is finished: status writes are at least a second apart.
const restBefore = 10 * time.Second

// flips measures the cost of a node that turns NotReady and Ready again, and of one that is cordoned and uncordoned.
func (m *many) flips(ctx context.Context) error {
	for i := range min(flipsOfEach, m.Nodes) {
		for _, kind := range []struct {
			of     *[]float64
			change func(context.Context, string) error
		}{{&m.result.NotReady, m.turnNotReady}, {&m.result.Cordon, m.cordon}} {
			used, err := m.costOf(ctx, func() error { return kind.change(ctx, nodeName(i)) })
			if err != nil {
				return err
			}
			*kind.of = append(*kind.of, used)
		}
	}
	m.say("      CPU s: NotReady and back %.2f, cordon and back %.2f", m.result.NotReady, m.result.Cordon)
	return nil
}

const flipsOfEach = 3

// settleTime is the time after a change for which its cost is counted: events are batched for at most two seconds.
const settleTime = 5 * time.Second

// costOf returns the CPU time of the manager for a change and its consequences.
func (m *many) costOf(ctx context.Context, change func() error) (float64, error) {
	before, err := cpuSeconds(m.program.pid())
	if err != nil {
		return 0, err
	}
	if err := change(); err != nil {
		return 0, err
	}
	if err := pause(ctx, settleTime); err != nil {
		return 0, err
	}
	after, err := cpuSeconds(m.program.pid())
	return after - before, err
}

func (m *many) cordon(ctx context.Context, node string) error {
	for _, patch := range []string{`{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":false}}`} {
		if err := m.patchNode(ctx, node, []byte(patch)); err != nil {
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// turnNotReady removes a node from the simulator until the node controller has tainted it as NotReady, and then adds it
// again.
func (m *many) turnNotReady(ctx context.Context, node string) error {
	if err := m.patchNode(ctx, node, []byte(`{"metadata":{"annotations":{"kwok.x-k8s.io/node":"away"}}}`)); err != nil {
		return err
	}
	nodes := m.client.CoreV1().Nodes()
	for _, ready := range []string{"False", "True"} {
		status := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Bench","lastTransitionTime":%q}]}}`,
			ready, time.Now().UTC().Format(time.RFC3339))
		if _, err := nodes.Patch(ctx, node, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
			return fmt.Errorf("changing the status of node %s: %w", node, err)
		}
		err := m.eventually(ctx, "the node controller has seen it", func() error {
			live, err := nodes.Get(ctx, node, metav1.GetOptions{})
			if err == nil && hasTaint(live, corev1.TaintNodeNotReady) == (ready == "True") {
				err = fmt.Errorf("its taints are %v", live.Spec.Taints)
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return m.patchNode(ctx, node, []byte(`{"metadata":{"annotations":{"kwok.x-k8s.io/node":"fake"}}}`))
}
