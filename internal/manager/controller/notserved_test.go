// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
)

// In a namespace that is not allowed, any user can create NodeJobs. Each costs one write of its status, and nothing more.
func TestNodeJobThatWasNeverServedCostsNothing(t *testing.T) {
	served := func(job *v1alpha1.NodeJob) { job.Status.Revision = "r1" }
	fresh := func(job *v1alpha1.NodeJob) { job.Finalizers = nil }
	for name, tt := range map[string]struct {
		allowed   bool
		job       *v1alpha1.NodeJob
		wantReads bool
	}{
		"not allowed, and never served": {false, liveJob(fresh), false},
		"with a finalizer of a user":    {false, liveJob(), false},
		"not allowed any more":          {false, liveJob(served), true},
		"allowed":                       {true, liveJob(), true},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			r := newFaultyReconciler(
				t,
				interceptor.Funcs{
					List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
						if _, nodes := list.(*corev1.NodeList); nodes {
							reads++
						}
						return c.List(ctx, list, opts...)
					},
				},
				tt.job,
			)
			registry := prometheus.NewRegistry()
			r.Metrics = NewMetrics(registry)
			r.RequireNamespaceLabel = !tt.allowed
			r.isWarm.Store(true)
			for range 2 {
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tt.job)}); err != nil {
					t.Fatal(err)
				}
			}
			if (reads > 0) != tt.wantReads {
				t.Errorf("the nodes are listed %d times", reads)
			}
			if tt.wantReads {
				return
			}
			job := &v1alpha1.NodeJob{}
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(tt.job), job); err != nil {
				t.Fatal(err)
			}
			c := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionStalled)
			if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNamespaceNotAllowed ||
				len(job.Finalizers) != len(tt.job.Finalizers) {
				t.Errorf("the conditions are %+v, the finalizers %v", job.Status.Conditions, job.Finalizers)
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				for _, metric := range family.GetMetric() {
					for _, label := range metric.GetLabel() {
						if label.GetName() == "nodejob" {
							t.Errorf("it has the metric %s", family.GetName())
						}
					}
				}
			}
		})
	}
}
