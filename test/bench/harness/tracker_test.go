// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

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

func TestTheTrackerNotesWhatItSees(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	labelled := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"done": "1"}}}
	tests := map[string]struct {
		see  func(*tracker)
		want []int
	}{
		"a pod":               {func(t *tracker) { t.pod(podIn(corev1.ContainerState{})) }, []int{report.Created}},
		"a container runs":    {func(t *tracker) { t.pod(podIn(running)) }, []int{report.Created, report.Running}},
		"a container ends":    {func(t *tracker) { t.pod(podIn(ended)) }, []int{report.Created, report.Ended}},
		"a pod is gone":       {func(t *tracker) { t.podGone(podIn(ended)) }, []int{report.Created, report.Ended, report.Gone}},
		"a node is done":      {func(t *tracker) { t.node(labelled) }, []int{report.Done}},
		"another label":       {func(t *tracker) { t.reset("other", []string{"node-1"}); t.node(labelled) }, nil},
		"before any run":      {func(t *tracker) { t.reset("done", nil); t.pod(podIn(running)) }, nil},
		"a pod is deleted":    {func(t *tracker) { t.pod(deleted()) }, []int{report.Created}},
		"a container restart": {func(t *tracker) { t.pod(restarted()) }, []int{report.Created, report.Running, report.Ended}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := newTracker("done")
			o.reset("done", []string{"node-1"})
			begin := time.Now().Add(-time.Second)
			tt.see(o)
			rows := o.rows(begin)
			var got []int
			for _, row := range rows {
				for column, at := range row {
					if at > 0 && column > report.Ready {
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

// deleted is a pod whose container ends because the pod is deleted.
func deleted() *corev1.Pod {
	pod := podIn(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	pod.DeletionTimestamp = new(metav1.Now())
	return pod
}

// restarted is a pod whose container has ended and runs again.
func restarted() *corev1.Pod {
	pod := podIn(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{}
	return pod
}

func TestTheTrackerCountsPods(t *testing.T) {
	o := newTracker("done")
	o.reset("done", []string{"node-1"})
	o.pod(podIn(corev1.ContainerState{}))
	o.pod(podIn(corev1.ContainerState{}))
	if pods := o.counts().pods; pods != 1 {
		t.Errorf("%d pods, want 1", pods)
	}
	o.podGone(podIn(corev1.ContainerState{}))
	if pods := o.counts().pods; pods != 0 {
		t.Errorf("%d pods, want 0", pods)
	}
}
