// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// idleObstacle returns why nothing is done for a NodeJob: its namespace is not allowed, and it was never served. It returns nil
// for all others. One that was served ends in the usual way.
func (r observer) idleObstacle(ctx context.Context, job *v1alpha1.NodeJob) (*hold.Why, error) {
	if job.Status.Revision != "" || !job.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	_, obstacle, err := r.namespaces().Check(ctx, job.Namespace, job.Status.Conditions)
	if err != nil {
		return nil, err
	}
	if obstacle == nil {
		obstacle = r.noRoom(job)
	}
	if obstacle == nil {
		return nil, nil
	}
	own, _, err := r.podsOf(ctx, client.ObjectKeyFromObject(job), job.UID)
	if err != nil || len(own) > 0 {
		return nil, err
	}
	return obstacle, nil
}

// idle only reports a NodeJob, and deletes its metrics. It reads neither nodes nor other NodeJobs.
func (r *Reconciler) idle(ctx context.Context, job *v1alpha1.NodeJob, why *hold.Why) (ctrl.Result, error) {
	name, now := client.ObjectKeyFromObject(job), r.Now()
	r.Metrics.forget(name)
	r.tellIdle(job)
	status := plan.NotServed(job, why, now)
	status.ControllerState.Seal = job.Status.ControllerState.Seal
	report := r.Metrics.notServed.Add(name)
	result := ctrl.Result{}
	if !why.Until.IsZero() {
		result.RequeueAfter = why.Until.Sub(now)
	}
	if !report || equality.Semantic.DeepEqual(job.Status, status) {
		return result, nil
	}
	if wait := r.pace.Wait(name, now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	switch _, err := r.writeStatus(ctx, job, status); {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: loop.Soon}, nil
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("writing the status: %w", err))
	}
	r.pace.Wrote(name, now)
	r.announceConditions(ctx, job, status)
	return result, nil
}

// whole returns a NodeJob with its spec, which the cache does not have if its namespace was not allowed, or has no room for it.
func (r *shell) whole(ctx context.Context, job *v1alpha1.NodeJob) (*v1alpha1.NodeJob, error) {
	if !loop.IsTrimmed(job) {
		return job, nil
	}
	return r.liveJob(ctx, client.ObjectKeyFromObject(job))
}

// roomAgain is how often it is checked whether there is room for a NodeJob.
const roomAgain = time.Minute

// noRoom returns the obstacle of a NodeJob for whose spec there is no room; nil if there is.
func (r *shell) noRoom(job *v1alpha1.NodeJob) *hold.Why {
	if !r.Room.LacksRoom(job) {
		return nil
	}
	return &hold.Why{
		Reason: v1alpha1.ReasonNamespaceFull, Until: r.Now().Add(roomAgain),
		Message: fmt.Sprintf("nothing starts, because the specs of the NodeJobs of namespace %s have more than %d MiB together. Delete NodeJobs that are not needed, or put large content into an image or a ConfigMap (spec.task.files)",
			job.Namespace, loop.MaxSpecs>>20),
	}
}

// liveJob reads a NodeJob from the API server.
func (r *shell) liveJob(ctx context.Context, name client.ObjectKey) (*v1alpha1.NodeJob, error) {
	live := &v1alpha1.NodeJob{}
	if err := r.Reader.Get(ctx, name, live); err != nil {
		return nil, fmt.Errorf("getting NodeJob: %w", err)
	}
	return strip(r.Options.Key, live).(*v1alpha1.NodeJob), nil
}
