// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
)

// maxParallelWrites bounds the writes that one pass has under way. The API server's own priority
// and fairness does the rest: client-side throttling is off, and 429 is obeyed.
const maxParallelWrites = 16

// errRaced says that a node has changed since the plan was made. It is no error of the pass: the next
// decides anew.
var errRaced = errors.New("the node has changed meanwhile")

// applied is how a pass went, beside what failed.
type applied struct {
	// refused is true when the API server refused a pod.
	refused bool
	// again is true when there is something new to look at that no event tells: a write that came too late,
	// or evictions that were asked for.
	again bool
}

// apply does what the plan says. Actions are independent. Evictions come last, since they may take their time.
func (r *Reconciler) apply(ctx context.Context, seen observation, p plan.Plan) (applied, error) {
	var group errgroup.Group
	group.SetLimit(maxParallelWrites)
	var raced atomic.Bool
	var probed probed
	var starts []plan.Start
	var evictions []plan.Evict
	for _, action := range p.Actions {
		switch a := action.(type) {
		case plan.Start:
			starts = append(starts, a)
		case plan.Evict:
			evictions = append(evictions, a)
		default:
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
	}
	results := r.startAll(ctx, seen, starts, &group)
	evictCtx, cancel := context.WithTimeout(ctx, evictionsTimeout)
	defer cancel()
	r.evictAll(evictCtx, seen, evictions, &group)
	err := group.Wait()
	starts, results = probed.with(starts, results)
	refused, startErr := r.judgeStarts(seen, starts, results)
	// What blocks an eviction, and which pods are to leave a node, is only in the next plan.
	again := raced.Load() || len(evictions) > 0 || needsAnotherPass(seen, p) || r.problems.isFresh(client.ObjectKeyFromObject(seen.job))
	return applied{refused: refused, again: again}, errors.Join(err, startErr)
}

// needsAnotherPass is true when the plan asks for the pods of a node that nobody has tried to look at yet. One whose pods
// could not be listed is looked at when the plan says so: the rest of the NodeJob is not to be repeated until it works.
func needsAnotherPass(seen observation, p plan.Plan) bool {
	return slices.ContainsFunc(p.DrainPodRequests, func(l plan.DrainPodRequest) bool { return !seen.asked[l.UID] })
}

func (r *Reconciler) evictAll(ctx context.Context, seen observation, evictions []plan.Evict, group *errgroup.Group) {
	for _, a := range evictions {
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
	case plan.Stop:
		return r.stop(ctx, seen.job.Namespace, a.Pod)
	case plan.FinalizePod:
		r.noteForceDeleted(seen, a)
		return r.finalizeOwnPod(ctx, seen.job, a.Pod)
	case plan.RetainPod:
		return r.keep(ctx, seen.job, a.Pod)
	case plan.DeleteJob:
		return r.expire(ctx, seen.job)
	case plan.CleanUpNode:
		return r.forget(ctx, seen, a)
	case plan.RemoveFinalizer:
		return r.finish(ctx, seen.job)
	default: // plan.Start and plan.Evict are done by apply
		return fmt.Errorf("unexpected action %T", action)
	}
}

// noteForceDeleted notes that a pod was deleted by force before its end was recorded.
func (r *Reconciler) noteForceDeleted(seen observation, a plan.FinalizePod) {
	if a.Unrecorded && !r.written.wasRetained(a.Pod.UID) {
		r.podForceDeleted(client.ObjectKeyFromObject(seen.job), a.Pod.NodeUID, a.Pod.Name)
	}
}

// record writes the end of an attempt on its node, and only then lets the pod go.
func (r *Reconciler) record(ctx context.Context, seen observation, a plan.Record) error {
	err := r.changeNode(ctx, seen.input.Nodes, a.Node, a.Change)
	switch {
	case apierrors.IsNotFound(err):
		// Nothing to record on: once the cache shows that, the pod is let go.
		return nil
	case err != nil:
		return r.writeTrouble(seen.job, a.UID, fmt.Errorf("recording on node %s: %w", a.Node, err))
	}
	r.problems.ended(client.ObjectKeyFromObject(seen.job), a.UID, a.Record.Revision, a.Record.Retry, r.Now())
	r.recorded(seen, a)
	if a.Pod.UID == "" {
		return nil // it was time that ended the run
	}
	if a.Retain {
		return r.keep(ctx, seen.job, a.Pod)
	}
	return r.finalizeOwnPod(ctx, seen.job, a.Pod)
}

// mark writes something else on a node.
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

// changeNode writes a change of a node. One that is made from what was seen holds for that only: that
// somebody was faster is normal, and errRaced.
func (r *Reconciler) changeNode(ctx context.Context, seen []plan.Node, name string, change record.Change) error {
	for range maxNodeTries {
		err := r.patchNode(ctx, name, change.Patch())
		if !change.Guarded() || !apierrors.IsConflict(err) {
			return err
		}
		// What has changed may wake nobody, and the cache may be behind.
		var live corev1.Node
		if err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, &live); err != nil {
			return err
		}
		r.written.rememberNode(stripNode(&live))
		if !sameForPlan(seen, &live) {
			break
		}
		change.ResourceVersion = live.ResourceVersion
	}
	return errRaced
}

// maxNodeTries is how often a change is written that only heartbeats have got in the way of. A node that joins has
// several of them in a second, from more than one writer.
const maxNodeTries = 5

// sameForPlan is true when the plan would decide the same for a node as it is now.
func sameForPlan(seen []plan.Node, live *corev1.Node) bool {
	i := slices.IndexFunc(seen, func(n plan.Node) bool { return n.Name == live.Name })
	if i < 0 {
		return false
	}
	before, after := seen[i], observe.Node(live)
	before.ResourceVersion, after.ResourceVersion = "", ""
	// Labels and annotations tell.
	before.On, after.On = record.NodeRecord{}, record.NodeRecord{}
	before.Published, after.Published = record.Published{}, record.Published{}
	return reflect.DeepEqual(before, after)
}

// patchNode writes to the node of the patch's UID, and remembers the result until the cache shows
// it.
func (r *Reconciler) patchNode(ctx context.Context, name string, patch []byte) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := r.Metrics.writes.Do(verbPatch, resourceNodes, func() error {
		return r.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
	})
	if err != nil {
		return err
	}
	r.written.rememberNode(stripNode(node))
	return nil
}

// stop asks for the end of a running pod. Our finalizer stays on it until its end is recorded.
func (r *Reconciler) stop(ctx context.Context, namespace string, pod plan.Pod) error {
	if err := r.deletePod(ctx, namespace, pod); err != nil {
		return err
	}
	r.written.rememberStopped(pod.UID, r.Now())
	return nil
}

// finalizePod lets a pod go: deleted, then our finalizer off. In this order an ended pod is gone with two writes to the
// API server's storage: without finalizer, a deletion is a write of its own before the pod goes, and every watch of pods gets
// one more event. Only a pod that is not found counts as gone already: after any other error, a conflict included, the
// finalizer may still be on it.
func (r *Reconciler) finalizePod(ctx context.Context, namespace string, pod plan.Pod) error {
	if pod.DeleteRequested.IsZero() {
		if err := r.deletePod(ctx, namespace, pod); err != nil {
			return err
		}
	}
	if pod.Finalized {
		live := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}}
		err := r.Metrics.writes.Do(verbPatch, resourcePods, func() error {
			return r.Client.Patch(ctx, live, client.RawPatch(types.StrategicMergePatchType, unfinalize(pod.UID)))
		})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("releasing pod %s: %w", pod.Name, err)
		}
	}
	r.written.rememberReleased(pod.UID, r.Now())
	return nil
}

// finalizeOwnPod releases a pod of this NodeJob, which may make room under a quota.
func (r *Reconciler) finalizeOwnPod(ctx context.Context, job *v1alpha1.NodeJob, pod plan.Pod) error {
	if err := r.finalizePod(ctx, job.Namespace, pod); err != nil {
		return err
	}
	r.tryPodsSoon(job)
	return nil
}

// tryPodsSoon lets pods that the API server has refused be tried at once: one less may have made room under a quota.
func (r *Reconciler) tryPodsSoon(job *v1alpha1.NodeJob) {
	name, now := client.ObjectKeyFromObject(job), r.Now()
	r.refusals.Soon(name, now)
	r.runnerRefusals.Soon(name, now)
}

// unfinalize is the strategic merge patch that takes our finalizer off the pod with that UID and
// leaves others alone. With another UID the API server answers with a conflict.
func unfinalize(uid types.UID) []byte {
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":                                 uid,
		"$deleteFromPrimitiveList/finalizers": []string{v1alpha1.PodFinalizer},
	}})
	if err != nil {
		panic(err) // strings always marshal
	}
	return b
}

func (r *Reconciler) deletePod(ctx context.Context, namespace string, pod plan.Pod) error {
	err := r.Metrics.writes.Do(verbDelete, resourcePods, func() error {
		return r.Client.Delete(ctx,
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}},
			client.Preconditions{UID: &pod.UID})
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return nil
}

// finish lets the NodeJob go.
func (r *Reconciler) finish(ctx context.Context, job *v1alpha1.NodeJob) error {
	err := r.patchFinalizer(ctx, job, controllerutil.RemoveFinalizer)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking the finalizer off: %w", err)
	}
	return nil
}
