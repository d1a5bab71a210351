// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/everynode/everynode/api/v1alpha1"
)

// withoutNodes is a cache whose watch of nodes hangs: it lists none, and shows everything else.
var withoutNodes = interceptor.Funcs{
	List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*corev1.NodeList); ok {
			return nil
		}
		return c.List(ctx, list, opts...)
	},
}

// A new leader may start with a cache that lacks nodes on which the last leader has started tasks. Their pods are
// not orphans: a running task must not be deleted, and the end of one that has ended must be recorded.
func TestPodsOfUncachedNodesAreNotOrphans(t *testing.T) {
	ended := func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{
			Phase:             corev1.PodSucceeded,
			ContainerStatuses: []corev1.ContainerStatus{terminated("task", 0, "Completed", `{"exitCode":0}`)},
		}
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		// exists is true if the API server has the node, and goes if the node is deleted after the first pass.
		exists, goes bool
		// want is whether the pod still has our finalizer, wantRecord whether its end is on its node.
		want, wantRecord bool
	}{
		"a running task":                                 {change: func(*corev1.Pod) {}, exists: true, want: true},
		"an ended task":                                  {change: ended, exists: true, wantRecord: true},
		"a running task of a deleted node":               {change: func(*corev1.Pod) {}},
		"an ended task of a deleted node":                {change: ended},
		"a running task of a node that is deleted later": {change: func(*corev1.Pod) {}, exists: true, goes: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := liveJob()
			node := watchedNode()
			node.ResourceVersion, node.Labels, node.Annotations = "", nil, nil
			pod := livePod(tt.change, func(p *corev1.Pod) { p.ResourceVersion = "" })
			objects := []client.Object{job, pod}
			if tt.exists {
				objects = append(objects, node)
			}
			live := newReconciler(t, objects...)
			r := newFaultyReconciler(t, withoutNodes, objects...)
			r.Reader = live.Client
			now := noon
			r.Now = func() time.Time { return now }
			pass := func() {
				t.Helper()
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)}); err != nil {
					t.Fatal(err)
				}
			}
			pass()
			if tt.goes {
				live.delete(node)
				now = now.Add(doubtAfter + time.Second)
				pass()
			}
			var left corev1.Pod
			err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), &left)
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if got := !apierrors.IsNotFound(err) && controllerutil.ContainsFinalizer(&left, v1alpha1.PodFinalizer); got != tt.want {
				t.Errorf("the pod is still held: %v, want %v", got, tt.want)
			}
			if tt.exists {
				if got := r.node("n").Annotations["ns.everynode.dev/job"] != ""; got != tt.wantRecord {
					t.Errorf("its end is on record: %v, want %v", got, tt.wantRecord)
				}
			}
		})
	}
}

// In a large cluster, the nodes use a large part of the manager's memory.
func TestANewLeaderRemembersOnlyNodesThatItsCacheDoesNotShow(t *testing.T) {
	tests := map[string]struct {
		cached, live string // resource versions; "" for no such node
		want         bool
	}{
		"the cache has caught up":        {cached: "10", live: "10"},
		"the cache is ahead of the list": {cached: "11", live: "10"},
		"the cache is behind":            {cached: "9", live: "10", want: true},
		"the node is not in the cache":   {live: "10", want: true},
		"the node is deleted":            {cached: "10"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			listed := func(version string) interceptor.Funcs {
				return interceptor.Funcs{
					List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
						if nodes, ok := list.(*corev1.NodeList); ok && version != "" {
							nodes.Items = []corev1.Node{*nodeAt(version)}
						}
						return nil
					},
				}
			}
			r := newFaultyReconciler(t, listed(tt.cached))
			r.Reader = newFaultyReconciler(t, listed(tt.live)).Client
			if err := r.warmUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, got := r.written.nodes["n"]; got != tt.want {
				t.Errorf("it is remembered: %v, want %v", got, tt.want)
			}
		})
	}
}
