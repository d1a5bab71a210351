// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
)

// allowNamespace sets the label of the world's namespace, or removes it.
func (w *world) allowNamespace(allowed bool) {
	w.t.Helper()
	value := "null"
	if allowed {
		value = `"` + v1alpha1.NodeJobsAllowed + `"`
	}
	must(w.t, admin.Patch(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}},
		mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.NodeJobsLabel, value))))
}

func TestANamespaceMustAllowNodeJobs(t *testing.T) {
	w := newWorld(t)
	w.allowNamespace(false)
	startManager(t, interceptor.Funcs{})
	w.node("denied-1")
	w.job("tenant", func(s *v1alpha1.NodeJobSpec) {
		s.Gate = &v1alpha1.GateSpec{Scope: v1alpha1.GateAll}
		s.Rollout.MaxConcurrent = percent("100%")
		s.Retry.Limit = new(int32(3))
	})
	c := w.condition("tenant", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNamespaceNotAllowed)
	wantText(t, c.Message, "kubectl label namespace "+w.namespace+" everynode.dev/nodejobs=allowed")
	w.noPods()
	w.has("denied-1") // no gate

	w.allowNamespace(true)
	pod := w.podOn("denied-1")
	w.has("denied-1", w.namespace+".everynode.dev/tenant=everynode:NoSchedule")
	w.node("denied-2")
	w.podOn("denied-2")

	w.allowNamespace(false)
	w.condition("tenant", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNamespaceNotAllowed)
	w.end(pod, 0, "")
	w.done("tenant", "denied-1") // what runs is recorded, and its gate opens
	w.has("denied-1")
	w.node("denied-3")
	w.end(w.podOn("denied-2"), 1, "") // and is not retried
	w.eventually("the failure is recorded, and its pod is gone", func() error {
		if on := w.recordOn("tenant", "denied-2"); on.Record == nil {
			return errors.New("there is no record")
		}
		if pods := w.pods(); len(pods) > 0 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		return nil
	})
	must(t, admin.Delete(w.ctx, w.live("tenant")))
	w.eventually("the NodeJob is deleted, and has left nothing", func() error {
		if err := admin.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "tenant"}, &v1alpha1.NodeJob{}); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it is there: %w", err)
		}
		if on := w.recordOn("tenant", "denied-1"); on.Present {
			return errors.New("there is a record")
		}
		return nil
	})
	w.has("denied-2")
	w.has("denied-3")
}

func TestANamespaceMustAllowNodeGuards(t *testing.T) {
	g := newGuarded(t, "denied-guard")
	g.allowNamespace(false)
	startGuards(t, interceptor.Funcs{})
	g.guard(nil)
	g.eventually("the status says so", func() error {
		c := meta.FindStatusCondition(g.live().Status.Conditions, v1alpha1.ConditionStalled)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNamespaceNotAllowed {
			return fmt.Errorf("the conditions are %+v", g.live().Status.Conditions)
		}
		wantText(t, c.Message, "kubectl label namespace "+g.namespace+" everynode.dev/nodejobs=allowed")
		return nil
	})
	var budgets policyv1.PodDisruptionBudgetList
	must(t, admin.List(g.ctx, &budgets, client.InNamespace(g.namespace)))
	if pod := g.companion("denied-guard"); pod != nil || len(budgets.Items) > 0 {
		t.Errorf("it has made a companion, %v, or %d budgets", pod, len(budgets.Items))
	}
	g.allowNamespace(true)
	g.ready(1)
}
