// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

const (
	// besidePasses is how many pods are released at a time while a pass writes, and for afterPasses after it, because
	// another pass may follow: few, so that they delay nothing, but never none, so that they end. There is one more for
	// each perBacklog of them that wait. Otherwise it is maxParallelWrites, so an idle manager releases pods at once.
	besidePasses = 1
	perBacklog   = 1000
	afterPasses  = 4 * leastGather

	// releaseTimeout ends the release of a pod whose requests get no response.
	releaseTimeout = 30 * time.Second

	// drainTimeout is how long a manager that ends still releases pods. What remains is released by the next one.
	drainTimeout = 5 * time.Second

	// A NodeJob is planned again after these waits if a release has failed: the plan says whether it is still needed.
	firstReleaseWait   = time.Second
	longestReleaseWait = 30 * time.Second
)

// release is a pod that is released because its outcome is on record.
type release struct {
	job *v1alpha1.NodeJob
	pod plan.Pod
	// retain is true if the pod is retained for its logs.
	retain bool
	// unrecorded is true for a pod that says that its outcome was recorded, although its node has no record of it.
	unrecorded bool
}

// releaseState is what the queue knows about a pod.
type releaseState int

const (
	releaseUnknown releaseState = iota
	releaseQueued
	releaseAtWork
	// releaseFailed : it waits before it may be queued again.
	releaseFailed
)

// releases is the queue of the pods that are released in the background, after all other writes. It is only in
// memory. Each plan contains the pods that are not released yet, also the first plan of the next manager.
type releases struct {
	mu sync.Mutex
	// runs is true while a manager runs the queue.
	runs  bool
	known map[types.UID]releaseState
	queue []release
	// atWork counts the pods that are being released, and passes the passes that write, or have ended less than
	// afterPasses ago.
	atWork, passes int
	// wait is how long the next failure waits.
	wait time.Duration
	// changed tells run to look again.
	changed chan struct{}
	pending prometheus.Gauge
}

func newReleases(pending prometheus.Gauge) *releases {
	return &releases{known: map[types.UID]releaseState{}, changed: make(chan struct{}, 1), pending: pending}
}

// add queues a pod, unless it is queued. It returns false if no manager runs the queue.
func (q *releases) add(r release) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.runs {
		return false
	}
	if q.known[r.pod.UID] != releaseUnknown {
		return true
	}
	q.known[r.pod.UID] = releaseQueued
	q.queue = append(q.queue, r)
	q.update()
	return true
}

// take removes a pod from the queue, because it is released at once. It returns false if it is being released.
func (q *releases) take(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known[uid] == releaseQueued {
		q.queue = slices.DeleteFunc(q.queue, func(r release) bool { return r.pod.UID == uid })
		delete(q.known, uid)
		q.update()
	}
	return q.known[uid] != releaseAtWork
}

// has reports whether a pod is queued or being released.
func (q *releases) has(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	state := q.known[uid]
	return state == releaseQueued || state == releaseAtWork
}

// passBegins is called before the writes of a pass, which go first.
func (q *releases) passBegins() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.passes++
}

// passEnds is called after the writes of a pass.
func (q *releases) passEnds() {
	time.AfterFunc(afterPasses, func() { //nolint:forbidigo // a wait, and no time
		q.mu.Lock()
		defer q.mu.Unlock()
		q.passes--
		q.update()
	})
}

// next takes the next pod from the queue; false if none may be released now.
func (q *releases) next() (release, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	limit := maxParallelWrites
	if q.passes > 0 {
		limit = min(limit, besidePasses+len(q.queue)/perBacklog)
	}
	if len(q.queue) == 0 || q.atWork >= limit {
		return release{}, false
	}
	next := q.queue[0]
	q.queue = q.queue[1:]
	q.known[next.pod.UID] = releaseAtWork
	q.atWork++
	return next, true
}

// ended notes that a release has ended. If it has failed, it returns how long to wait before the next plan.
func (q *releases) ended(uid types.UID, failed bool) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.atWork--
	defer q.update()
	if !failed {
		q.wait = 0
		delete(q.known, uid)
		return 0
	}
	q.known[uid] = releaseFailed
	q.wait = min(max(2*q.wait, firstReleaseWait), longestReleaseWait)
	return q.wait
}

// forget lets a pod be queued again.
func (q *releases) forget(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.known, uid)
}

// idle reports whether nothing is queued or being released.
func (q *releases) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue)+q.atWork == 0
}

// update tells run to look again. The caller must hold the lock.
func (q *releases) update() {
	q.pending.Set(float64(len(q.queue) + q.atWork))
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

func (q *releases) setRuns(runs bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.runs = runs
}

// releaser releases pods.
type releaser struct{ writer }

// releasePods releases pods in the background until the manager ends, and then for a moment.
func (r releaser) releasePods(ctx context.Context) error {
	writes, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	r.releases.setRuns(true)
	defer r.releases.setRuns(false)
	var workers sync.WaitGroup
	defer workers.Wait()
	var drained <-chan time.Time
	ends := ctx.Done()
	for {
		for next, ok := r.releases.next(); ok; next, ok = r.releases.next() {
			workers.Go(func() { r.releaseQueued(writes, ctx, next) })
		}
		if ends == nil && r.releases.idle() {
			return nil
		}
		select {
		case <-r.releases.changed:
		case <-ends:
			ends, drained = nil, time.After(drainTimeout) //nolint:forbidigo // a wait, and no time
		case <-drained:
			cancel()
			return nil
		}
	}
}

// releaseQueued releases a pod of the queue. If that fails, the NodeJob is planned again after a wait, unless the manager
// ends before.
func (r releaser) releaseQueued(ctx, manager context.Context, next release) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := r.release(ctx, next)
	wait := r.releases.ended(next.pod.UID, err != nil)
	if err == nil {
		return
	}
	name := client.ObjectKeyFromObject(next.job)
	logf.FromContext(ctx).WithName("releases").Error(err, "releasing a pod", "namespace", name.Namespace, "nodejob", name.Name)
	r.writeFailed(next.job, err)
	time.AfterFunc(wait, func() { //nolint:forbidigo // a wait, and no time
		r.releases.forget(next.pod.UID)
		r.wakeUp(manager, name)
	})
}

// releaseLater releases a pod in the background.
func (r releaser) releaseLater(ctx context.Context, next release) error {
	if r.releases.add(next) {
		return nil
	}
	return r.release(ctx, next)
}

// releaseNow releases a pod that a node or a deletion waits for. If it is being released, there is nothing to do.
func (r releaser) releaseNow(ctx context.Context, next release) error {
	if !r.releases.take(next.pod.UID) {
		return nil
	}
	return r.release(ctx, next)
}

// release releases a pod, unless it was released after the plan was made.
func (r releaser) release(ctx context.Context, next release) error {
	if r.written.wasFinalized(next.pod.UID) {
		return nil
	}
	if next.unrecorded && !r.written.wasRetained(next.pod.UID) {
		// It was force-deleted before its end was recorded.
		r.podForceDeleted(client.ObjectKeyFromObject(next.job), next.pod.NodeUID, next.pod.Name, r.Now())
	}
	if next.retain {
		return r.keep(ctx, next.job, next.pod)
	}
	return r.finalizeOwnPod(ctx, next.job, next.pod)
}
