// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package realnodes

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/test/bench/harness"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

// observer watches nodes and pods, and notes when it has observed what. It sees what any client sees.
type observer struct {
	mu    sync.Mutex
	label string
	nodes map[string]*nodeTimes
	pods  map[types.UID]bool
	// created counts the pods of a turn.
	created int
}

// nodeTimes are the times of a node, indexed by the columns of the report.
type nodeTimes [report.RealColumns]time.Time

func newObserver() *observer { return &observer{pods: map[types.UID]bool{}} }

// start returns when the watches are established.
func (o *observer) start(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(n any) { o.node(n.(*corev1.Node)) },
		UpdateFunc: func(_, n any) { o.node(n.(*corev1.Node)) },
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	tasks := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(subject.Namespace))
	_, err = tasks.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(p any) { o.pod(p.(*corev1.Pod)) },
		UpdateFunc: func(_, p any) { o.pod(p.(*corev1.Pod)) },
		DeleteFunc: o.podGone,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	factory.Start(ctx.Done())
	tasks.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	tasks.WaitForCacheSync(ctx.Done())
	return ctx.Err()
}

// reset begins a turn in which a node that is done has this label.
func (o *observer) reset(label string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.label, o.nodes, o.created = label, map[string]*nodeTimes{}, 0
}

// first notes the time of the first observation. Before the first turn, nothing is noted.
func (o *observer) first(node string, column int) {
	if o.nodes == nil || node == "" {
		return
	}
	if o.nodes[node] == nil {
		o.nodes[node] = &nodeTimes{}
	}
	if at := &o.nodes[node][column]; at.IsZero() {
		*at = time.Now()
	}
}

func (o *observer) node(node *corev1.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if node.Labels[o.label] != "" {
		o.first(node.Name, report.RealDone)
	}
}

func (o *observer) pod(pod *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.pods[pod.UID] {
		o.pods[pod.UID] = true
		o.created++
	}
	node := harness.NodeOf(pod)
	o.first(node, report.RealCreated)
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.State.Running != nil {
			o.first(node, report.RealRunning)
		}
		// A container of the DaemonSet pattern is started again after it has ended.
		if status.State.Terminated != nil || status.LastTerminationState.Terminated != nil {
			o.first(node, report.RealEnded)
		}
	}
}

func (o *observer) podGone(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	o.pod(pod) // its last state
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pods, pod.UID)
	o.first(harness.NodeOf(pod), report.RealGone)
}

// counts returns how many nodes are done, and how many pods exist.
func (o *observer) counts() (done, pods int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, times := range o.nodes {
		if !times[report.RealDone].IsZero() {
			done++
		}
	}
	return done, len(o.pods)
}

// rows returns the seconds since the beginning, by node, and the number of pods that were created.
func (o *observer) rows(begin time.Time) (rows [][]float64, created int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, times := range o.nodes {
		row := make([]float64, len(times))
		for column, at := range times {
			if !at.IsZero() {
				row[column] = math.Round(at.Sub(begin).Seconds()*1000) / 1000
			}
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, slices.Compare)
	return rows, o.created
}
