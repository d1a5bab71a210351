// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestASeatToleratesTheTaintsOfItsNode : by key, except those that do not last.
func TestASeatToleratesTheTaintsOfItsNode(t *testing.T) {
	const no, prefer, evict = corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute
	taint := func(key string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: "v", Effect: effect}
	}
	var many []corev1.Taint
	for i := range 20 {
		many = append(many, taint(fmt.Sprintf("t%02d", 19-i), no))
	}
	tests := map[string]struct {
		taints []corev1.Taint
		has    Taints
		want   string
	}{
		"no taint":                  {},
		"a dedicated pool":          {[]corev1.Taint{taint("dedicated", no)}, "", "seat of n1 tolerates dedicated:NoSchedule"},
		"a taint that is tolerated": {[]corev1.Taint{taint("dedicated", no)}, "dedicated:NoSchedule", ""},
		"another effect": {
			[]corev1.Taint{taint("dedicated", prefer)}, "dedicated:NoSchedule", "seat of n1 tolerates dedicated:PreferNoSchedule",
		},
		"an effect that each seat tolerates": {[]corev1.Taint{taint("dedicated", evict)}, "", ""},
		"a taint that was removed":           {nil, "dedicated:NoSchedule", ""},
		"one of the control plane": {
			[]corev1.Taint{taint("node-role.kubernetes.io/control-plane", no)},
			"",
			"seat of n1 tolerates node-role.kubernetes.io/control-plane:NoSchedule",
		},
		"more than a seat tolerates": {
			many, "", "seat of n1 tolerates t00:NoSchedule,t01:NoSchedule,t02:NoSchedule,t03:NoSchedule,t04:NoSchedule,t05:NoSchedule," +
				"t06:NoSchedule,t07:NoSchedule,t08:NoSchedule,t09:NoSchedule,t10:NoSchedule,t11:NoSchedule,t12:NoSchedule,t13:NoSchedule," +
				"t14:NoSchedule,t15:NoSchedule",
		},
	}
	for _, key := range []string{
		"node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized",
		"karpenter.sh/disrupted", "karpenter.k8s.aws/a", "karpenter.azure.com/a", "ToBeDeletedByClusterAutoscaler",
		"DeletionCandidateOfClusterAutoscaler", "cluster-autoscaler.kubernetes.io/a", "startup-taint.cluster-autoscaler.kubernetes.io/a",
		"aws-node-termination-handler/spot-itn", "cloud.google.com/impending-node-termination", "everynode.dev/a",
		"node-setup.everynode.dev/ca",
	} {
		tests["a taint that does not last: "+key] = struct {
			taints []corev1.Taint
			has    Taints
			want   string
		}{[]corev1.Taint{taint(key, no), taint(key, prefer)}, "", ""}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, newBudget("b", "1"))
			f.Fixed = map[types.UID]bool{"seat-n2": true}
			f.taint("n2", "dedicated")
			f.node("n1").Taints, f.seat("n1").Tolerates = tt.taints, tt.has
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			if diff := cmp.Diff(want, f.texts(Next(&f.Input).Actions)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			f.settle(t)
		})
	}
}

// TestTaintsChangeASeatFinitelyOften : tolerations cannot be removed from a pod.
func TestTaintsChangeASeatFinitelyOften(t *testing.T) {
	f := settled(t, 4, newBudget("b", "1"))
	changes := 0
	for i := range 100 {
		f.taint("n1", fmt.Sprint("t", i))
		changes += len(Next(&f.Input).Actions)
		f.settle(t)
	}
	if changes != maxTolerations {
		t.Errorf("the seat was changed %d times", changes)
	}
}

// TestASeatIsCreatedWithTolerations : it has them from the start, and the plan reads them back.
func TestASeatIsCreatedWithTolerations(t *testing.T) {
	f := settled(t, 4, newBudget("b", "1"))
	f.evict("n1")
	f.taint("n1", "dedicated")
	actions := Next(&f.Input).Actions
	if diff := cmp.Diff([]string{"create seat of n1, returned, tolerates dedicated:NoSchedule"}, f.texts(actions)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	pod := new(Place).Seat(actions[0].(CreateSeat))
	want := []corev1.Toleration{
		{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		{Key: "dedicated", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	}
	if diff := cmp.Diff(want, pod.Spec.Tolerations); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := ViewSeat(pod).Tolerates; got != "dedicated:NoSchedule" {
		t.Errorf("the plan reads %q", got)
	}
}
