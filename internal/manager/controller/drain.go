// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/observe"
)

// drainLookInterval is the minimum time between two lists of a node's pods, except after our own evictions.
const drainLookInterval = time.Second

// nodeNameField is the field by which the API server selects the pods of a node.
const nodeNameField = "spec.nodeName"

// observeDrains lists the pods that must still be evicted from the nodes that the last plan has requested. The cache
// contains only our own pods. Nodes whose pods cannot be listed now are omitted, so that the rest does not wait for
// them. asked are all nodes that it tried to list.
func (r observer) observeDrains(ctx context.Context, job *v1alpha1.NodeJob, in plan.Input) (drains map[types.UID][]plan.DrainPod, asked map[types.UID]bool) {
	looks := r.drains.asked(client.ObjectKeyFromObject(job))
	seen := make([]*[]plan.DrainPod, len(looks))
	var group errgroup.Group
	group.SetLimit(maxParallelReads)
	for i, look := range looks {
		group.Go(func() error {
			pods, err := r.podsToEvict(ctx, job, look, in.Now)
			if err != nil {
				logf.FromContext(ctx).Error(err, "looking at a drain", "node", look.Node)
				return nil // the other nodes are read all the same
			}
			seen[i] = &pods
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
	drains, asked = make(map[types.UID][]plan.DrainPod, len(looks)), make(map[types.UID]bool, len(looks))
	for i, look := range looks {
		asked[look.UID] = true
		if seen[i] != nil {
			drains[look.UID] = *seen[i]
		}
	}
	return drains, asked
}

// maxParallelReads limits the concurrent lists of one pass.
const maxParallelReads = 8

func (r observer) podsToEvict(ctx context.Context, job *v1alpha1.NodeJob, look plan.DrainPodRequest, now time.Time) ([]plan.DrainPod, error) {
	key := drainKey{client.ObjectKeyFromObject(job), look.Node}
	if pods, ok := r.drains.fresh(key, now); ok {
		return pods, nil
	}
	selector, deleteEmptyDirData, err := observe.Drain(look.Drain)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	var pods []plan.DrainPod
	err = r.eachPage(ctx, &list, func() {
		for i := range list.Items {
			pod := &list.Items[i]
			if observe.EvictedByDrain(pod) && client.ObjectKeyFromObject(pod) != r.Own.Pod && selector.Matches(labels.Set(pod.Labels)) {
				pods = append(pods, observe.DrainPod(pod, deleteEmptyDirData))
			}
		}
	}, client.MatchingFields{nodeNameField: look.Node})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", look.Node, err)
	}
	return r.drains.looked(key, pods, now), nil
}

// drains remembers, for the nodes that are being drained, their pods and the results of their evictions. After a
// restart of the manager, this is found out again by one eviction request for each pod.
type drains struct {
	mu    sync.Mutex
	looks map[client.ObjectKey][]plan.DrainPodRequest
	seen  map[drainKey]*drainView
}

type drainKey struct {
	job  client.ObjectKey
	node string
}

type drainView struct {
	// looked is when the pods were listed; zero if they must be listed again.
	looked time.Time
	pods   []plan.DrainPod
	tries  map[types.UID]eviction
}

type eviction struct {
	at time.Time
	// blocked is why the eviction was denied; "" if it was granted.
	blocked string
}

func newDrains() drains {
	return drains{looks: map[client.ObjectKey][]plan.DrainPodRequest{}, seen: map[drainKey]*drainView{}}
}

// fresh returns what was listed, if that was recently.
func (d *drains) fresh(key drainKey, now time.Time) ([]plan.DrainPod, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	view, ok := d.seen[key]
	if !ok || view.looked.IsZero() || !now.Before(view.looked.Add(drainLookInterval)) {
		return nil, false
	}
	return view.told(), true
}

// looked stores the listed pods, and returns them with what is remembered about each.
func (d *drains) looked(key drainKey, pods []plan.DrainPod, now time.Time) []plan.DrainPod {
	d.mu.Lock()
	defer d.mu.Unlock()
	view := &drainView{looked: now, pods: pods, tries: map[types.UID]eviction{}}
	if before, ok := d.seen[key]; ok {
		for i := range pods {
			if try, tried := before.tries[pods[i].UID]; tried {
				view.tries[pods[i].UID] = try
			}
		}
	}
	d.seen[key] = view
	return view.told()
}

func (v *drainView) told() []plan.DrainPod {
	pods := slices.Clone(v.pods)
	for i := range pods {
		try := v.tries[pods[i].UID]
		pods[i].TriedAt, pods[i].Blocked = try.at, try.blocked
	}
	return pods
}

// tried stores the result of an eviction. After it, the list of pods is outdated in any case.
func (d *drains) tried(key drainKey, pod types.UID, try eviction) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if view, ok := d.seen[key]; ok {
		view.tries[pod] = try
		view.looked = time.Time{}
	}
}

// ask stores the nodes whose pods the next pass lists, and deletes what is remembered about others.
func (d *drains) ask(job client.ObjectKey, looks []plan.DrainPodRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(looks) == 0 {
		delete(d.looks, job)
	} else {
		d.looks[job] = looks
	}
	maps.DeleteFunc(d.seen, func(k drainKey, _ *drainView) bool {
		return k.job == job && !slices.ContainsFunc(looks, func(l plan.DrainPodRequest) bool { return l.Node == k.node })
	})
}

func (d *drains) asked(job client.ObjectKey) []plan.DrainPodRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.looks[job]
}

// forget deletes what is remembered for a NodeJob.
func (d *drains) forget(job client.ObjectKey) { d.ask(job, nil) }
