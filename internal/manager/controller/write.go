// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/observe"
)

// writer writes to nodes, pods and NodeJobs, and remembers what it has written.
type writer struct{ announcer }

// changeNode writes a change to a node. A change that is based on the observed version is only valid for that version:
// if another client was faster, that is normal, and it returns errRaced.
func (r writer) changeNode(ctx context.Context, seen []plan.Node, name string, change record.Change) error {
	for range maxNodeTries {
		err := r.patchNode(ctx, name, change.Patch())
		if !change.Guarded() || !apierrors.IsConflict(err) {
			return err
		}
		// The change may trigger no event, and the cache may be stale.
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

// maxNodeTries is how often a write is tried that conflicts only with heartbeats. A joining node has several of them
// per second, from more than one client.
const maxNodeTries = 5

// sameForPlan reports whether the plan would make the same decisions for a node in its current version.
func sameForPlan(seen []plan.Node, live *corev1.Node) bool {
	i := slices.IndexFunc(seen, func(n plan.Node) bool { return n.Name == live.Name })
	if i < 0 {
		return false
	}
	before, after := seen[i], observe.Node(live)
	before.ResourceVersion, after.ResourceVersion = "", ""
	// Labels and annotations are compared instead.
	before.On, after.On = record.NodeRecord{}, record.NodeRecord{}
	before.OnPeers, after.OnPeers = nil, nil
	before.Published, after.Published = record.Published{}, record.Published{}
	return reflect.DeepEqual(before, after)
}

// patchNode writes to the node that has the UID in the patch, and remembers the result until the cache shows it.
func (r writer) patchNode(ctx context.Context, name string, patch []byte) error {
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

// checkRuns returns errRaced for a pod that has ended, although the cache does not show that: its watch may be interrupted. It asks the API
// server, so it is only called if the outcome of a pod is decided without its end.
func (r writer) checkRuns(ctx context.Context, namespace string, pod plan.Pod) error {
	if pod.UID == "" || pod.Exit != nil || kube.PodEnded(pod.Phase) {
		return nil
	}
	var live corev1.Pod
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pod.Name}, &live)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting pod %s: %w", pod.Name, err)
	}
	if err == nil && live.UID == pod.UID && kube.PodEnded(live.Status.Phase) {
		r.written.rememberPod(stripPod(r.Options.Key, &live), r.Now())
		return errRaced
	}
	return nil
}

// stop deletes a pod that has run for too long. Our finalizer stays on it until its end is recorded.
func (r writer) stop(ctx context.Context, namespace string, pod plan.Pod) error {
	if err := r.checkRuns(ctx, namespace, pod); err != nil {
		return err
	}
	if err := r.deletePod(ctx, namespace, pod); err != nil {
		return err
	}
	r.written.rememberStopped(pod.UID, r.Now())
	return nil
}

// finalizePod deletes a pod and then removes our finalizer. In this order an ended pod needs two writes to the storage
// of the API server. Without the finalizer, the deletion needs a separate write before the pod is removed, and every
// watch of pods gets one more event. Only a pod that is not found counts as removed: after any other error, including a
// conflict, it may still have the finalizer.
func (r writer) finalizePod(ctx context.Context, namespace string, pod plan.Pod) error {
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

// finalizeOwnPod releases a pod of this NodeJob, which may free quota.
func (r writer) finalizeOwnPod(ctx context.Context, job *v1alpha1.NodeJob, pod plan.Pod) error {
	if err := r.finalizePod(ctx, job.Namespace, pod); err != nil {
		return err
	}
	r.retrySoon(client.ObjectKeyFromObject(job), r.Now())
	return nil
}

// unfinalize returns the strategic merge patch that removes our finalizer from the pod with that UID and keeps other
// finalizers. If the UID differs, the API server returns a conflict.
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

func (r writer) deletePod(ctx context.Context, namespace string, pod plan.Pod) error {
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

// writeTrouble records that the API server rejects a write to a Node, for example because its annotations are full. It
// would reject the next one as well, so that is not an error of the pass: other nodes continue. It returns any other
// error.
func (r writer) writeTrouble(job *v1alpha1.NodeJob, node types.UID, err error) error {
	if !refusedWrite(err) {
		return err
	}
	r.writeFailed(job, err)
	r.problems.note(client.ObjectKeyFromObject(job), node, v1alpha1.ReasonRecordRejected,
		err.Error()+". Make room in the annotations of the node, or allow the write", r.Now(), firstTroubleWait, longestTroubleWait)
	return nil
}

// patchFinalizer adds our finalizer to a NodeJob or removes it. It uses the resource version, because the list of
// finalizers has other writers.
func (r writer) patchFinalizer(ctx context.Context, job *v1alpha1.NodeJob, change func(client.Object, string) bool) error {
	changed := job.DeepCopy()
	change(changed, v1alpha1.NodeJobFinalizer)
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	err := r.Metrics.writes.Do(verbPatch, resourceNodeJobs, func() error { return r.Client.Patch(ctx, changed, patch) })
	if err == nil {
		r.written.rememberJob(strip(r.Options.Key, changed).(*v1alpha1.NodeJob))
	}
	return err
}
