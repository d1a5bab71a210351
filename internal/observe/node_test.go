// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// TestNodesBusySince tests since when pods of an earlier NodeJob of the same name should have ended.
func TestNodesBusySince(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "new"}}
	pod := func(node string, changes ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
		p.CreationTimestamp = metav1.NewTime(noon)
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "NodeJob", Name: "job", UID: "old", Controller: new(true)}}
		for _, change := range changes {
			change(p)
		}
		return p
	}
	made := func(minutes int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute))
		}
	}
	deleted := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(noon.Add(time.Hour))), new(int64(30))
	}
	tests := map[string]struct {
		pods []*corev1.Pod
		want map[string]time.Time
	}{
		"a pod runs": {[]*corev1.Pod{pod("a")}, map[string]time.Time{"a": noon}},
		"a pod that was deleted has a grace period": {[]*corev1.Pod{pod("a", deleted)}, map[string]time.Time{"a": noon.Add(time.Hour)}},
		"the first of several pods counts": {
			[]*corev1.Pod{pod("a", made(5)), pod("a", made(2)), pod("a", deleted), pod("b", made(9))},
			map[string]time.Time{"a": noon.Add(2 * time.Minute), "b": noon.Add(9 * time.Minute)},
		},
		"a pod has ended": {
			[]*corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
			map[string]time.Time{},
		},
		"a pod of another NodeJob": {
			[]*corev1.Pod{pod("a", func(p *corev1.Pod) { p.OwnerReferences[0].Name = "another" })},
			map[string]time.Time{},
		},
		"a pod of another kind of owner": {
			[]*corev1.Pod{pod("a", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" })},
			map[string]time.Time{},
		},
		"a pod without an owner": {
			[]*corev1.Pod{pod("a", func(p *corev1.Pod) { p.OwnerReferences = nil })},
			map[string]time.Time{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, BusyNodes(job, tt.pods)); diff != "" {
				t.Errorf("busy nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNode(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	is := func(status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: at}}
		}
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		want   plan.Node
	}{
		"without a condition": {func(*corev1.Node) {}, plan.Node{}},
		"Ready":               {is(corev1.ConditionTrue), plan.Node{Ready: corev1.ConditionTrue, ReadySince: at.Time}},
		"not Ready":           {is(corev1.ConditionFalse), plan.Node{Ready: corev1.ConditionFalse}},
		"unreachable":         {is(corev1.ConditionUnknown), plan.Node{Ready: corev1.ConditionUnknown, UnreachableSince: at.Time}},
		"terminating":         {func(n *corev1.Node) { n.DeletionTimestamp = &at }, plan.Node{Deleting: true, DeletingSince: at.Time}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			tt.change(node)
			if diff := cmp.Diff(tt.want, Node(node), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
		})
	}
}
