// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// counted counts the writes by their kind.
func counted(writes *[]string) interceptor.Funcs {
	var mu sync.Mutex
	add := func(verb string, o client.Object) {
		mu.Lock()
		defer mu.Unlock()
		*writes = append(*writes, fmt.Sprintf("%s %T", verb, o))
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			add("create", o)
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			add("patch", o)
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			add("delete", o)
			return c.Delete(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			add(sub, o)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}
}

// A complete NodeJob causes no load, regardless of its spec: nothing is written, and it has a pass only when it is
// due.
func TestADoneNodeJobIsAtRest(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.NodeJob)
		// due is true for a NodeJob that has a pass when its interval has passed.
		due bool
	}{
		"nothing":              {change: func(*v1alpha1.NodeJob) {}},
		"a gate":               {change: gated},
		"a gate for all nodes": {change: func(j *v1alpha1.NodeJob) { j.Spec.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateAll} }},
		"a gate after reboots": {change: func(j *v1alpha1.NodeJob) {
			j.Spec.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateJoiningAndRebooted}
			j.Spec.Rerun.OnReboot = true
		}},
		"published results": {change: func(j *v1alpha1.NodeJob) {
			j.Spec.Publish = []v1alpha1.PublishedResult{
				{Result: "kernel", Label: "x.example/kernel"},
				{Result: "none", Annotation: "x.example/none"},
			}
		}},
		"labels to remove": {change: func(j *v1alpha1.NodeJob) { j.Spec.RemoveLabels = []string{"pool"} }},
		"maintenance": {change: func(j *v1alpha1.NodeJob) {
			j.Spec.Maintenance = v1alpha1.MaintenanceSpec{
				Drain:  &v1alpha1.DrainSpec{},
				Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested},
			}
		}},
		"an interval": {change: func(j *v1alpha1.NodeJob) { j.Spec.Rerun.PeriodSeconds = 3600 }, due: true},
		"ConfigMaps and Secrets": {change: func(j *v1alpha1.NodeJob) {
			rerunsOnChange(v1alpha1.ContentSecret, "x")(j)
			rerunsOnChange(v1alpha1.ContentConfigMap, "x")(j)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var writes []string
			job := liveJob(tt.change)
			node := tainted()
			delete(node.Labels, "ns.everynode.dev/job")
			delete(node.Annotations, "ns.everynode.dev/job")
			r := newFaultyReconciler(t, counted(&writes), job, node, secret("1", "a"), configMap("1", "a"))
			now := noon
			r.Now = func() time.Time { return now }
			pass := func() time.Duration {
				t.Helper()
				now = now.Add(2 * time.Second)
				result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
				if err != nil {
					t.Fatal(err)
				}
				return result.RequeueAfter
			}
			for range 4 { // a drain takes more than one
				pass()
			}
			r.endAll(`{"exitCode":0,"results":{"kernel":"6.1"}}`, now)
			for range 4 {
				pass()
			}
			if got := r.node("n").Labels["ns.everynode.dev/job"]; got == "" {
				t.Fatalf("it is not done: %q after %q", got, writes)
			}
			before := len(writes)
			for range 5 {
				after := pass()
				if (after > 0) != tt.due || (tt.due && (after < 1000*time.Second || after > 2*time.Hour)) {
					t.Errorf("its next pass is after %v", after)
				}
			}
			if len(writes) > before {
				t.Errorf("at rest it writes %q", writes[before:])
			}
		})
	}
}

// endAll plays the kubelet: all running pods succeed.
func (r *fakeReconciler) endAll(message string, now time.Time) {
	r.t.Helper()
	var pods corev1.PodList
	if err := r.Client.List(r.t.Context(), &pods); err != nil || len(pods.Items) == 0 {
		r.t.Fatalf("%d pods run (%v)", len(pods.Items), err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		pod.Status.Phase = corev1.PodSucceeded
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{
				Message:    message,
				StartedAt:  at(0),
				FinishedAt: at(int(now.Sub(noon) / time.Second)),
			},
		}}}
		if err := r.Client.Status().Update(r.t.Context(), pod); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Nodes are shared with the cache, not copied: a NodeJob may only change them by a write.
func TestNothingInTheCacheIsChanged(t *testing.T) {
	key := "ns.everynode.dev/job"
	changes := map[string]func(*v1alpha1.NodeJob){
		"a gate to be closed": func(j *v1alpha1.NodeJob) { j.Spec.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateAll} },
		"a gate to be opened": func(j *v1alpha1.NodeJob) { j.Spec.Gate = &v1alpha1.GateSpec{Key: "a"} },
		"published results": func(j *v1alpha1.NodeJob) {
			j.Spec.Publish = []v1alpha1.PublishedResult{
				{Result: "kernel", Label: "x.example/kernel"},
				{Result: "kernel", Annotation: "x.example/kernel"},
			}
		},
		"labels":    func(j *v1alpha1.NodeJob) { j.Spec.RemoveLabels = []string{"pool"} },
		"a cordon":  func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Cordon = true },
		"deletion":  func(j *v1alpha1.NodeJob) { deleting(j); gated(j) },
		"two peers": func(j *v1alpha1.NodeJob) { gatedBy("a")(j); needs("other")(j) },
	}
	states := map[string]func(*corev1.Node, string){
		"new": func(*corev1.Node, string) {},
		"done": func(n *corev1.Node, revision string) {
			n.Labels[key] = revision
			record.SetOn(n, key, record.Record{Revision: revision, Outcome: record.Succeeded, Attempts: 1, FinishedAt: noon,
				Results: map[string]string{"kernel": "6.1"}, PodUID: "gone", BootID: "boot", MachineID: "machine"})
		},
		"full": func(n *corev1.Node, _ string) {
			n.Annotations[v1alpha1.CordonedAnnotation] = key + ",ns.everynode.dev/other"
			n.Annotations[v1alpha1.PublishedAnnotation] = `{"labels":{"pool":"` + key + `"},"annotations":{"somebodys":"` + key + `"}}`
			n.Spec.Unschedulable = true
			// With spare capacity, which an append would use.
			n.Spec.Taints = append(
				make([]corev1.Taint, 0, 8),
				gateTaint(key),
				gateTaint("a"),
				corev1.Taint{Key: "b", Effect: corev1.TaintEffectNoSchedule},
			)
		},
	}
	for what, change := range changes {
		for state, make := range states {
			t.Run(what+" on a node that is "+state, func(t *testing.T) {
				job := liveJob(change)
				probe, err := newReconciler(t, liveJob(change)).observe(t.Context(), job, nil)
				if err != nil {
					t.Fatal(err)
				}
				node := watchedNode()
				make(node, probe.input.Revision)
				var shared []*corev1.Node
				r := newFaultyReconciler(
					t,
					interceptor.Funcs{
						List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
							err := c.List(ctx, l, opts...)
							if nodes, ok := l.(*corev1.NodeList); ok {
								for i := range nodes.Items {
									shared = append(shared, &nodes.Items[i])
								}
							}
							return err
						},
					},
					job,
					node,
					called("other", gatedBy("a"), at1("rev")),
				)
				seen, err := r.observe(t.Context(), job, nil)
				if err != nil {
					t.Fatal(err)
				}
				var before []*corev1.Node
				for _, n := range shared {
					before = append(before, n.DeepCopy())
				}
				p := plan.Next(seen.input)
				if _, err := r.apply(t.Context(), seen, p); err != nil {
					t.Fatal(err)
				}
				for i := range before {
					before[i].Spec.Taints = slices.Clip(before[i].Spec.Taints)
					if diff := cmp.Diff(before[i], shared[i]); diff != "" {
						t.Errorf("the node has changed in the cache (-before +after):\n%s", diff)
					}
					rest := shared[i].Spec.Taints
					if spare := rest[len(rest):cap(rest)]; slices.ContainsFunc(spare, func(t corev1.Taint) bool { return t.Key != "" }) {
						t.Errorf("an append wrote into the spare capacity of the taints: %v", spare)
					}
				}
			})
		}
	}
}
