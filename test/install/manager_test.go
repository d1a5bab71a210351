// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// TestWhatHoldsDrainsDoesNotHoldTheManager : drains that wait for seats and companions also evict the manager, and wait for the next one.
func TestWhatHoldsDrainsDoesNotHoldTheManager(t *testing.T) {
	content, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var manager appsv1.Deployment
	if err := yaml.UnmarshalStrict(content, &manager); err != nil {
		t.Fatal(err)
	}
	pod := &manager.Spec.Template
	if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == corev1.TaintNodeUnschedulable && t.Operator == corev1.TolerationOpExists && t.Effect == corev1.TaintEffectNoSchedule
	}) {
		t.Errorf("the manager does not start on a cordoned node: %+v", pod.Spec.Tolerations)
	}
	seats, companions := &policyv1.PodDisruptionBudget{}, &policyv1.PodDisruptionBudget{}
	budget.WriteFloor(seats, budget.FloorState{Group: "group"})
	guard.WriteBudget(companions, "guard", guard.BudgetState{})
	for what, b := range map[string]*policyv1.PodDisruptionBudget{"seats": seats, "companions": companions} {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		requires, _ := selector.Requirements()
		if len(requires) == 0 {
			t.Errorf("the PodDisruptionBudgets of %s select all pods", what)
		}
		for _, r := range requires {
			if labels.Set(pod.Labels).Has(r.Key()) {
				t.Errorf("the PodDisruptionBudgets of %s may select the manager by its label %s", what, r.Key())
			}
		}
	}
}
