// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"fmt"
	"slices"
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

// targets has a cache for the pods of each namespace that has NodeGuards, which these share: users choose selectors, so one for each
// selector would be as many watches as they like. A cache of all pods of the cluster would need more memory than everything else.
type targets struct {
	config *rest.Config
	scheme *runtime.Scheme
	wake   *waker

	mu sync.Mutex
	// ctx is the context of the manager; nil before it has started.
	ctx    context.Context         //nolint:containedctx // caches start later and must end with the manager
	caches map[string]*targetCache // by namespace
}

// targetCache ends with the last of its NodeGuards. guards are the selectors of their targets.
type targetCache struct {
	cache.Cache
	cancel context.CancelFunc
	guards map[client.ObjectKey]labels.Selector
}

func newTargets(config *rest.Config, scheme *runtime.Scheme, wake *waker) *targets {
	return &targets{config: config, scheme: scheme, wake: wake, caches: map[string]*targetCache{}}
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
	err = pods.List(ctx, &list, client.InNamespace(guard.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	return list.Items, err
}

func (t *targets) cacheOf(guard client.ObjectKey, selector labels.Selector) (*targetCache, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx == nil {
		return nil, fmt.Errorf("watching the target of %s: the manager has not begun", guard)
	}
	if t.caches[guard.Namespace] == nil {
		c, err := t.begin(guard.Namespace)
		if err != nil {
			return nil, err
		}
		t.caches[guard.Namespace] = c
	}
	t.caches[guard.Namespace].guards[guard] = selector
	return t.caches[guard.Namespace], nil
}

// begin watches the pods of a namespace. The caller has locked mu.
func (t *targets) begin(namespace string) (*targetCache, error) {
	c, err := cache.New(t.config, cache.Options{
		Scheme:      t.scheme,
		NewInformer: loop.NewInformer,
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Namespaces: map[string]cache.Config{namespace: {}},
			Transform:  loop.Strip,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("making a cache: %w", err)
	}
	ctx, cancel := context.WithCancel(t.ctx)
	informer, err := c.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err == nil {
		err = t.tell(informer)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	go func() { _ = c.Start(ctx) }() // it ends with the context, and has no other error
	return &targetCache{Cache: c, cancel: cancel, guards: map[client.ObjectKey]labels.Selector{}}, nil
}

// tell triggers passes of NodeGuards when a pod of their target changes in a relevant way.
func (t *targets) tell(informer cache.Informer) error {
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(pod any) { t.changed(pod.(*corev1.Pod)) },
		UpdateFunc: func(before, after any) {
			if podChanged(before.(*corev1.Pod), after.(*corev1.Pod)) {
				t.changed(before.(*corev1.Pod), after.(*corev1.Pod))
			}
		},
		DeleteFunc: func(o any) {
			if unknown, is := o.(toolscache.DeletedFinalStateUnknown); is {
				o = unknown.Obj
			}
			t.changed(o.(*corev1.Pod))
		},
	})
	return err
}

// changed triggers passes of the NodeGuards whose target a version of a pod belongs to.
func (t *targets) changed(versions ...*corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.caches[versions[0].Namespace]
	if c == nil {
		return
	}
	for guard, selector := range c.guards {
		if slices.ContainsFunc(versions, func(pod *corev1.Pod) bool { return selector.Matches(labels.Set(pod.Labels)) }) {
			t.wake.guard(guard)
		}
	}
}

// forget ends the cache of a namespace with its last NodeGuard.
func (t *targets) forget(guard client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.caches[guard.Namespace]
	if c == nil {
		return
	}
	if delete(c.guards, guard); len(c.guards) == 0 {
		c.cancel()
		delete(t.caches, guard.Namespace)
	}
}
