// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/listwatch"
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

// watchAll sends all objects of a kind, and then their changes, until the context ends.
func watchAll(
	ctx context.Context, f *console.Factory, c client.WithWatch, kind client.ObjectList, opts ...client.ListOption,
) <-chan change {
	changes := make(chan change)
	loop := listwatch.Loop{
		Client: c, After: f.After, Kind: kind,
		List: func(ctx context.Context) (string, []client.ListOption, error) {
			list := kind.DeepCopyObject().(client.ObjectList)
			if err := c.List(ctx, list, opts...); err != nil {
				return "", nil, err
			}
			listwatch.Send(ctx, changes, changeOf(list))
			return list.GetResourceVersion(), opts, nil
		},
		Changed: func(o client.Object, deleted bool) { listwatch.Send(ctx, changes, change{one: o, deleted: deleted}) },
		Ended: func(_ listwatch.Request, err error) time.Duration {
			listwatch.Send(ctx, changes, change{err: err})
			return relistPause
		},
	}
	go func() {
		defer close(changes)
		loop.Run(ctx)
	}()
	return changes
}

// changeOf returns the observation of all objects in a list.
func changeOf(list client.ObjectList) change {
	c := change{fresh: true}
	// A list of the kinds of this package always has items that are objects.
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		c.all = append(c.all, o.(client.Object))
		return nil
	})
	return c
}

// watchPods watches the pods of a NodeJob.
func watchPods(ctx context.Context, f *console.Factory, c client.WithWatch, job *v1alpha1.NodeJob) <-chan change {
	return watchAll(ctx, f, c, &corev1.PodList{},
		client.InNamespace(job.Namespace), client.MatchingLabels{v1alpha1.NodeJobLabel: job.Name})
}

// watchNodes watches the labels and annotations of one node, or of all nodes. The rest of a node is large, and changes
// with each heartbeat.
func watchNodes(ctx context.Context, f *console.Factory, c client.WithWatch, names []string) <-chan change {
	var opts []client.ListOption
	if len(names) == 1 {
		opts = append(opts, client.MatchingFields{"metadata.name": names[0]})
	}
	return watchAll(ctx, f, c, cmdutil.NewNodeMetadataList(), opts...)
}
