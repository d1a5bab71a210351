// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// An API server that does not support image volumes accepts a pod, and creates it without them.
func TestAPodIsNotCreatedWithoutItsImageVolumes(t *testing.T) {
	for name, supported := range map[string]bool{"an API server with image volumes": true, "one without": false} {
		t.Run(name, func(t *testing.T) {
			job := liveJob(func(j *v1alpha1.NodeJob) {
				j.Spec.Task.Files = []v1alpha1.FilesSource{{Name: "a", Image: &v1alpha1.FilesFromImage{Reference: "a@sha256:b"}}}
			})
			r := newFaultyReconciler(t, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if u, is := o.(*unstructured.Unstructured); is && !supported {
						removeImages(t, u)
						return nil
					}
					return c.Create(ctx, o, opts...)
				},
			}, job)
			did, err := r.apply(t.Context(), observation{job: job}, plan.Plan{Actions: []plan.Action{startOn("a", task.Task)}})
			if err != nil || did.refused == supported {
				t.Errorf("%+v (%v)", did, err)
			}
			if got := r.podNodes(); (got == "a") != supported {
				t.Errorf("pods on %q", got)
			}
			if supported {
				return
			}
			seen, err := r.observe(t.Context(), job, nil)
			if o := seen.input.Obstacle; err != nil || o == nil || o.Reason != v1alpha1.ReasonImageVolumesNotSupported ||
				!strings.Contains(o.Message, "enable the feature gate ImageVolume") {
				t.Errorf("the obstacle is %+v (%v)", o, err)
			}
			var p probed
			before := startOn("b", task.Task).Attempt
			if r.mayPrepare(t.Context(), observation{job: job}, plan.PatchNode{Before: &before}, &p) {
				t.Error("a node may be cordoned for such a pod")
			}
		})
	}
}

func removeImages(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	var pod corev1.Pod
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &pod)
	if err == nil {
		pod.Spec.Volumes = nil
		u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
	}
	if err != nil {
		t.Fatal(err)
	}
}
