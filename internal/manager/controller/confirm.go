// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// confirm writes the confirmation of a node into the annotation of its pod, where the kubelet shows it to the runner. A pod that is
// gone needs none.
func (r writer) confirm(ctx context.Context, namespace string, pod plan.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID,
		"annotations": map[string]string{v1alpha1.ConfirmedAnnotation: task.Confirmation(r.Options.Key, pod.Name)},
	}})
	if err != nil {
		panic(err) // strings always marshal
	}
	live := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}}
	err = r.Metrics.writes.Do(verbPatch, resourcePods, func() error {
		return r.Client.Patch(ctx, live, client.RawPatch(types.MergePatchType, patch))
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("confirming the node of pod %s: %w", pod.Name, err)
	}
	if err == nil {
		r.written.rememberPod(stripPod(r.Options.Key, live), r.Now())
	}
	return nil
}
