// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// maxParallelWrites limits the concurrent writes of one pass. The API server's priority and fairness does the rest:
// client-side throttling is disabled, and 429 responses are respected.
const maxParallelWrites = 16

// errRaced means that a node or a pod has changed since the plan was made. It is not an error of the pass: the next pass makes a
// new plan.
var errRaced = errors.New("the object has changed meanwhile")

// applied is the result of a pass, apart from errors.
type applied struct {
	// refused is true if the API server rejected a pod.
	refused bool
	// again is true if another pass is needed that no event triggers: after a write that came too late, or after
	// evictions.
	again bool
	// more is true if the next pass should begin at once, because pods remain to be created.
	more bool
	// claimed are the results of claims.
	claimed *claimed
}

// apply executes the actions of the plan. They are independent. They begin in the order of their urgency.
func (r *Reconciler) apply(ctx context.Context, seen observation, p plan.Plan) (applied, error) {
	do := byUrgency(p.Actions)
	if len(p.Actions) > len(do[forReleases]) {
		r.releases.passBegins()
		defer r.releases.passEnds()
	}
	var group errgroup.Group
	group.SetLimit(maxParallelWrites)
	var raced atomic.Bool
	var probed probed
	for _, action := range slices.Concat(do[forRecords], do[forChanges]) {
		group.Go(func() error {
			if !r.mayPrepare(ctx, seen, action, &probed) {
				return nil
			}
			err := r.act(ctx, seen, action)
			if errors.Is(err, errRaced) {
				raced.Store(true)
				return nil
			}
			return err
		})
	}
	starts := asStarts(do[forStarts])
	results := r.startAll(ctx, seen, starts, &group)
	evictCtx, cancel := context.WithTimeout(ctx, evictionsTimeout)
	defer cancel()
	claims := r.claimAll(evictCtx, seen, do[forClaims], &group)
	r.evictAll(evictCtx, seen, do[forEvictions], &group)
	for _, action := range do[forReleases] {
		// A plan contains all pods that are not released yet, so most of them are queued already.
		if next, ok := releaseOf(seen.job, action); ok && r.releases.add(next) {
			continue
		}
		group.Go(func() error { return r.act(ctx, seen, action) })
	}
	err := group.Wait()
	more := slices.Contains(results, errPostponed)
	starts, results = probed.with(starts, results)
	refused, startErr := r.judgeStarts(seen, starts, results)
	// Only the next plan contains what blocks an eviction, and which pods must be evicted from a node.
	again := raced.Load() || len(do[forEvictions]) > 0 || needsAnotherPass(seen, p) || r.problems.isFresh(client.ObjectKeyFromObject(seen.job))
	return applied{refused: refused, again: again, more: more, claimed: claims}, errors.Join(err, startErr)
}

// needsAnotherPass reports whether the plan needs the pods of a node that no pass has tried to list yet. If listing the
// pods of a node failed, it is retried when the plan says so: the rest of the NodeJob is not repeated for it.
func needsAnotherPass(seen observation, p plan.Plan) bool {
	return slices.ContainsFunc(p.DrainPodRequests, func(l plan.DrainPodRequest) bool { return !seen.asked[l.UID] })
}

func (r *Reconciler) evictAll(ctx context.Context, seen observation, evictions []plan.Action, group *errgroup.Group) {
	for _, action := range evictions {
		a, ok := action.(plan.Evict)
		if !ok {
			continue
		}
		for _, pod := range a.Pods {
			group.Go(func() error { r.evict(ctx, seen, a, pod); return nil })
		}
	}
}

func (r *Reconciler) act(ctx context.Context, seen observation, action plan.Action) error {
	switch a := action.(type) {
	case plan.Record:
		return r.record(ctx, seen, a)
	case plan.PatchNode:
		return r.mark(ctx, seen, a)
	case plan.DeleteJob:
		return r.expire(ctx, seen.job)
	case plan.CleanUpNode:
		return r.forget(ctx, seen, a)
	case plan.RemoveFinalizer:
		return r.finish(ctx, seen.job)
	default:
		return r.actOnPod(ctx, seen, action)
	}
}

// actOnPod executes an action on a pod.
func (r *Reconciler) actOnPod(ctx context.Context, seen observation, action plan.Action) error {
	switch a := action.(type) {
	case plan.Stop:
		return r.stop(ctx, seen.job.Namespace, a.Pod)
	case plan.Confirm:
		return r.confirm(ctx, seen.job.Namespace, a.Pod)
	case plan.FinalizePod:
		next, _ := releaseOf(seen.job, a)
		if a.Awaited {
			return r.releaseNow(ctx, next)
		}
		return r.releaseLater(ctx, next)
	case plan.RetainPod:
		next, _ := releaseOf(seen.job, a)
		return r.releaseLater(ctx, next)
	default: // plan.Start, plan.Claim and plan.Evict are done by apply
		return fmt.Errorf("unexpected action %T", action)
	}
}

// releaseOf returns what to release for a plan.FinalizePod or plan.RetainPod; false for another action.
func releaseOf(job *v1alpha1.NodeJob, action plan.Action) (release, bool) {
	if a, ok := action.(plan.RetainPod); ok {
		return release{job: job, pod: a.Pod, retain: true}, true
	}
	a, ok := action.(plan.FinalizePod)
	return release{job: job, pod: a.Pod, unrecorded: a.Unrecorded}, ok
}

// record writes the end of an attempt to its node, and only then releases a pod that has ended.
func (r *Reconciler) record(ctx context.Context, seen observation, a plan.Record) error {
	if err := r.checkRuns(ctx, seen.job.Namespace, a.Pod); err != nil {
		return err
	}
	err := r.changeNode(ctx, seen.input.Nodes, a.Node, a.Change)
	switch {
	case apierrors.IsNotFound(err):
		// The node no longer exists, so nothing can be recorded. The pod is released when the cache shows that.
		return nil
	case err != nil:
		return r.writeTrouble(seen.job, a.UID, fmt.Errorf("recording on node %s: %w", a.Node, err))
	}
	r.problems.ended(client.ObjectKeyFromObject(seen.job), a.UID, a.Record.Revision, a.Record.Retry, r.Now())
	r.recorded(seen, a)
	if a.Pod.UID == "" {
		return nil // a time limit ended the run, not a pod
	}
	r.written.rememberRecorded(a.Pod.UID, a.UID, r.Now())
	if a.Ending {
		return nil
	}
	return r.releaseLater(ctx, release{job: seen.job, pod: a.Pod, retain: a.Retain})
}

// mark writes anything other than the end of an attempt to a node.
func (r *Reconciler) mark(ctx context.Context, seen observation, a plan.PatchNode) error {
	err := r.changeNode(ctx, seen.input.Nodes, a.Node, a.Change)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return r.writeTrouble(seen.job, a.UID, fmt.Errorf("marking node %s as %s: %w", a.Node, a.Reason, err))
	}
	r.problems.clear(client.ObjectKeyFromObject(seen.job), a.UID, v1alpha1.ReasonRecordRejected)
	r.nodePatched(seen.job, a)
	return nil
}

func (r *Reconciler) forget(ctx context.Context, seen observation, a plan.CleanUpNode) error {
	err := r.changeNode(ctx, seen.input.Nodes, a.Node, a.Change)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return r.writeTrouble(seen.job, a.UID, fmt.Errorf("removing what the NodeJob has put on node %s: %w", a.Node, err))
	}
	r.uncordoned(seen.job, a.Node, a.UID, a.Cordon)
	return nil
}

// finish removes our finalizer from the NodeJob.
func (r *Reconciler) finish(ctx context.Context, job *v1alpha1.NodeJob) error {
	err := r.patchFinalizer(ctx, job, controllerutil.RemoveFinalizer)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking the finalizer off: %w", err)
	}
	return nil
}
