// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// One of the conditions is True, and its message names what is missing.
func TestConditions(t *testing.T) {
	without := func(in *Input) { in.Budgets = in.Budgets[1:] }
	byPods := func(kinds ...string) func(*Input) {
		return func(in *Input) {
			in.Target.Template = nil
			for i := range in.Target.Pods {
				in.Target.Pods[i].OwnerKind = kinds[i%len(kinds)]
			}
		}
	}
	tests := map[string]struct {
		in                 Input
		kind, reason, says string
	}{
		"everything is ready": {scene(), v1alpha1.ConditionReady, v1alpha1.ReasonCompanionsReady, "each guarded node"},
		"a node is released": {scene(cordoned(0), going(0, false), func(in *Input) { in.Companions = in.Companions[1:] }),
			v1alpha1.ConditionReady, v1alpha1.ReasonCompanionsReady, "2 of 3 guarded nodes have a ready companion"},
		"a companion is not ready": {scene(func(in *Input) { in.Companions[1].Ready = false }), v1alpha1.ConditionReconciling, v1alpha1.ReasonCompanionsNotReady, "n2"},
		"a companion waits":        {scene(func(in *Input) { in.Companions[1].Ready, in.Companions[1].Waiting = false, "ErrImagePull" }), v1alpha1.ConditionReconciling, v1alpha1.ReasonCompanionsNotReady, "n2 (ErrImagePull)"},
		"a budget is missing":      {scene(without), v1alpha1.ConditionReconciling, v1alpha1.ReasonCompanionsNotReady, "n1 (no PodDisruptionBudget)"},
		"the budget of a held node is missing": {scene(without, func(in *Input) { in.Nodes[0].Unschedulable, in.Nodes[2].Ready = true, false }),
			v1alpha1.ConditionReconciling, v1alpha1.ReasonCompanionsNotReady, "n1 (no PodDisruptionBudget)"},
		"the budget of a node that is not Ready is missing": {scene(without, func(in *Input) { in.Nodes[0].Ready = false }),
			v1alpha1.ConditionReconciling, v1alpha1.ReasonCompanionsNotReady, "n1 (no PodDisruptionBudget)"},
		"a budget is rejected":                           {scene(without, func(in *Input) { in.BudgetRefused = "the API server refuses it: quota" }), v1alpha1.ConditionStalled, v1alpha1.ReasonBudgetForbidden, "quota"},
		"a budget was rejected, and all exist":           {scene(func(in *Input) { in.BudgetRefused = "quota" }), v1alpha1.ConditionReady, v1alpha1.ReasonCompanionsReady, ""},
		"the target is owned by a Deployment":            {scene(byPods("ReplicaSet")), v1alpha1.ConditionStalled, v1alpha1.ReasonTargetNotDaemonSet, "(ReplicaSet)"},
		"the target has several owners":                  {scene(byPods("DaemonSet", "StatefulSet", "")), v1alpha1.ConditionStalled, v1alpha1.ReasonTargetNotDaemonSet, "(StatefulSet, no owner)"},
		"the target is owned by a DaemonSet, and static": {scene(byPods("DaemonSet", "Node")), v1alpha1.ConditionReady, v1alpha1.ReasonCompanionsReady, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			conditions := Next(tt.in).Status.Conditions
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				c := meta.FindStatusCondition(conditions, kind)
				if c == nil || (c.Status == metav1.ConditionTrue) != (kind == tt.kind) || c.Reason != tt.reason || !strings.Contains(c.Message, tt.says) {
					t.Errorf("%s is %+v, want %s True (%s: %s)", kind, c, tt.kind, tt.reason, tt.says)
				}
			}
		})
	}
}

func TestOwnerOfTargetPod(t *testing.T) {
	yes := true
	pod := func(kind string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Controller: &yes}}}}
	}
	for want, p := range map[string]*corev1.Pod{"ReplicaSet": pod("ReplicaSet"), "DaemonSet": pod("DaemonSet"), "": {}} {
		if view, is := ViewTarget(p); !is || view.OwnerKind != want {
			t.Errorf("the owner is %q, want %q", view.OwnerKind, want)
		}
	}
}
