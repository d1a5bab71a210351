// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// The time of a taint says when a node was cordoned, or when a tool announced that it removes the node.
func TestTimeOfAReleaseRequest(t *testing.T) {
	const announced = "ToBeDeletedByClusterAutoscaler"
	taint := func(key string, age time.Duration) corev1.Taint {
		return corev1.Taint{Key: key, TimeAdded: &metav1.Time{Time: t0.Add(-age)}}
	}
	for name, tt := range map[string]struct {
		node      Node
		wantBy    string
		wantSince time.Time
	}{
		"no request":                     {Node{Taints: []corev1.Taint{taint("x", time.Hour)}}, "", time.Time{}},
		"announced":                      {Node{Taints: []corev1.Taint{taint(announced, time.Minute)}}, "tainted by cluster-autoscaler", t0.Add(-time.Minute)},
		"announced, at an unknown time":  {Node{Taints: []corev1.Taint{{Key: announced}}}, "tainted by cluster-autoscaler", t0},
		"announced, by a clock ahead":    {Node{Taints: []corev1.Taint{taint(announced, -time.Minute)}}, "tainted by cluster-autoscaler", t0},
		"announced, and another taint":   {Node{Taints: []corev1.Taint{taint(announced, time.Minute), taint("x", time.Hour)}}, "tainted by cluster-autoscaler", t0.Add(-time.Minute)},
		"cordoned":                       {Node{Unschedulable: true, Taints: []corev1.Taint{taint(corev1.TaintNodeUnschedulable, time.Minute)}}, "cordoned", t0.Add(-time.Minute)},
		"cordoned, and announced before": {Node{Unschedulable: true, Taints: []corev1.Taint{taint(corev1.TaintNodeUnschedulable, time.Minute), taint(announced, time.Hour)}}, "cordoned", t0.Add(-time.Hour)},
		"announced, and cordoned before": {Node{Unschedulable: true, Taints: []corev1.Taint{taint(announced, time.Minute), taint(corev1.TaintNodeUnschedulable, time.Hour)}}, "cordoned", t0.Add(-time.Hour)},
		"cordoned, and another taint":    {Node{Unschedulable: true, Taints: []corev1.Taint{taint("x", time.Hour)}}, "cordoned", t0},
		"condition":                      {Node{Announced: "MaintenancePlanned"}, "condition MaintenancePlanned", t0},
		"condition, and cordoned":        {Node{Announced: "DrainInProgress", Unschedulable: true, Taints: []corev1.Taint{taint(corev1.TaintNodeUnschedulable, time.Minute)}}, "cordoned", t0.Add(-time.Minute)},
		"condition, and announced":       {Node{Announced: "DrainInProgress", Taints: []corev1.Taint{taint(announced, time.Minute)}}, "tainted by cluster-autoscaler", t0.Add(-time.Minute)},
		"condition, and another taint":   {Node{Announced: "DrainInProgress", Taints: []corev1.Taint{taint("x", time.Minute)}}, "condition DrainInProgress", t0},
		"deleted":                        {Node{Deleting: true}, "deleted", t0},
	} {
		if by, since := ReleaseRequest(&tt.node, t0); by != tt.wantBy || !since.Equal(tt.wantSince) {
			t.Errorf("%s: %q since %v, want %q since %v", name, by, since, tt.wantBy, tt.wantSince)
		}
	}
}
