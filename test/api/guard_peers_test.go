// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
)

// emptied evicts all companions of a node, as a drain does.
func (g *guarded) emptied(node string) {
	g.T.Helper()
	g.Eventually("all companions of "+node+" have gone", func() error {
		if g.companion(node) == nil {
			return nil
		}
		err := g.evict(node)
		return errors.Join(errors.New("there is one"), err)
	})
}

func (g *guarded) stalled(reason string) *metav1.Condition {
	g.T.Helper()
	var found *metav1.Condition
	g.Eventually("the NodeGuard is stalled: "+reason, func() error {
		found = meta.FindStatusCondition(g.live().Status.Conditions, v1alpha1.ConditionStalled)
		if found == nil || found.Status != metav1.ConditionTrue || found.Reason != reason {
			return fmt.Errorf("the condition is %+v", found)
		}
		return nil
	})
	return found
}

// TestTwoNodeGuardsWithOneUnhealthyTarget checks that the drain of a healthy node does not prevent the drain and repair
// of an unhealthy one.
func TestTwoNodeGuardsWithOneUnhealthyTarget(t *testing.T) {
	g := newGuarded(t, "unhealthy-1", "unhealthy-2", "unhealthy-3")
	other := g.daemonSet("other")
	for _, node := range []string{"unhealthy-1", "unhealthy-2", "unhealthy-3"} {
		g.targetOf(other, node)
	}
	g.Eventually("the pod of the other target runs", func() error { return g.setReady("other-unhealthy-3", corev1.ConditionFalse) })
	startGuards(t, noFaults)
	g.guard(nil)
	second := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "other"}}
	second.Spec.Target.DaemonSet = "other"
	must(t, admin.Create(g.Ctx, second))
	g.ready(3)
	g.Eventually("the other NodeGuard observes the unhealthy nodes", func() error {
		must(t, admin.Get(g.Ctx, client.ObjectKeyFromObject(second), second))
		if n := second.Status.Nodes; n.Ready != 3 || n.Unavailable != 1 {
			return fmt.Errorf("the status is %+v", second.Status)
		}
		return nil
	})
	g.cordon("unhealthy-1", true)
	held := g.held("unhealthy-1", v1alpha1.ReasonHeldByOtherGuard)
	wantText(t, held.Message, "NodeGuard "+g.Namespace+"/other holds it", "unhealthy-3 (no ready pod of the target)")
	g.cordon("unhealthy-3", true)
	g.emptied("unhealthy-3")
	if g.companion("unhealthy-1") == nil {
		t.Error("a node was released while another one was unavailable")
	}
	must(t, g.setReady("other-unhealthy-3", corev1.ConditionTrue))
	g.cordon("unhealthy-3", false)
	g.emptied("unhealthy-1")
	g.cordon("unhealthy-1", false)
	g.ready(3)
}

func (g *guarded) setReady(pod string, ready corev1.ConditionStatus) error {
	var live corev1.Pod
	must(g.T, admin.Get(g.Ctx, client.ObjectKey{Namespace: g.Namespace, Name: pod}, &live))
	if live.Status.Phase != corev1.PodRunning {
		return errors.New("it does not run yet")
	}
	live.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return admin.Status().Update(g.Ctx, &live)
}

// TestABudgetThatTheAPIServerForbidsIsTold : without it nothing holds a node.
func TestABudgetThatTheAPIServerForbidsIsTold(t *testing.T) {
	g := newGuarded(t, "forbidden-1")
	var forbidden atomic.Bool
	forbidden.Store(true)
	startGuards(
		t,
		interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, is := o.(*policyv1.PodDisruptionBudget); is && forbidden.Load() {
				return apierrors.NewForbidden(
					schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"},
					o.GetName(),
					errors.New("exceeded quota: none"),
				)
			}
			return c.Create(ctx, o, opts...)
		}},
	)
	g.guard(nil)
	wantText(t, g.stalled(v1alpha1.ReasonBudgetForbidden).Message, "exceeded quota: none", "nothing holds a node")
	forbidden.Store(false)
	g.ready(1)
	g.Eventually("it is no longer reported", func() error {
		if c := meta.FindStatusCondition(
			g.live().Status.Conditions,
			v1alpha1.ConditionReady,
		); c == nil ||
			c.Status != metav1.ConditionTrue {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
}

// TestATargetThatADrainEvictsItself covers target pods without a DaemonSet, which a drain evicts even if a companion is
// held.
func TestATargetThatADrainEvictsItself(t *testing.T) {
	g := newGuarded(t, "evicted-1")
	must(t, admin.Create(g.Ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "mine", Labels: map[string]string{"app": "storage"}},
		Spec:       corev1.PodSpec{NodeName: "evicted-1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}))
	startGuards(t, noFaults)
	g.guard(func(s *v1alpha1.NodeGuardSpec) {
		s.Target = v1alpha1.GuardTarget{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "storage"}}}
	})
	wantText(t, g.stalled(v1alpha1.ReasonTargetNotDaemonSet).Message, "(no owner)")
	must(
		t,
		admin.Delete(g.Ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "mine"}}, client.GracePeriodSeconds(0)),
	)
	g.Eventually("all pods of the target are of a DaemonSet", func() error {
		if c := meta.FindStatusCondition(
			g.live().Status.Conditions,
			v1alpha1.ConditionReady,
		); c == nil ||
			c.Status != metav1.ConditionTrue {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
}
