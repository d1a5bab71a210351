// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestImagePullSecrets(t *testing.T) {
	script := &v1alpha1.NodeJob{Spec: v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}}}
	template := &v1alpha1.NodeJob{Spec: v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{Template: &corev1.PodTemplateSpec{}}}}
	mirror := []corev1.LocalObjectReference{{Name: "mirror"}}
	tests := map[string]struct {
		job     *v1alpha1.NodeJob
		secrets []string
		want    []corev1.LocalObjectReference
	}{
		"a script with the image of the runner":    {script, []string{"mirror"}, mirror},
		"a script, and the Secrets of its account": {script, nil, nil},
		"a template has its own image and Secrets": {template, []string{"mirror"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := Pod(tt.job, Source{}, Attempt{Phase: Task}, Options{PullSecrets: tt.secrets})
			if diff := cmp.Diff(tt.want, pod.Spec.ImagePullSecrets); diff != "" {
				t.Errorf("imagePullSecrets (-want +got):\n%s", diff)
			}
		})
	}
}
