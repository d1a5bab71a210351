// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

var key = Key{1, 2, 3}

func sealedJob() *v1alpha1.NodeJob {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Status: v1alpha1.NodeJobStatus{
		Revision: "rev1",
		Rollout:  &v1alpha1.RolloutStatus{Step: "canary", StableAt: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))},
	}}
	job.Status.ControllerState.Seal = key.NodeJob(job)
	return job
}

func TestOpenNodeJob(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.NodeJob)
		want   bool
	}{
		"a status that the manager has written": {change: func(*v1alpha1.NodeJob) {}, want: true},
		"another revision":                      {change: func(j *v1alpha1.NodeJob) { j.Status.Revision = "rev2" }},
		"another time in it":                    {change: func(j *v1alpha1.NodeJob) { j.Status.Rollout.StableAt = metav1.Time{} }},
		"the status of another NodeJob":         {change: func(j *v1alpha1.NodeJob) { j.UID = "other" }},
		"no seal":                               {change: func(j *v1alpha1.NodeJob) { j.Status.ControllerState.Seal = "" }},
		"a seal with another key":               {change: func(j *v1alpha1.NodeJob) { j.Status.ControllerState.Seal = Key{9}.NodeJob(j) }},
		"a change beside the status":            {change: func(j *v1alpha1.NodeJob) { j.Labels = map[string]string{"a": "b"} }, want: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := sealedJob()
			tt.change(job)
			text, err := json.Marshal(job)
			if err != nil {
				t.Fatal(err)
			}
			var read v1alpha1.NodeJob // as the API server returns it
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatal(err)
			}
			if got := key.OpenNodeJob(&read); got != tt.want {
				t.Errorf("OpenNodeJob() = %v, want %v", got, tt.want)
			}
			if left := read.Status.Revision != ""; left != tt.want {
				t.Errorf("the status has a revision: %v, want %v", left, tt.want)
			}
		})
	}
}

func TestMadePod(t *testing.T) {
	controller := true
	made := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "job-1", Labels: map[string]string{v1alpha1.NodeJobLabel: "job", "app": "x"},
			Annotations:     map[string]string{v1alpha1.AttemptAnnotation: "1"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "NodeJob", UID: "uid", Controller: &controller}},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
	}
	key.SealPod(&made)
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"as it was created":        {change: func(*corev1.Pod) {}, want: true},
		"recorded":                 {change: func(p *corev1.Pod) { p.Annotations[v1alpha1.RecordedAnnotation] = "true" }, want: true},
		"with other keys of users": {change: func(p *corev1.Pod) { p.Labels["app"], p.Annotations["a"] = "y", "b" }, want: true},
		"with another status":      {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, want: true},
		"with another attempt":     {change: func(p *corev1.Pod) { p.Annotations[v1alpha1.AttemptAnnotation] = "2" }},
		"with one more annotation": {change: func(p *corev1.Pod) { p.Annotations[v1alpha1.RebootAnnotation] = "Always" }},
		"with a label as an annotation": {change: func(p *corev1.Pod) {
			delete(p.Labels, v1alpha1.NodeJobLabel)
			p.Annotations[v1alpha1.NodeJobLabel] = "job"
		}},
		"on another node":                     {change: func(p *corev1.Pod) { p.Spec.NodeName = "n2" }},
		"of another NodeJob":                  {change: func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }},
		"under another name":                  {change: func(p *corev1.Pod) { p.Name = "job-2" }},
		"in another namespace":                {change: func(p *corev1.Pod) { p.Namespace = "other" }},
		"without a seal":                      {change: func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.SealAnnotation) }},
		"sealed with the key of another user": {change: func(p *corev1.Pod) { Key{9}.SealPod(p) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := made.DeepCopy()
			tt.change(pod)
			if got := key.MadePod(pod); got != tt.want {
				t.Errorf("MadePod() = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDigestSeparatesTexts(t *testing.T) {
	if key.Digest("a", "b", "c") == key.Digest("a", "bc") || key.Digest("a", "b") == key.Digest("ab") {
		t.Error("different texts have the same digest")
	}
}
