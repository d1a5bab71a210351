// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Namespaces says in which namespaces the manager serves NodeJobs and NodeGuards.
type Namespaces struct {
	// Required is true if a namespace needs the label v1alpha1.EnabledLabel.
	Required bool
	// Cache and Reader read the metadata of namespaces: from the cache, and from the API server.
	Cache, Reader client.Reader
}

// Obstacle returns the obstacle of an object whose namespace is not allowed; nil if it is. conditions are those of the
// object: while they do not say so yet, the API server decides, because the cache may not show a new namespace yet, and
// a status that is wrong for a moment would fail a deployment that waits for it.
func (n Namespaces) Obstacle(ctx context.Context, namespace string, conditions []metav1.Condition) (*task.Obstacle, error) {
	if !n.Required {
		return nil, nil
	}
	cached := metadataOf(namespace)
	err := n.Cache.Get(ctx, client.ObjectKeyFromObject(cached), cached)
	stalled := meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("getting the namespace: %w", err)
	case err == nil && task.AllowsNodeJobs(cached.Labels):
		return nil, nil
	case err == nil && stalled != nil && stalled.Reason == v1alpha1.ReasonNamespaceNotAllowed:
		return task.NamespaceNotAllowed(namespace), nil
	}
	live := metadataOf(namespace)
	err = n.Reader.Get(ctx, client.ObjectKeyFromObject(live), live)
	switch {
	case apierrors.IsNotFound(err), err == nil && task.AllowsNodeJobs(live.Labels):
		return nil, nil // nothing can be created in a namespace that does not exist
	case err != nil:
		return nil, fmt.Errorf("getting the namespace: %w", err)
	}
	return task.NamespaceNotAllowed(namespace), nil
}

// Allowed reports whether a namespace is allowed, according to the cache.
func (n Namespaces) Allowed(ctx context.Context, namespace string) bool {
	if !n.Required {
		return true
	}
	cached := metadataOf(namespace)
	return n.Cache.Get(ctx, client.ObjectKeyFromObject(cached), cached) == nil && task.AllowsNodeJobs(cached.Labels)
}

func metadataOf(namespace string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	o.SetName(namespace)
	return o
}

// AllowedChanged passes the changes of a namespace after which it is allowed, or no longer.
var AllowedChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return task.AllowsNodeJobs(e.ObjectOld.GetLabels()) != task.AllowsNodeJobs(e.ObjectNew.GetLabels())
}}
