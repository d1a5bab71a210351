// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
)

// source resolves the NodeJob's scripts. A problem that the user has to fix is returned as an obstacle. It needs no
// retry, because the change of the ConfigMap triggers a pass.
func (r observer) source(ctx context.Context, job *v1alpha1.NodeJob) (task.Source, *hold.Why, error) {
	if obstacle, err := r.namespaceGoes(ctx, job); err != nil || obstacle != nil {
		return task.Source{}, obstacle, err
	}
	r.contents.keep(client.ObjectKeyFromObject(job), slices.Concat(task.Inputs(&job.Spec.Task), task.FilesOf(&job.Spec.Task)))
	return observe.Source(job, observe.Fetch{
		Script: func(field string, ref v1alpha1.ConfigMapKeyRef) (string, bool, error) {
			return r.scripts.get(ctx, r, scriptField{client.ObjectKeyFromObject(job), field}, ref)
		},
		Contents: func(contents []task.Content) ([]task.Hashes, *hold.Why, error) {
			return r.contents.of(ctx, r, client.ObjectKeyFromObject(job), contents)
		},
	})
}

// namespaceGoes returns the obstacle of a NodeJob that must be rolled back in a namespace that is terminating: no pod
// can be created there, and the ConfigMap of the rollback script may be deleted.
func (r observer) namespaceGoes(ctx context.Context, job *v1alpha1.NodeJob) (*hold.Why, error) {
	if job.DeletionTimestamp.IsZero() || job.Spec.DeletionPolicy != v1alpha1.DeletionRollback {
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
	return &hold.Why{
		Reason:  v1alpha1.ReasonNamespaceTerminating,
		Message: fmt.Sprintf("namespace %s is being deleted, and no pod can be made in it", job.Namespace),
	}, nil
}

// scripts caches the scripts that NodeJobs reference in ConfigMaps. Only the metadata of ConfigMaps is watched. The few
// that are referenced are read when their resource version changes, and only the referenced key is stored.
type scripts struct {
	mu   sync.Mutex
	seen map[scriptField]fetchedScript
}

// scriptField is a field of a NodeJob. At most one script is stored for it, even if the reference changes.
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
	err             error // ErrNotLabeled, or nil
}

func newScripts() scripts { return scripts{seen: map[scriptField]fetchedScript{}} }

// get returns the content of a key, as observe.Fetch requires it.
func (c *scripts) get(ctx context.Context, r observer, field scriptField, ref v1alpha1.ConfigMapKeyRef) (string, bool, error) {
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
		return known.content, known.found, known.err
	}
	var live corev1.ConfigMap
	if err := r.Reader.Get(ctx, name, &live); err != nil {
		return "", false, err
	}
	// It is stored under the version that was read: if the cache is stale, the next pass reads it again.
	fetched := fetchedScript{ref: ref, uid: live.UID, resourceVersion: live.ResourceVersion}
	fetched.content, fetched.found, fetched.err = observe.ScriptIn(&live, ref.Key)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[field] = fetched
	return fetched.content, fetched.found, fetched.err
}

// forget deletes what was stored for a NodeJob.
func (c *scripts) forget(job client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.seen, func(f scriptField, _ fetchedScript) bool { return f.job == job })
}
