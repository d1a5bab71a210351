// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

func asJob(o client.Object) *v1alpha1.NodeJob { return o.(*v1alpha1.NodeJob) }

// peerChanged triggers passes of the NodeJobs that are affected by the change of another one. An editor of one NodeJob
// can cause as many changes as the API server accepts, so they are collected like those of nodes. before is nil for a
// new NodeJob, and after is nil for a deleted one.
func (r watcher) peerChanged(ctx context.Context, before, after *v1alpha1.NodeJob, q queue) {
	change := plan.ComparePeers(before, after)
	if change.IsEmpty() {
		return
	}
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return // only a cache that is not started returns an error
	}
	for i := range jobs.Items {
		if job := &jobs.Items[i]; change.Affects(job) {
			r.gather(client.ObjectKeyFromObject(job), q)
		}
	}
}
