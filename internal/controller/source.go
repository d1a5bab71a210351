// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/task"
)

// source resolves the NodeJob's scripts. What the user has to mend comes back as an obstacle, which
// needs no retry: the ConfigMap's change wakes the NodeJob.
func (r *Reconciler) source(ctx context.Context, job *v1alpha1.NodeJob) (task.Source, *plan.Obstacle, error) {
	if obstacle, err := r.namespaceGoes(ctx, job); err != nil || obstacle != nil {
		return task.Source{}, obstacle, err
	}
	return observe.Source(job, observe.Fetch{
		Script: func(field string, ref v1alpha1.ConfigMapKeyRef) (string, bool, error) {
			return r.scripts.get(ctx, r, scriptField{client.ObjectKeyFromObject(job), field}, ref)
		},
		Contents: func() ([]string, *plan.Obstacle, error) { return r.contents.of(ctx, r, job) },
	})
}

// namespaceGoes is the obstacle of a NodeJob that is to be rolled back in a namespace that is being
// deleted: no pod can be made there, and what the rollback's script is in may be gone.
func (r *Reconciler) namespaceGoes(ctx context.Context, job *v1alpha1.NodeJob) (*plan.Obstacle, error) {
	if job.DeletionTimestamp.IsZero() || job.Spec.DeletionPolicy != v1alpha1.DeletionRollBack {
		return nil, nil
	}
	var namespace corev1.Namespace
	err := r.Reader.Get(ctx, client.ObjectKey{Name: job.Namespace}, &namespace)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("getting the namespace: %w", err)
	case err == nil && namespace.DeletionTimestamp.IsZero():
		return nil, nil
	}
	return &plan.Obstacle{
		Reason:  v1alpha1.ReasonNamespaceTerminating,
		Message: fmt.Sprintf("namespace %s is being deleted, and no pod can be made in it", job.Namespace),
	}, nil
}

// scripts keeps the scripts that NodeJobs take from ConfigMaps. All ConfigMaps of the cluster are
// watched by their metadata only; the few that are referred to are fetched when their resource version
// changes, and of those only the key that is asked for is kept.
type scripts struct {
	mu   sync.Mutex
	seen map[scriptField]fetchedScript
}

// scriptField is a field of a NodeJob: there is one script for it, whatever it referred to before.
type scriptField struct {
	job   client.ObjectKey
	field string
}

type fetchedScript struct {
	ref             v1alpha1.ConfigMapKeyRef
	uid             types.UID
	resourceVersion string
	content         string
	found           bool
}

func newScripts() scripts { return scripts{seen: map[scriptField]fetchedScript{}} }

// get returns the content of a key, or false when the ConfigMap has no such key. It returns the API
// server's NotFound when there is no such ConfigMap.
func (c *scripts) get(ctx context.Context, r *Reconciler, field scriptField, ref v1alpha1.ConfigMapKeyRef) (string, bool, error) {
	name := client.ObjectKey{Namespace: field.job.Namespace, Name: ref.Name}
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := r.Client.Get(ctx, name, meta); err != nil {
		return "", false, err
	}
	c.mu.Lock()
	known, ok := c.seen[field]
	c.mu.Unlock()
	if ok && known.ref == ref && known.uid == meta.UID && known.resourceVersion == meta.ResourceVersion {
		return known.content, known.found, nil
	}
	var live corev1.ConfigMap
	if err := r.Reader.Get(ctx, name, &live); err != nil {
		return "", false, err
	}
	// Kept under the version that was fetched: when the cache is behind, the next pass fetches again.
	fetched := fetchedScript{ref: ref, uid: live.UID, resourceVersion: live.ResourceVersion}
	fetched.content, fetched.found = live.Data[ref.Key]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[field] = fetched
	return fetched.content, fetched.found, nil
}

// forget drops what was kept for a NodeJob.
func (c *scripts) forget(job client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.seen, func(f scriptField, _ fetchedScript) bool { return f.job == job })
}
