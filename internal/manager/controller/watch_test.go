// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
)

func watchedNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "node-uid", ResourceVersion: "1",
			Labels:      map[string]string{"pool": "a", "ns.everynode.dev/job": "rev", "ns.everynode.dev/other": "rev"},
			Annotations: map[string]string{"ns.everynode.dev/job": "{}", "ns.everynode.dev/other": "{}", "unrelated": "x"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: "boot", MachineID: "machine"},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(time.Unix(1, 0))},
			},
		},
	}
}

func TestAConfigMapWakesTheNodeJobsThatReferenceIt(t *testing.T) {
	job := liveJob(rerunsOnChange(v1alpha1.ContentConfigMap, "mine"), rerunsOnChange(v1alpha1.ContentSecret, "secret"))
	job.Spec.Task.ScriptFrom = &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "script", Key: "sh"}}
	if got := strings.Join(observe.ConfigMapNames(job), " "); got != "script mine" {
		t.Errorf("it reruns on changes of %q", got)
	}
}

// Our own status writes must not trigger a pass, and the annotations of a user must.
func TestNodeJobChanges(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.NodeJob)
		want   bool
	}{
		"its status":              {func(j *v1alpha1.NodeJob) { j.ResourceVersion, j.Status.Revision = "2", "x" }, false},
		"an unrelated annotation": {func(j *v1alpha1.NodeJob) { j.Annotations = map[string]string{"x": "y"} }, false},
		"its spec":                {func(j *v1alpha1.NodeJob) { j.Generation++ }, true},
		"the manager's finalizer": {
			func(j *v1alpha1.NodeJob) { j.Finalizers = append(j.Finalizers, v1alpha1.NodeJobFinalizer) },
			true,
		},
		"a retry is requested": {
			func(j *v1alpha1.NodeJob) { j.Annotations = map[string]string{v1alpha1.RetryAnnotation: "1"} },
			true,
		},
		"the retry request is removed": {func(j *v1alpha1.NodeJob) { j.Annotations = nil }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := liveJob()
			after := before.DeepCopy()
			tt.change(after)
			if got := jobChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tt.want {
				t.Errorf("it wakes: %v, want %v", got, tt.want)
			}
		})
	}
}

// Each of 15,000 nodes sends a heartbeat every few seconds: it must cost almost nothing.
func BenchmarkHeartbeat(b *testing.B) {
	r, before, after := &Reconciler{}, watchedNode(), watchedNode()
	for b.Loop() {
		r.nodeChanged(b.Context(), before, after, nil) // it would panic if a heartbeat mattered
	}
}
