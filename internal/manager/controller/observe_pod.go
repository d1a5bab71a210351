// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/observe"
)

// viewPod returns the pod as the plan reads it, including our own writes that the cache may not show yet.
func viewPod(pod seenPod) plan.Pod { return viewOf(pod, observe.Pod(pod.Pod)) }

func viewOf(pod seenPod, view plan.Pod) plan.Pod {
	view.RecordedOn = pod.recordedOn
	view.Finalized = view.Finalized && !pod.finalized
	if pod.DeletionTimestamp == nil {
		view.DeleteRequested = pod.stopped
	}
	return view
}

// podViews caches what observe.Pod has read of the pods of a NodeJob's last pass. Most of them are unchanged in the
// next pass, and to decode their outcomes again would be a large part of its cost.
type podViews struct {
	mu sync.Mutex
	of map[client.ObjectKey]map[types.UID]podView
}

// podView is shared by passes and read-only.
type podView struct {
	resourceVersion string
	view            *plan.Pod
}

func newPodViews() podViews { return podViews{of: map[client.ObjectKey]map[types.UID]podView{}} }

// read returns viewPod of the pods. A NodeJob has one pass at a time.
func (v *podViews) read(job client.ObjectKey, pods []seenPod) []plan.Pod {
	v.mu.Lock()
	last := v.of[job]
	v.mu.Unlock()
	views, next := make([]plan.Pod, 0, len(pods)), make(map[types.UID]podView, len(pods))
	for _, pod := range pods {
		known := last[pod.UID]
		if known.view == nil || known.resourceVersion != pod.ResourceVersion || pod.ResourceVersion == "" {
			read := observe.Pod(pod.Pod)
			known = podView{pod.ResourceVersion, &read}
		}
		next[pod.UID] = known
		views = append(views, viewOf(pod, *known.view))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of[job] = next
	return views
}

// forget deletes what was stored for a NodeJob.
func (v *podViews) forget(job client.ObjectKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.of, job)
}
