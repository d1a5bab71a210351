// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/task"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

// tracker watches nodes and pods, and notes when it has observed what. It is the same for all subjects. It observes
// what any client would observe, so its times include the delay of an event in the API server.
type tracker struct {
	doneLabel string

	mu    sync.Mutex
	nodes map[string]*nodeTimes
	// pods are the existing pods.
	pods                           map[types.UID]bool
	created, ready, settled, ended int
	done                           int
}

// nodeTimes are indexed by the columns of the report.
type nodeTimes struct {
	at      [6]time.Time
	settled bool
}

func newTracker(doneLabel string) *tracker {
	return &tracker{doneLabel: doneLabel, nodes: map[string]*nodeTimes{}, pods: map[types.UID]bool{}}
}

// start returns when the watches are established.
func (t *tracker) start(ctx context.Context, client kubernetes.Interface) error {
	drop := func(o any) (any, error) { return slim(o), nil }
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(drop))
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.node(o.(*corev1.Node)) },
		UpdateFunc: func(_, o any) { t.node(o.(*corev1.Node)) },
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	tasks := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(drop), informers.WithNamespace(subject.Namespace))
	_, err = tasks.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.pod(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { t.pod(o.(*corev1.Pod)) },
		DeleteFunc: t.podGone,
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

// slim drops what the tracker does not read, to save memory of the machine.
func slim(o any) any {
	switch o := o.(type) {
	case *corev1.Node:
		o.ManagedFields, o.Annotations = nil, nil
		o.Status.NodeInfo, o.Status.Capacity, o.Status.Allocatable = corev1.NodeSystemInfo{}, nil, nil
	case *corev1.Pod:
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec = corev1.PodSpec{NodeName: NodeOf(o)}
	}
	return o
}

// joined notes that a node is about to be created.
func (t *tracker) joined(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(name).at[report.Joined] = time.Now()
}

func (t *tracker) of(name string) *nodeTimes {
	if t.nodes[name] == nil {
		t.nodes[name] = &nodeTimes{}
	}
	return t.nodes[name]
}

// first notes the time of the first observation.
func (n *nodeTimes) first(column int) bool {
	if !n.at[column].IsZero() {
		return false
	}
	n.at[column] = time.Now()
	return true
}

func (t *tracker) node(node *corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	times, known := t.nodes[node.Name]
	if !known {
		return // a pod that warms up the simulator
	}
	if task.NodeReady(node) && times.first(report.Ready) {
		t.ready++
	}
	if !times.settled && task.NodeReady(node) && untainted(node) {
		times.settled = true
		t.settled++
	}
	if node.Labels[t.doneLabel] != "" && times.first(report.Done) {
		t.done++
	}
}

func untainted(node *corev1.Node) bool {
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	return true
}

func (t *tracker) pod(pod *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.pods[pod.UID] {
		t.pods[pod.UID] = true
		t.created++
	}
	times, known := t.nodes[NodeOf(pod)]
	if !known {
		return
	}
	times.first(report.Created)
	switch pod.Status.Phase {
	case corev1.PodRunning:
		times.first(report.Running)
	case corev1.PodSucceeded, corev1.PodFailed:
		if times.first(report.Ended) {
			t.ended++
		}
	default:
	}
}

// NodeOf returns the node to which a pod is bound, or the only node to which it can be bound: a pod of a DaemonSet has
// its node in its affinity while it waits for the scheduler.
func NodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return pod.Spec.NodeName
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

func (t *tracker) podGone(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, pod.UID)
}

// counts returns what has been observed so far.
type counts struct{ created, ready, settled, ended, done, pods int }

func (t *tracker) counts() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return counts{t.created, t.ready, t.settled, t.ended, t.done, len(t.pods)}
}

// rows returns the times since the beginning, in milliseconds.
func (t *tracker) rows(begin time.Time) [][]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := make([][]float64, 0, len(t.nodes))
	for _, times := range t.nodes {
		row := report.NewNode()
		for column, at := range times.at {
			if !at.IsZero() {
				row[column] = math.Round(at.Sub(begin).Seconds()*1000) / 1000
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// until waits for an observation, and reports the progress at intervals. It gives up if nothing has changed for long.
func (w *world) until(ctx context.Context, s contender, what string, reached func(counts) bool) error {
	t, patience := w.tracker, w.patience()
	last, changed, said := t.counts(), time.Now(), time.Now()
	for !reached(last) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
		now := t.counts()
		if now != last {
			last, changed = now, time.Now()
		}
		if time.Since(changed) > patience {
			return fmt.Errorf("waiting until %s: nothing has happened for %v; nodes Ready %d, pods created %d, ended %d, still there %d, nodes done %d",
				what, patience, last.ready, last.created, last.ended, last.pods, last.done)
		}
		if time.Since(said) > progressEvery {
			said = time.Now()
			if err := w.alive(s); err != nil {
				return err
			}
			w.say("      nodes Ready %d, pods created %d, still there %d, nodes done %d", last.ready, last.created, last.pods, last.done)
		}
	}
	return nil
}

const progressEvery = 10 * time.Second
