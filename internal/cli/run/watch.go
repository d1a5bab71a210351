// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/console"
)

// change is an observation of objects of one kind.
type change struct {
	// all are all objects, at the start of a watch. one is an object that has changed since, and deleted reports whether
	// it was deleted.
	all     []client.Object
	fresh   bool
	one     client.Object
	deleted bool
	// err is the reason why no observation is possible now. The watch is retried automatically.
	err error
}

// relistPause is the pause before objects are listed again after a watch has ended.
const relistPause = time.Second

// watchAll sends all objects of a kind, and then their changes, until the context ends. When a watch ends, it lists all
// objects again. No change is missed, but some may be sent twice.
func watchAll(ctx context.Context, f *console.Factory, c client.WithWatch, list func() client.ObjectList, opts ...client.ListOption) <-chan change {
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

// watchOnce lists once, and watches from there on. If the API server ends the watch without an error, watchOnce returns
// none.
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
	w, err := c.Watch(ctx, list, append(slices.Clip(opts), cmdutil.FromVersion(list.GetResourceVersion()))...)
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

// watchPods watches the pods of a NodeJob.
func watchPods(ctx context.Context, f *console.Factory, c client.WithWatch, job *v1alpha1.NodeJob) <-chan change {
	return watchAll(ctx, f, c, func() client.ObjectList { return &corev1.PodList{} },
		client.InNamespace(job.Namespace), client.MatchingLabels{v1alpha1.NodeJobLabel: job.Name})
}

// watchNodes watches the labels and annotations of one node, or of all nodes. The rest of a node is large, and changes
// with each heartbeat.
func watchNodes(ctx context.Context, f *console.Factory, c client.WithWatch, names []string) <-chan change {
	var opts []client.ListOption
	if len(names) == 1 {
		opts = append(opts, client.MatchingFields{"metadata.name": names[0]})
	}
	return watchAll(ctx, f, c, func() client.ObjectList { return cmdutil.NewNodeMetadataList() }, opts...)
}
