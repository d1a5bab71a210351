// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/manager/loop"
)

// syncTimeout is how long a pass waits for the first list of a target's pods.
const syncTimeout = 20 * time.Second

// targets has a cache for the pods of each target, which the NodeGuards of that target share. The selectors are only known at run
// time, and a cache of all pods of the cluster would need more memory than everything else.
type targets struct {
	config *rest.Config
	scheme *runtime.Scheme
	wake   *waker

	mu sync.Mutex
	// ctx is the context of the manager; nil before it has started.
	ctx context.Context //nolint:containedctx // caches start later and must end with the manager
	// of is the target of each NodeGuard.
	of     map[client.ObjectKey]targetKey
	caches map[targetKey]*targetCache
}

// targetKey are the pods of a namespace that a selector selects.
type targetKey struct{ namespace, selector string }

// targetCache ends with the last of its NodeGuards.
type targetCache struct {
	cache.Cache
	cancel context.CancelFunc
	guards map[client.ObjectKey]bool
}

func newTargets(config *rest.Config, scheme *runtime.Scheme, wake *waker) *targets {
	return &targets{config: config, scheme: scheme, wake: wake, of: map[client.ObjectKey]targetKey{}, caches: map[targetKey]*targetCache{}}
}

// Start stores the context under which the caches run.
func (t *targets) Start(ctx context.Context) error {
	t.mu.Lock()
	t.ctx = ctx
	t.mu.Unlock()
	<-ctx.Done()
	return nil
}

// list returns the pods of a NodeGuard's target.
func (t *targets) list(ctx context.Context, guard client.ObjectKey, selector labels.Selector) ([]corev1.Pod, error) {
	pods, err := t.cacheOf(guard, selector) //nolint:contextcheck // the cache outlives the pass: it ends with the manager
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !pods.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("waiting for the first list: %w", context.Cause(ctx))
	}
	var list corev1.PodList
	err = pods.List(ctx, &list, client.InNamespace(guard.Namespace), client.UnsafeDisableDeepCopy)
	return list.Items, err
}

func (t *targets) cacheOf(guard client.ObjectKey, selector labels.Selector) (*targetCache, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := targetKey{guard.Namespace, selector.String()}
	if t.of[guard] != key {
		t.leave(guard)
	}
	if t.ctx == nil {
		return nil, fmt.Errorf("watching the target of %s: the manager has not begun", guard)
	}
	if t.caches[key] == nil {
		c, err := t.begin(key, selector)
		if err != nil {
			return nil, err
		}
		t.caches[key] = c
	}
	t.of[guard] = key
	t.caches[key].guards[guard] = true
	return t.caches[key], nil
}

// begin watches the pods of a target. The caller has locked mu.
func (t *targets) begin(key targetKey, selector labels.Selector) (*targetCache, error) {
	c, err := cache.New(t.config, cache.Options{
		Scheme:      t.scheme,
		NewInformer: loop.NewInformer,
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Namespaces: map[string]cache.Config{key.namespace: {LabelSelector: selector}},
			Transform:  loop.Strip,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("making a cache: %w", err)
	}
	ctx, cancel := context.WithCancel(t.ctx)
	informer, err := c.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err == nil {
		err = t.tell(informer, key)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	go func() { _ = c.Start(ctx) }() // it ends with the context, and has no other error
	return &targetCache{Cache: c, cancel: cancel, guards: map[client.ObjectKey]bool{}}, nil
}

// tell triggers passes of the NodeGuards of a target when one of its pods changes in a relevant way.
func (t *targets) tell(informer cache.Informer, key targetKey) error {
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { t.changed(key) },
		UpdateFunc: func(before, after any) {
			if podChanged(before.(*corev1.Pod), after.(*corev1.Pod)) {
				t.changed(key)
			}
		},
		DeleteFunc: func(any) { t.changed(key) },
	})
	return err
}

func (t *targets) changed(key targetKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.caches[key]; c != nil {
		for guard := range c.guards {
			t.wake.guard(guard)
		}
	}
}

func (t *targets) forget(guard client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(guard)
}

// leave ends the cache of a NodeGuard's target, unless another one needs it. The caller has locked mu.
func (t *targets) leave(guard client.ObjectKey) {
	key := t.of[guard]
	delete(t.of, guard)
	c := t.caches[key]
	if c == nil {
		return
	}
	if delete(c.guards, guard); len(c.guards) == 0 {
		c.cancel()
		delete(t.caches, key)
	}
}
