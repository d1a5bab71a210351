// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
)

func (r *shell) namespaces() loop.Namespaces {
	return loop.Namespaces{Required: r.RequireNamespaceLabel, Cache: r.Client, Reader: r.Reader}
}

// allowedOnly returns the NodeJobs without those of other namespaces that are not allowed: they must neither hold gates
// of others closed, nor have tasks of others tolerate a taint. If a namespace has just been allowed, the specs are read. It
// adds the nodes that the other namespaces are limited to.
func (r observer) allowedOnly(
	ctx context.Context, namespace string, all []*v1alpha1.NodeJob, nodes map[string]labels.Selector,
) ([]*v1alpha1.NodeJob, error) {
	known := map[string]bool{namespace: true}
	served := make([]*v1alpha1.NodeJob, 0, len(all))
	for _, job := range all {
		if _, is := known[job.Namespace]; !is {
			nodes[job.Namespace], known[job.Namespace] = r.namespaces().Allowed(ctx, job.Namespace)
		}
		if !known[job.Namespace] {
			continue
		}
		if job.Namespace == namespace && loop.IsTrimmed(job) {
			if _, allowed := r.namespaces().Allowed(ctx, namespace); !allowed {
				continue
			}
		}
		if r.Room.LacksRoom(job) {
			served = append(served, job) // the cache has what others read of it
			continue
		}
		job, err := r.whole(ctx, job)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		default:
			served = append(served, job)
		}
	}
	return served, nil
}

// namespaceChanged enqueues the NodeJobs of a namespace, and all with a gate, which they may share with those.
func (r watcher) namespaceChanged(ctx context.Context, o client.Object) []reconcile.Request {
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only a cache that is not started returns an error
	}
	var requests []reconcile.Request
	for i := range jobs.Items {
		if job := &jobs.Items[i]; job.Namespace == o.GetName() || job.Spec.Gate != nil {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		}
	}
	return requests
}
