// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestFilesFromObjects starts nothing until the ConfigMap exists, has the label and the key, and the manager may read the Secret.
func TestFilesFromObjects(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("files-1")
	w.job("files", func(s *v1alpha1.NodeJobSpec) {
		s.Task.Files = []v1alpha1.FilesSource{{Name: "agent", ConfigMap: &v1alpha1.FilesFromObject{
			Name: "agent", Items: []v1alpha1.FileItem{{Key: "install.sh", Path: "install", Mode: new(int32(0o755))}},
		}}}
	})
	w.Condition("files", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConfigMapNotFound)
	agent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "agent"}, Data: map[string]string{"other": "x"}}
	must(t, admin.Create(w.Ctx, agent))
	w.Condition("files", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConfigMapNotLabeled)
	must(t, admin.Patch(w.Ctx, agent, mergePatch(`{"metadata":{"labels":{"everynode.dev/script":"true"}}}`)))
	c := w.Condition("files", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConfigMapNotFound)
	if want := `has no key "install.sh"`; !strings.Contains(c.Message, want) {
		t.Errorf("%q, want %q", c.Message, want)
	}
	must(t, admin.Patch(w.Ctx, agent, mergePatch(`{"data":{"install.sh":"1"}}`)))
	pod := w.podOn("files-1")
	if got := pod.Spec.Volumes; len(got) != 1 || got[0].Projected == nil || len(pod.Spec.Containers[0].VolumeMounts) != 1 {
		t.Errorf("the pod has the volumes %+v", got)
	}
	w.end(pod, 0, "")
	w.Done("files", "files-1")
}

// TestFilesFromAnImage starts no pod, and touches no node, if the API server would silently remove the image from the pod.
func TestFilesFromAnImage(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("image-1")
	w.job("image", func(s *v1alpha1.NodeJobSpec) {
		s.Task.Files = []v1alpha1.FilesSource{{Name: "tools", Image: &v1alpha1.FilesFromImage{
			Reference: "registry.example.com/tools@sha256:" + strings.Repeat("a", 64),
		}}}
		s.Maintenance.Cordon = true
	})
	if strings.HasPrefix(kubernetes, "v1.34.") {
		c := w.Condition("image", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonImageVolumesNotSupported)
		if want := "enable the feature gate ImageVolume"; !strings.Contains(c.Message, want) {
			t.Errorf("%q, want %q", c.Message, want)
		}
		w.cordoned("image-1", "")
		w.NoPods()
		return
	}
	pod := w.podOn("image-1")
	if got := pod.Spec.Volumes; len(got) != 1 || got[0].Image == nil {
		t.Errorf("the pod has the volumes %+v", got)
	}
	w.end(pod, 0, "")
	w.Done("image", "image-1")
}
