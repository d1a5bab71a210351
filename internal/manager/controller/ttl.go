// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// keep removes our finalizer from a pod whose end is recorded, and retains the pod for its logs. The same write marks
// the pod, so that its end is not recorded a second time.
func (r writer) keep(ctx context.Context, job *v1alpha1.NodeJob, pod plan.Pod) error {
	live := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: pod.Name}}
	err := r.Metrics.writes.Do(verbPatch, resourcePods, func() error {
		return r.Client.Patch(ctx, live, client.RawPatch(types.StrategicMergePatchType, keepPatch(pod.UID)))
	})
	switch {
	case apierrors.IsNotFound(err):
		r.written.rememberReleased(pod.UID, r.Now())
		return nil
	case err != nil:
		return fmt.Errorf("keeping pod %s: %w", pod.Name, err)
	}
	r.written.rememberKept(pod.UID)
	if live.DeletionTimestamp.IsZero() {
		r.written.rememberPod(stripPod(r.Options.Key, live), r.Now())
	} else {
		r.written.rememberReleased(pod.UID, r.Now())
	}
	r.retrySoon(client.ObjectKeyFromObject(job), r.Now())
	return nil
}

func keepPatch(uid types.UID) []byte {
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":                                 uid,
		"annotations":                         map[string]string{v1alpha1.RecordedAnnotation: "true"},
		"$deleteFromPrimitiveList/finalizers": []string{v1alpha1.PodFinalizer},
	}})
	if err != nil {
		panic(err) // strings always marshal
	}
	return b
}

// expire deletes a NodeJob whose time to live has passed, in the observed version. If it was changed meanwhile, the
// next pass checks it again.
func (r writer) expire(ctx context.Context, job *v1alpha1.NodeJob) error {
	err := r.Metrics.writes.Do(verbDelete, resourceNodeJobs, func() error {
		return r.Client.Delete(ctx, job.DeepCopy(), client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion})
	})
	switch {
	case apierrors.IsConflict(err):
		return errRaced
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("deleting the NodeJob, whose time is over: %w", err)
	}
	logf.FromContext(ctx).Info("deleted: spec.ttlSecondsAfterFinished is over")
	return nil
}
