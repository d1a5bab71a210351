// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package realnodes

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/test/bench/report"
)

func podIn(state corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Spec: corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: state}}},
	}
}

func TestTheObserverNotesWhatItSees(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	labelled := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"done": "1"}}}
	tests := map[string]struct {
		see  func(*observer)
		want []int
	}{
		"a pod":               {func(o *observer) { o.pod(podIn(corev1.ContainerState{})) }, []int{report.RealCreated}},
		"a container runs":    {func(o *observer) { o.pod(podIn(running)) }, []int{report.RealCreated, report.RealRunning}},
		"a container ends":    {func(o *observer) { o.pod(podIn(ended)) }, []int{report.RealCreated, report.RealEnded}},
		"a pod is gone":       {func(o *observer) { o.podGone(podIn(ended)) }, []int{report.RealCreated, report.RealEnded, report.RealGone}},
		"a node is done":      {func(o *observer) { o.node(labelled) }, []int{report.RealDone}},
		"another label":       {func(o *observer) { o.reset("other"); o.node(labelled) }, nil},
		"before any turn":     {func(o *observer) { o.nodes = nil; o.pod(podIn(running)) }, nil},
		"a container restart": {func(o *observer) { o.pod(restarted()) }, []int{report.RealCreated, report.RealRunning, report.RealEnded}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := newObserver()
			o.reset("done")
			begin := time.Now().Add(-time.Second)
			tt.see(o)
			rows, _ := o.rows(begin)
			var got []int
			for _, row := range rows {
				for column, at := range row {
					if at > 0 {
						got = append(got, column)
					}
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("it notes %v, want %v", got, tt.want)
			}
		})
	}
}

// restarted is a pod whose container has ended and runs again.
func restarted() *corev1.Pod {
	pod := podIn(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{}
	return pod
}

func TestTheObserverCountsPods(t *testing.T) {
	o := newObserver()
	o.reset("done")
	o.pod(podIn(corev1.ContainerState{}))
	o.pod(podIn(corev1.ContainerState{}))
	if _, pods := o.counts(); pods != 1 {
		t.Errorf("%d pods, want 1", pods)
	}
	o.podGone(podIn(corev1.ContainerState{}))
	if _, pods := o.counts(); pods != 0 {
		t.Errorf("%d pods, want 0", pods)
	}
	if _, created := o.rows(time.Now()); created != 1 {
		t.Errorf("%d pods were created, want 1", created)
	}
}
