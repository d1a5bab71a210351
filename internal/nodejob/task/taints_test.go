// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/kube"
)

func TestUntolerated(t *testing.T) {
	taint := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: effect}
	}
	var (
		dedicated = taint("dedicated", "db", corev1.TaintEffectNoSchedule)
		evicting  = taint("evicting", "", corev1.TaintEffectNoExecute)
		level     = taint("level", "5", corev1.TaintEffectNoSchedule)
	)
	tests := map[string]struct {
		taints []corev1.Taint
		users  []corev1.Toleration
		want   *corev1.Taint
	}{
		"a node without taints":                    {},
		"a taint without a toleration":             {taints: []corev1.Taint{dedicated}, want: &dedicated},
		"a taint with the effect NoExecute":        {taints: []corev1.Taint{evicting}, want: &evicting},
		"a taint with the effect PreferNoSchedule": {taints: []corev1.Taint{taint("a", "", corev1.TaintEffectPreferNoSchedule)}},
		"the first untolerated taint": {
			taints: []corev1.Taint{taint("a", "", corev1.TaintEffectPreferNoSchedule), evicting, dedicated},
			want:   &evicting,
		},
		"an operator without a key": {
			taints: []corev1.Taint{dedicated, evicting},
			users:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
		"a key with any value": {
			taints: []corev1.Taint{dedicated},
			users:  []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
		},
		"a key and its value": {
			taints: []corev1.Taint{dedicated},
			users:  []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "db"}},
		},
		"the default operator is Equal": {
			taints: []corev1.Taint{dedicated},
			users:  []corev1.Toleration{{Key: "dedicated", Value: "db"}},
		},
		"another value": {
			taints: []corev1.Taint{dedicated},
			users:  []corev1.Toleration{{Key: "dedicated", Value: "web"}},
			want:   &dedicated,
		},
		"another key": {
			taints: []corev1.Taint{dedicated},
			users:  []corev1.Toleration{{Key: "other", Value: "db"}},
			want:   &dedicated,
		},
		"its effect": {
			taints: []corev1.Taint{dedicated},
			users:  []corev1.Toleration{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}},
		},
		"another effect": {
			taints: []corev1.Taint{dedicated},
			users:  []corev1.Toleration{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoExecute}},
			want:   &dedicated,
		},
		"two taints need two tolerations": {
			taints: []corev1.Taint{dedicated, evicting},
			users:  []corev1.Toleration{{Key: "dedicated", Value: "db"}},
			want:   &evicting,
		},
		"an unknown operator": {
			taints: []corev1.Taint{dedicated},
			users:  []corev1.Toleration{{Key: "dedicated", Operator: "Like", Value: "d"}},
			want:   &dedicated,
		},
		"numbers are not compared": {
			taints: []corev1.Taint{level},
			users:  []corev1.Toleration{{Key: "level", Operator: corev1.TolerationOpGt, Value: "1"}},
			want:   &level,
		},
		"a node that is not ready": {
			taints: []corev1.Taint{taint(corev1.TaintNodeNotReady, "", corev1.TaintEffectNoExecute)},
		},
		"a node that is unreachable": {
			taints: []corev1.Taint{taint(corev1.TaintNodeUnreachable, "", corev1.TaintEffectNoExecute)},
		},
		"a cordoned node": {
			taints: []corev1.Taint{taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule)},
		},
		"a node without network": {
			taints: []corev1.Taint{taint(corev1.TaintNodeNetworkUnavailable, "", corev1.TaintEffectNoSchedule)},
		},
		"a node under pressure": {
			taints: []corev1.Taint{
				taint(corev1.TaintNodeMemoryPressure, "", corev1.TaintEffectNoSchedule),
				taint(corev1.TaintNodeDiskPressure, "", corev1.TaintEffectNoSchedule),
				taint(corev1.TaintNodePIDPressure, "", corev1.TaintEffectNoSchedule),
			},
		},
		"a node with the out-of-service taint": {
			taints: []corev1.Taint{taint(corev1.TaintNodeOutOfService, "nodeshutdown", corev1.TaintEffectNoExecute)},
			want:   &corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, kube.Untolerated(tt.taints, Tolerations(tt.users))); diff != "" {
				t.Errorf("untolerated (-want +got):\n%s", diff)
			}
		})
	}
}

// The slice of a NodeJob from the cache can have spare capacity.
func TestTolerationsDoesNotChangeItsArgument(t *testing.T) {
	users := make([]corev1.Toleration, 1, 20)
	users[0].Key = "mine"
	a, b := Tolerations(users), Tolerations(users)
	a[1].Key = "changed"
	if b[1].Key == "changed" || users[:2][1].Key != "" {
		t.Error("the tolerations of two calls share memory")
	}
}
