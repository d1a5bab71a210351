// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
)

// authorize observes why nothing may start for the NodeJob, if anything: its namespace, or the admission policies. It follows
// the read of the NodeJob and of its scripts. What it finds out is stored under the resource version of the NodeJob before
// anything starts, because only then it was found out about the current NodeJob.
func (r observer) authorize(ctx context.Context, seen *observation) error {
	job := seen.job
	seen.authorization = job.Status.ControllerState.Authorization
	var err error
	in := &seen.input
	in.AllowedNodes, in.NotAllowed, err = r.namespaces().Check(ctx, job.Namespace, job.Status.Conditions)
	if err != nil || in.NotAllowed != nil {
		return err
	}
	if o := seen.input.Obstacle; o != nil && o.Reason == v1alpha1.ReasonNamespaceTerminating {
		return nil // its scripts are not read, and no pod can be created
	}
	written := policies.Written{
		Generation: job.Generation, Retry: task.RequestToken(job), Contents: contentsHash(job, seen.source), Created: job.CreationTimestamp.Time,
	}
	// After a retry, the API server has asked for the rights to the NodeJob.
	confirm := plan.Remedy{Verb: plan.VerbRetry}.Kubectl(job, "")
	answer, err := r.Policies.Ask(ctx, job.Status.ControllerState.Authorization, written, confirm)
	switch {
	case err != nil:
		return err
	case answer.Wait > 0:
		return policies.UndecidedError(answer.Wait)
	}
	seen.input.NotAllowed, seen.authorization = answer.Obstacle, answer.Authorization
	if !answer.Store {
		return nil
	}
	status := job.DeepCopy().Status
	status.ControllerState.Authorization = answer.Authorization
	changed, err := r.writeStatus(ctx, job, status)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return policies.UndecidedError(loop.Soon) // the NodeJob has changed meanwhile; the cache shows it a moment later
	case err != nil:
		return fmt.Errorf("writing status.controllerState.authorization: %w", err)
	}
	seen.job, seen.input.Job = changed, changed
	return nil
}

// contentsHash is a hash of the scripts and files from ConfigMaps, which can change without the NodeJob; "" if there are none.
func contentsHash(job *v1alpha1.NodeJob, source task.Source) string {
	if len(observe.ConfigMapNames(job)) == 0 {
		return ""
	}
	return kube.ShortHash(fmt.Sprintf("%q %q %q %q %q", source.Script, source.Check, source.Rollback, source.Expires, source.Files))
}

// undecided returns the result of a pass that ended before its plan.
func undecided(err error) (ctrl.Result, error) {
	if wait, is := errors.AsType[policies.UndecidedError](err); is {
		return ctrl.Result{RequeueAfter: time.Duration(wait)}, nil
	}
	return ctrl.Result{}, err
}

// wakeAll triggers a pass of all NodeJobs.
func (r watcher) wakeAll(ctx context.Context) {
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).Error(err, "listing NodeJobs")
		return
	}
	for i := range jobs.Items {
		r.wakeUp(ctx, client.ObjectKeyFromObject(&jobs.Items[i]))
	}
}
