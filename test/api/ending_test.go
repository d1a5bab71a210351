// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// phase tells the API server the status of a pod, as its kubelet does.
func (w *world) phase(pod *corev1.Pod, phase corev1.PodPhase, change func(*corev1.PodStatus)) {
	w.T.Helper()
	told := pod.DeepCopy()
	setEnd(told, 0, `{"exitCode":0,"results":{"a":"b"}}`)
	told.Status.Phase = phase
	if change != nil {
		change(&told.Status)
	}
	status, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": told.Status})
	must(w.T, err)
	must(w.T, admin.Status().Patch(w.Ctx, told, mergePatch(string(status))))
}

// TestAnOutcomeIsRecordedBeforeThePodHasEnded covers the time between the end of a container and the end of its pod,
// with and without another manager in between.
func TestAnOutcomeIsRecordedBeforeThePodHasEnded(t *testing.T) {
	evicted := func(s *corev1.PodStatus) {
		s.Reason, s.Conditions = "Evicted", []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet", LastTransitionTime: metav1.Now(),
		}}
	}
	for name, tt := range map[string]struct {
		restarts bool
		phase    corev1.PodPhase
		change   func(*corev1.PodStatus)
	}{
		"then the pod ends":                           {phase: corev1.PodSucceeded},
		"then the pod is evicted":                     {phase: corev1.PodFailed, change: evicted},
		"then another manager starts":                 {restarts: true, phase: corev1.PodSucceeded},
		"then another manager sees a pod that failed": {restarts: true, phase: corev1.PodFailed, change: evicted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			stop := startManager(t, noFaults)
			node := "ends-" + w.Namespace
			w.node(node)
			w.job("ends", nil)
			pod := w.podOn(node)
			w.phase(pod, corev1.PodRunning, nil)
			before := w.Done("ends", node)
			if before.PodUID != pod.UID || before.Results["a"] != "b" {
				t.Errorf("the record is %+v", before)
			}
			w.Condition("ends", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
			if tt.restarts {
				stop()
				startManager(t, noFaults)
			}
			var live corev1.Pod
			must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), &live))
			if !live.DeletionTimestamp.IsZero() || len(live.Finalizers) != 1 {
				t.Errorf("the pod is deleted before it has ended: %v, %v", live.DeletionTimestamp, live.Finalizers)
			}
			w.phase(pod, tt.phase, tt.change)
			w.NoPods()
			if after := w.Done("ends", node); record.Encode(after) != record.Encode(before) {
				t.Errorf("the record was %+v, and is %+v", before, after)
			}
		})
	}
}
