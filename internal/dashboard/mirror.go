// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/listwatch"
)

// Pauses of a mirror.
const (
	// retryPause is the pause after an error, which doubles up to maxRetryPause.
	retryPause    = time.Second
	maxRetryPause = 15 * time.Second
	// pollPause is the time between two lists if the user may list objects but not watch them.
	pollPause = 10 * time.Second
)

// mirror is a copy of the objects of one kind that the user may read. It is updated by a watch.
type mirror[T any] struct {
	client client.WithWatch
	after  func(time.Duration) <-chan time.Time
	// list is an empty list of the kind, and opts select its objects.
	list client.ObjectList
	opts []client.ListOption
	// fallback is the namespace to which the mirror is limited if the user may not list the objects of all namespaces; ""
	// for a kind without namespaces.
	fallback string
	// keep returns what is stored of an object.
	keep func(client.Object) T
	// changed is called after each change.
	changed func()

	mu    sync.Mutex
	items map[client.ObjectKey]T
	// limited is why only the objects of the namespace fallback are here, and failed why objects are missing or old.
	limited, failed error
	listed          bool
}

// all returns the objects, and what is not known of them.
func (m *mirror[T]) all() (items []T, limited, failed error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	items = make([]T, 0, len(m.items))
	for _, item := range m.items {
		items = append(items, item)
	}
	return items, m.limited, m.failed
}

// ready reports whether the objects were listed, or why they cannot be is known.
func (m *mirror[T]) ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listed || m.failed != nil
}

// run updates the mirror until the context ends. The last state stays while the API server does not respond.
func (m *mirror[T]) run(ctx context.Context) { m.loop().Run(ctx) }

func (m *mirror[T]) loop() *listwatch.Loop {
	next := retryPause
	return &listwatch.Loop{
		Client: m.client, After: m.after, Kind: m.list, List: m.load, Changed: m.apply,
		Ended: func(at listwatch.Request, err error) time.Duration {
			if at == listwatch.Watching {
				next = retryPause
			}
			if m.fail(at, err) {
				next = retryPause
				return pollPause
			}
			pause := next
			next = min(2*next, maxRetryPause)
			return pause
		},
	}
}

// fail stores why the mirror cannot be updated, and reports whether to wait for the next poll. A watch that has ended is
// not worth telling: the next list follows.
func (m *mirror[T]) fail(at listwatch.Request, err error) (poll bool) {
	if errors.Is(err, listwatch.ErrEnded) {
		return false
	}
	poll = at == listwatch.Starting && cmdutil.CodeOf(cmdutil.Explain(err)) == cmdutil.ExitForbidden
	if poll {
		err = fmt.Errorf("%w. This part of the page is updated every %s only", cmdutil.Explain(err), pollPause)
	}
	failed, refused := cmdutil.Explain(err), apierrors.IsUnauthorized(err)
	forbidden := cmdutil.CodeOf(failed) == cmdutil.ExitForbidden
	m.mu.Lock()
	m.failed = failed
	if forbidden && !refused && !poll {
		clear(m.items) // the user may not read them any more
	}
	m.mu.Unlock()
	m.changed()
	return poll || forbidden
}

// load lists the objects, and returns what selects their changes.
func (m *mirror[T]) load(ctx context.Context) (version string, opts []client.ListOption, err error) {
	opts = m.opts
	items, version, err := m.listAll(ctx, opts)
	var limited error
	if cmdutil.CodeOf(err) == cmdutil.ExitForbidden && m.fallback != "" {
		limited = err
		opts = append(slices.Clip(opts), client.InNamespace(m.fallback))
		items, version, err = m.listAll(ctx, opts)
	}
	if err != nil {
		return "", nil, err
	}
	m.mu.Lock()
	m.items, m.limited, m.failed, m.listed = items, limited, nil, true
	m.mu.Unlock()
	m.changed()
	return version, opts, nil
}

// listAll lists the objects, and returns the resource version from which a watch continues.
func (m *mirror[T]) listAll(ctx context.Context, opts []client.ListOption) (items map[client.ObjectKey]T, version string, err error) {
	items = map[client.ObjectKey]T{}
	page := m.list.DeepCopyObject().(client.ObjectList)
	var inPage error
	err = cmdutil.EachPage(ctx, m.client, page, func() {
		version = page.GetResourceVersion()
		inPage = errors.Join(inPage, meta.EachListItem(page, func(o runtime.Object) error {
			object := o.(client.Object)
			items[client.ObjectKeyFromObject(object)] = m.keep(object)
			return nil
		}))
		inPage = errors.Join(inPage, meta.SetList(page, nil)) // the next page must not be decoded into these items
	}, opts...)
	return items, version, errors.Join(err, inPage)
}

// apply applies a change of an object.
func (m *mirror[T]) apply(object client.Object, deleted bool) {
	m.mu.Lock()
	if deleted {
		delete(m.items, client.ObjectKeyFromObject(object))
	} else {
		m.items[client.ObjectKeyFromObject(object)] = m.keep(object)
	}
	m.mu.Unlock()
	m.changed()
}
