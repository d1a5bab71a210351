// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestAHeartbeatWakesNothing(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		added := metav1.NewTime(time.Unix(1000, 0))
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1", Labels: map[string]string{"a": "b"}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "t", TimeAdded: &added}}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		if change != nil {
			change(n)
		}
		return n
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a heartbeat": {func(n *corev1.Node) {
			n.ResourceVersion, n.Status.Conditions[0].LastHeartbeatTime = "2", metav1.NewTime(time.Unix(2000, 0))
		}, false},
		"a cordon":                {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"a taint":                 {func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "u"}) }, true},
		"a label":                 {func(n *corev1.Node) { n.Labels["a"] = "c" }, true},
		"the node is unreachable": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		"an approval":             {func(n *corev1.Node) { n.Annotations = map[string]string{"everynode.dev/approve-release": "a/b"} }, true},
		"another annotation":      {func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nodeChanges.Update(event.UpdateEvent{ObjectOld: node(nil), ObjectNew: node(tt.change)}); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestPodChangesThatTriggerAPass(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(time.Unix(1000, 0))},
			Status:     corev1.PodStatus{Phase: corev1.PodPending},
		}
		change(p)
		return p
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"an unrelated change": {func(p *corev1.Pod) { p.ResourceVersion, p.Status.PodIP = "2", "10.0.0.1" }, false},
		"it is ready": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}, true},
		"it is terminating": {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, true},
		"its image cannot be pulled": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
		}, true},
		"it has ended": {func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, FinishedAt: metav1.NewTime(time.Unix(2000, 0))}}}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := podChanged(pod(func(*corev1.Pod) {}), pod(tt.change)); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
