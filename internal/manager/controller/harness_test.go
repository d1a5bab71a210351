// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// fakeReconciler works on objects in memory. Its cache is never behind.
type fakeReconciler struct {
	*Reconciler
	t    *testing.T
	told *recorder
}

func newReconciler(t *testing.T, objects ...client.Object) *fakeReconciler {
	t.Helper()
	return newFaultyReconciler(t, interceptor.Funcs{}, objects...)
}

// newFaultyReconciler returns a reconciler whose requests go through faults.
func newFaultyReconciler(t *testing.T, faults interceptor.Funcs, objects ...client.Object) *fakeReconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})...).
		WithStatusSubresource(&v1alpha1.NodeJob{}).
		WithIndex(&corev1.Pod{}, nodeNameField, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(faults).
		Build()
	told := &recorder{}
	r := New(c, c, told, NewMetrics(prometheus.NewRegistry()), task.Options{RunnerImage: "registry.example/runner"})
	r.Now = func() time.Time { return noon }
	return &fakeReconciler{Reconciler: r, t: t, told: told}
}

func (r *fakeReconciler) create(o client.Object) {
	r.t.Helper()
	if err := r.Client.Create(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
}

func (r *fakeReconciler) delete(o client.Object) {
	r.t.Helper()
	if err := r.Client.Delete(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
}

func (r *fakeReconciler) node(name string) *corev1.Node {
	r.t.Helper()
	var node corev1.Node
	if err := r.Client.Get(r.t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
		r.t.Fatal(err)
	}
	return &node
}

// recorder keeps the events that were sent, each as one line.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Eventf(regarding, _ runtime.Object, kind, reason, action, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	on := fmt.Sprintf("%T", regarding)
	switch regarding.(type) {
	case *v1alpha1.NodeJob:
		on = "NodeJob"
	case *corev1.Node:
		on = "Node"
	}
	r.lines = append(r.lines, fmt.Sprintf("%s %s %s on the %s: %s", kind, reason, action, on, fmt.Sprintf(note, args...)))
}

func (r *recorder) events() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines
}

// liveJob returns a NodeJob as it is stored in the API, with our finalizer.
func liveJob(changes ...func(*v1alpha1.NodeJob)) *v1alpha1.NodeJob {
	job := &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "job", UID: "job-uid", Generation: 1, CreationTimestamp: at(0),
			Finalizers: []string{v1alpha1.NodeJobFinalizer},
		},
		Spec: v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}},
	}
	for _, change := range changes {
		change(job)
	}
	return job
}
