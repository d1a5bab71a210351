// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/observe"
)

// nodeChanged triggers passes of the NodeJobs that are affected by the change of a node. before is nil for a node that was created
// or deleted.
func (r watcher) nodeChanged(ctx context.Context, before, after client.Object, q queue) {
	var was *plan.Node
	if before != nil {
		view := observe.Node(before.(*corev1.Node))
		was = &view
	}
	is := observe.Node(after.(*corev1.Node))
	change := plan.CompareNodes(was, &is)
	if change.IsEmpty() {
		return
	}
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return // only a cache that is not started returns an error
	}
	for i := range jobs.Items {
		job := r.written.job(&jobs.Items[i])
		if change.Affects(job, r.Now(), func() bool { return r.hasPodOn(ctx, job, is.Name) }) {
			r.gather(client.ObjectKeyFromObject(job), q)
		}
	}
}

// hasPodOn reports whether pods of the NodeJob are on a node, because the node affects them.
func (r watcher) hasPodOn(ctx context.Context, job *v1alpha1.NodeJob, node string) bool {
	pods, err := r.listPods(ctx, client.ObjectKeyFromObject(job))
	if err != nil {
		return true // only a cache that is not started returns an error
	}
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node })
}
