// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

// tracker watches nodes and pods, and notes when it has observed what. It is the same for all subjects. It observes
// what any client would observe, so its times include the delay of an event in the API server.
type tracker struct {
	mu sync.Mutex
	// doneLabel is on a node that is done.
	doneLabel string
	// nodes are those of the run. Others are not observed, such as the one that warms up the simulator.
	nodes map[string]*nodeTimes
	// pods are the existing pods.
	pods map[types.UID]bool
	// seen are the numbers of nodes and pods so far, without those of pods.
	seen counts
}

// counts are how much has been observed. settled nodes are Ready and have no taint, and pods are those that exist.
type counts struct{ settled, ended, done, pods int }

func (c counts) String() string {
	return fmt.Sprintf("nodes Ready %d, pods ended %d, still there %d, nodes done %d", c.settled, c.ended, c.pods, c.done)
}

// nodeTimes are indexed by the observations of the report.
type nodeTimes struct {
	at      [report.Observations]time.Time
	settled bool
}

func newTracker(doneLabel string) *tracker {
	return &tracker{doneLabel: doneLabel, nodes: map[string]*nodeTimes{}, pods: map[types.UID]bool{}}
}

// reset begins a run on nodes that exist and are Ready.
func (t *tracker) reset(doneLabel string, nodes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doneLabel, t.nodes, t.seen = doneLabel, map[string]*nodeTimes{}, counts{}
	for _, name := range nodes {
		t.nodes[name] = &nodeTimes{}
		t.nodes[name].first(report.Joined)
		t.nodes[name].first(report.Ready)
	}
}

// start returns when the watches are established.
func (t *tracker) start(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(subject.Namespace), informers.WithTransform(ctrlcache.TransformStripManagedFields()))
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.node(o.(*corev1.Node)) },
		UpdateFunc: func(_, o any) { t.node(o.(*corev1.Node)) },
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.pod(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { t.pod(o.(*corev1.Pod)) },
		DeleteFunc: t.podGone,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return ctx.Err()
}

// joined notes that a node is about to be created.
func (t *tracker) joined(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes[name] = &nodeTimes{}
	t.nodes[name].first(report.Joined)
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
		return
	}
	if kube.NodeReady(node) {
		times.first(report.Ready)
		if !times.settled && !hasTaint(node, corev1.TaintNodeNotReady) {
			times.settled = true
			t.seen.settled++
		}
	}
	if node.Labels[t.doneLabel] != "" && times.first(report.Done) {
		t.seen.done++
	}
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
}

func (t *tracker) pod(pod *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods[pod.UID] = true
	times, known := t.nodes[nodeOf(pod)]
	if !known {
		return
	}
	times.first(report.Created)
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.State.Running != nil {
			times.first(report.Running)
		}
		// A container of the DaemonSet pattern is started again after it has ended. If a pod is deleted, its container may end
		// without the end of its task.
		ended := status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
		if ended && pod.DeletionTimestamp == nil && times.first(report.Ended) {
			t.seen.ended++
		}
	}
}

// nodeOf returns the node to which a pod is bound, or the only node to which it can be bound: a pod of a DaemonSet has
// its node in its affinity while it waits for the scheduler.
func nodeOf(pod *corev1.Pod) string {
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
	pod := o.(*corev1.Pod)
	t.pod(pod) // its last state
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, pod.UID)
	if times, known := t.nodes[nodeOf(pod)]; known {
		times.first(report.Gone)
	}
}

// ended returns when the end of the pod of a node was observed.
func (t *tracker) ended(node string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nodes[node].at[report.Ended]
}

// counts returns what has been observed so far.
func (t *tracker) counts() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.seen
	now.pods = len(t.pods)
	return now
}

// rows returns the seconds since the beginning.
func (t *tracker) rows(begin time.Time) []report.Seconds {
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := make([]report.Seconds, 0, len(t.nodes))
	for _, times := range t.nodes {
		var row report.Seconds
		for column, at := range times.at {
			if !at.IsZero() {
				row[column] = at.Sub(begin).Seconds()
			}
		}
		rows = append(rows, row)
	}
	return rows
}
