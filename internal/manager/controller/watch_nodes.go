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
// or deleted. A watch that was interrupted omits versions that passes have seen, for example a record that was written and removed
// meanwhile. So all changes between these versions count.
func (r watcher) nodeChanged(ctx context.Context, before, after client.Object, q queue) {
	changes := r.changesOf(before, after.(*corev1.Node))
	if len(changes) == 0 {
		return
	}
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return // only a cache that is not started returns an error
	}
	for i := range jobs.Items {
		job := r.written.job(&jobs.Items[i])
		if slices.ContainsFunc(changes, func(change plan.NodeChange) bool {
			return change.Affects(job, r.Now(), func() bool { return r.hasPodOn(ctx, job, after.GetName()) })
		}) {
			r.gather(client.ObjectKeyFromObject(job), q)
		}
	}
}

// changesOf returns what has changed from one version of a node to the next. before is nil for a node that was created or deleted.
func (r watcher) changesOf(before client.Object, after *corev1.Node) (changes []plan.NodeChange) {
	versions := append(r.written.showNode(after), after)
	if before == nil {
		is := observe.Node(after)
		return []plan.NodeChange{plan.CompareNodes(nil, &is)}
	}
	first := observe.Node(before.(*corev1.Node))
	was := &first
	for _, node := range versions {
		is := observe.Node(node)
		if change := plan.CompareNodes(was, &is); !change.IsEmpty() {
			changes = append(changes, change)
		}
		was = &is
	}
	return changes
}

// hasPodOn reports whether pods of the NodeJob are on a node, because the node affects them.
func (r watcher) hasPodOn(ctx context.Context, job *v1alpha1.NodeJob, node string) bool {
	pods, err := r.listPods(ctx, client.ObjectKeyFromObject(job))
	if err != nil {
		return true // only a cache that is not started returns an error
	}
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node })
}
