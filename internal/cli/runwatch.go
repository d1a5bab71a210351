// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// change is what is seen of objects of one kind.
type change struct {
	// all is what there is, when the watch begins; one is what has changed since, and deleted whether it is gone.
	all     []client.Object
	fresh   bool
	one     client.Object
	deleted bool
	// err is why nothing is seen now. It goes on by itself.
	err error
}

// relistPause is how long to wait before objects are listed again after a watch has ended.
const relistPause = time.Second

// watchAll sends what there is of a kind, and what becomes of it, until the context ends. A watch that ends begins
// anew with all that there is: nothing is missed, though some of it may be told twice.
func (f *Factory) watchAll(ctx context.Context, c client.WithWatch, list func() client.ObjectList, opts ...client.ListOption) <-chan change {
	changes := make(chan change)
	go func() {
		defer close(changes)
		for ctx.Err() == nil {
			err := watchOnce(ctx, c, list(), changes, opts)
			if err != nil && !sendChange(ctx, changes, change{err: err}) {
				return
			}
			select {
			case <-f.After(relistPause):
			case <-ctx.Done():
			}
		}
	}()
	return changes
}

func sendChange(ctx context.Context, changes chan<- change, c change) bool {
	select {
	case changes <- c:
		return true
	case <-ctx.Done():
		return false
	}
}

// watchOnce is one list, and the watch from there on. A watch that the API server ends in good order is no error.
func watchOnce(ctx context.Context, c client.WithWatch, list client.ObjectList, changes chan<- change, opts []client.ListOption) error {
	if err := c.List(ctx, list, opts...); err != nil {
		return err
	}
	all := change{fresh: true}
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		all.all = append(all.all, o.(client.Object))
		return nil
	}); err != nil {
		return err
	}
	if !sendChange(ctx, changes, all) {
		return nil
	}
	w, err := c.Watch(ctx, list, append(slices.Clip(opts), fromVersion(list.GetResourceVersion()))...)
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		object, ok := event.Object.(client.Object)
		switch {
		case event.Type == watch.Error:
			return apierrors.FromObject(event.Object)
		case !ok || event.Type == watch.Bookmark:
		case !sendChange(ctx, changes, change{one: object, deleted: event.Type == watch.Deleted}):
			return nil
		}
	}
	return nil
}

// watchPods follows the pods of a NodeJob.
func (f *Factory) watchPods(ctx context.Context, c client.WithWatch, job *v1alpha1.NodeJob) <-chan change {
	return f.watchAll(ctx, c, func() client.ObjectList { return &corev1.PodList{} },
		client.InNamespace(job.Namespace), client.MatchingLabels{v1alpha1.NodeJobLabel: job.Name})
}

// watchNodes follows the labels and annotations of nodes: of one by its name, or of all. The rest of a node is large, and
// changes with each heartbeat.
func (f *Factory) watchNodes(ctx context.Context, c client.WithWatch, names []string) <-chan change {
	var opts []client.ListOption
	if len(names) == 1 {
		opts = append(opts, client.MatchingFields{"metadata.name": names[0]})
	}
	return f.watchAll(ctx, c, newNodeMetadataList, opts...)
}

func newNodeMetadataList() client.ObjectList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	return list
}
