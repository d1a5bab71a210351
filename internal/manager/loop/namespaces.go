// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// Namespaces says in which namespaces the manager serves NodeJobs and NodeGuards.
type Namespaces struct {
	// Required is true if a namespace needs the label v1alpha1.EnabledLabel.
	Required bool
	// Cache and Reader read the metadata of namespaces: from the cache, and from the API server.
	Cache, Reader client.Reader
}

// Check returns the obstacle of an object whose namespace is not allowed, and nil if it is, with the nodes that it is limited to; nil for
// all. conditions are those of the object: while they do not say so yet, the API server decides, because the cache may not show a new
// namespace yet, and a status that is wrong for a moment would fail a deployment that waits for it.
func (n Namespaces) Check(ctx context.Context, namespace string, conditions []metav1.Condition) (labels.Selector, *hold.Why, error) {
	cached := metadataOf(namespace)
	err := n.Cache.Get(ctx, client.ObjectKeyFromObject(cached), cached)
	stalled := meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, nil, fmt.Errorf("getting the namespace: %w", err)
	case err == nil && n.allows(cached):
		return nodesOf(cached)
	case err == nil && stalled != nil && stalled.Reason == v1alpha1.ReasonNamespaceNotAllowed:
		return nil, hold.NamespaceNotAllowed(namespace), nil
	}
	// The nodes too: the cache may be from before the write that has set the label and the annotation.
	live := metadataOf(namespace)
	err = n.Reader.Get(ctx, client.ObjectKeyFromObject(live), live)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, nil // nothing can be created in a namespace that does not exist
	case err != nil:
		return nil, nil, fmt.Errorf("getting the namespace: %w", err)
	case n.allows(live):
		return nodesOf(live)
	}
	return nil, hold.NamespaceNotAllowed(namespace), nil
}

// Allowed reports whether a namespace is allowed, and the nodes that it is limited to, according to the cache; nil for all.
func (n Namespaces) Allowed(ctx context.Context, namespace string) (labels.Selector, bool) {
	cached := metadataOf(namespace)
	if err := n.Cache.Get(ctx, client.ObjectKeyFromObject(cached), cached); err != nil || !n.allows(cached) {
		return nil, err != nil && !n.Required
	}
	nodes, obstacle := hold.AllowedNodes(namespace, cached.Annotations)
	return nodes, obstacle == nil
}

func (n Namespaces) allows(namespace *metav1.PartialObjectMetadata) bool {
	return !n.Required || hold.AllowsNodeJobs(namespace.Labels)
}

func nodesOf(namespace *metav1.PartialObjectMetadata) (labels.Selector, *hold.Why, error) {
	nodes, obstacle := hold.AllowedNodes(namespace.Name, namespace.Annotations)
	if obstacle != nil {
		return nil, obstacle, nil // nothing starts, and what exists stays as it is, as in a namespace that is not allowed
	}
	return nodes, nil, nil
}

func metadataOf(namespace string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	o.SetName(namespace)
	return o
}

// AllowedChanged passes the changes of a namespace after which it is allowed, or no longer, or limited to other nodes.
var AllowedChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return hold.AllowsNodeJobs(e.ObjectOld.GetLabels()) != hold.AllowsNodeJobs(e.ObjectNew.GetLabels()) ||
		!maps.Equal(hold.BoundNodesAnnotation(e.ObjectOld.GetAnnotations()), hold.BoundNodesAnnotation(e.ObjectNew.GetAnnotations()))
}}
