// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// TestPodChanges covers how long after a change of a pod its NodeJob has a pass.
func TestPodChanges(t *testing.T) {
	tests := map[string]struct {
		before func(*Reconciler, plan.Pod)
		want   time.Duration
	}{
		"a pod whose outcome is not on record": {func(*Reconciler, plan.Pod) {}, leastGather},
		"a pod in the queue of releases": {
			func(r *Reconciler, p plan.Pod) { r.releases.add(release{job: liveJob(), pod: p}) },
			afterPasses,
		},
		"a pod that is being released": {func(r *Reconciler, p plan.Pod) {
			r.releases.add(release{job: liveJob(), pod: p})
			r.releases.next()
		}, afterPasses},
		"a pod that has been released": {func(r *Reconciler, p plan.Pod) { r.written.rememberReleased(p.UID, noon) }, afterPasses},
		"a pod whose release has failed": {func(r *Reconciler, p plan.Pod) {
			r.releases.add(release{job: liveJob(), pod: p})
			r.releases.next()
			r.releases.ended(p.UID, true)
		}, leastGather},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t)
			r.releases.setRuns(true)
			pod := endedPod("n")
			tt.before(r.Reconciler, pod)
			var q recordingQueue
			r.podChanged(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: pod.Name, UID: pod.UID, Labels: map[string]string{v1alpha1.NodeJobLabel: "job"},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(liveJob(), v1alpha1.GroupVersion.WithKind("NodeJob"))},
			}}, &q)
			if got, want := fmt.Sprint(q.waits), fmt.Sprint(map[string]time.Duration{"ns/job": tt.want}); got != want {
				t.Errorf("passes after %v, want %v", got, want)
			}
		})
	}
}
