// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// shareCache makes passes list nodes and pods from the indexes of the cache. A list of the client also shares what the
// objects refer to, but copies each object into a new slice, by reflection: about a kilobyte for each node and pass.
func (r *shell) shareCache(ctx context.Context, from cache.Cache) error {
	nodes, err := indexerOf(ctx, from, &corev1.Node{})
	if err != nil {
		return err
	}
	pods, err := indexerOf(ctx, from, &corev1.Pod{})
	if err != nil {
		return err
	}
	if err := pods.AddIndexers(toolscache.Indexers{nodeJobIndex: podsIndex}); err != nil {
		return fmt.Errorf("adding an index of pods: %w", err)
	}
	r.listNodes = func(context.Context) ([]*corev1.Node, error) { return asObjects[*corev1.Node](nodes.List()), nil }
	r.listPods = func(_ context.Context, nodeJob client.ObjectKey) ([]*corev1.Pod, error) {
		list, err := pods.ByIndex(nodeJobIndex, nodeJob.String())
		return asObjects[*corev1.Pod](list), err
	}
	return nil
}

// indexerOf returns what stores the objects of a kind in a cache, with loop.NewInformer.
func indexerOf(ctx context.Context, from cache.Cache, kind client.Object) (toolscache.Indexer, error) {
	informer, err := from.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("getting the informer of %T: %w", kind, err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("the informer of %T has no index", kind)
	}
	return shared.GetIndexer(), nil
}

// podsIndex indexes pods by the namespace and name of their NodeJob.
func podsIndex(o any) ([]string, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok || nodeJobOf(pod) == "" {
		return nil, nil
	}
	return []string{client.ObjectKey{Namespace: pod.Namespace, Name: nodeJobOf(pod)}.String()}, nil
}

func asObjects[T client.Object](list []any) []T {
	objects := make([]T, 0, len(list))
	for _, o := range list {
		if object, ok := o.(T); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

// nodesOf and podsByLabel list with a client that has no cache to share.
func nodesOf(c client.Reader) func(context.Context) ([]*corev1.Node, error) {
	return func(ctx context.Context) ([]*corev1.Node, error) {
		var list corev1.NodeList
		err := c.List(ctx, &list)
		return pointers(list.Items), err
	}
}

func podsByLabel(c client.Reader) func(context.Context, client.ObjectKey) ([]*corev1.Pod, error) {
	return func(ctx context.Context, nodeJob client.ObjectKey) ([]*corev1.Pod, error) {
		var list corev1.PodList
		err := c.List(ctx, &list, client.InNamespace(nodeJob.Namespace), client.MatchingLabels{v1alpha1.NodeJobLabel: nodeJob.Name})
		return pointers(list.Items), err
	}
}
