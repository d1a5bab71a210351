// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package joins

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/bench/report"
)

// log notes the resource versions, which are in one order for all objects, at which nodes were done and pods were bound.
type log struct {
	variant *variant

	mu    sync.Mutex
	nodes map[string]*nodeLog
}

type nodeLog struct {
	// seen and closed are when the node, and its gate's taint, were observed first.
	seen, closed time.Time
	// done is the version of the node with the label of a success; 0 while it has none.
	done uint64
	// open is true if the node had no taint before it was done.
	open bool
	// bound are the versions of the first pod of each kind on the node.
	bound map[string]uint64
}

// follow starts to watch the nodes and pods of a variant, and returns when the watches are established.
func (r *run) follow(ctx context.Context, v *variant) (*log, error) {
	l := &log{variant: v, nodes: map[string]*nodeLog{}}
	onlyPool := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = poolLabel + "=" + v.name })
	nodes := informers.NewSharedInformerFactoryWithOptions(r.client, 0, onlyPool)
	pods := informers.NewSharedInformerFactoryWithOptions(r.client, 0, informers.WithNamespace(namespaceOf(v)))
	see := func(o any) {
		node := o.(*corev1.Node)
		l.node(node)
		if v.controller {
			go r.addStartupTaint(ctx, node)
		}
	}
	_, err := nodes.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, o any) { see(o) },
	})
	if err == nil {
		_, err = pods.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { l.pod(o.(*corev1.Pod)) }, UpdateFunc: func(_, o any) { l.pod(o.(*corev1.Pod)) },
		})
	}
	if err != nil {
		return nil, fmt.Errorf("watching nodes and pods: %w", err)
	}
	for _, factory := range []informers.SharedInformerFactory{nodes, pods} {
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
	}
	return l, ctx.Err()
}

func (l *log) of(name string) *nodeLog {
	if l.nodes[name] == nil {
		l.nodes[name] = &nodeLog{bound: map[string]uint64{}}
	}
	return l.nodes[name]
}

func (l *log) node(node *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, now := l.of(node.Name), time.Now()
	if n.seen.IsZero() {
		n.seen = now
	}
	if n.closed.IsZero() && isClosed(node, l.variant) {
		n.closed = now
	}
	switch {
	case n.done > 0:
	case node.Labels[v1alpha1.RecordKey(namespaceOf(l.variant), jobName)] != "":
		n.done = version(node)
	case !slices.ContainsFunc(node.Spec.Taints, keepsOff):
		n.open = true
	}
}

func (l *log) pod(pod *corev1.Pod) {
	kind := pod.Labels["app"]
	if pod.Spec.NodeName == "" || (kind != plainPods && kind != tolerantPods) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.of(pod.Spec.NodeName)
	if _, known := n.bound[kind]; !known {
		n.bound[kind] = version(pod)
	}
}

// missing returns an error until this number of nodes is done and has its pods.
func (l *log) missing(nodes int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	complete := 0
	for _, n := range l.nodes {
		if n.complete() {
			complete++
		}
	}
	if complete < nodes {
		return fmt.Errorf("%d of %d nodes are", complete, nodes)
	}
	return nil
}

func (l *log) missingOn(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.of(name); !n.complete() {
		return fmt.Errorf("done: %t, pods: %d", n.done > 0, len(n.bound))
	}
	return nil
}

func (n *nodeLog) complete() bool { return n.done > 0 && len(n.bound) == 2 }

func (l *log) result(name, description string) *report.JoinVariant {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &report.JoinVariant{Name: name, Description: description, Joins: len(l.nodes)}
	for _, n := range l.nodes {
		if n.open {
			m.Open++
		}
		if n.bound[plainPods] < n.done {
			m.Plain++
		}
		if n.bound[tolerantPods] < n.done {
			m.Tolerant++
		}
		if !n.closed.IsZero() {
			m.ClosedAfter = append(m.ClosedAfter, n.closed.Sub(n.seen).Seconds())
		}
	}
	slices.Sort(m.ClosedAfter)
	return m
}

// addStartupTaint does what Karpenter does with a node that has registered: in one write, it adds the startup taints of the
// node pool, and removes its own taint.
func (r *run) addStartupTaint(ctx context.Context, node *corev1.Node) {
	for isUnregistered(node) {
		_, err := r.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, registration(node), metav1.PatchOptions{})
		if apierrors.IsConflict(err) {
			node, err = r.client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		} else if err == nil {
			return
		}
		if err != nil {
			if ctx.Err() == nil && !apierrors.IsNotFound(err) {
				r.say("adding the startup taint: %v", err)
			}
			return
		}
	}
}

func isUnregistered(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == unregistered.Key })
}

// registration is the patch that registers a node.
func registration(node *corev1.Node) []byte {
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == unregistered.Key || t.Key == startupTaint.Key
	})
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": append(taints, startupTaint)},
	})
	if err != nil {
		panic(err) // taints and strings always marshal
	}
	return patch
}

// isClosed reports whether the node has the taint of the variant's gate.
func isClosed(node *corev1.Node, v *variant) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == gateKey(v) })
}

func keepsOff(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }

// version is the resource version of an object; 0 if it is not a number.
func version(o metav1.Object) uint64 {
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}
