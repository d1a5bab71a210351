// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// A run writes only its own NodeJob, also when that was deleted and another one was created with the same name. Each
// request has a timeout, because the run does not react to anything during a request, not even to Ctrl-C.
const (
	requestTimeout = 10 * time.Second
	createTimeout  = 30 * time.Second
)

// ownJob is the NodeJob of a run: what was observed of it, and what the run writes to it.
type ownJob struct {
	*options
	job *v1alpha1.NodeJob
	// seen reports whether a manager has observed the NodeJob.
	seen      bool
	suspended bool
	// stopErr is the error of the last try to suspend the NodeJob.
	stopErr error
	// gone are the names of nodes whose Node was deleted. A Node that registers with one of these names is not a node of the run.
	// toExclude reports whether spec.nodes.names may still have one of them, and excludeErr is the error of the last try to
	// remove it.
	gone       map[string]bool
	toExclude  bool
	excludeErr error
	// patience is the timeout of each request.
	patience time.Duration
}

// setJob notes an observation.
func (j *ownJob) setJob(job *v1alpha1.NodeJob) {
	j.job = job
	j.seen = j.seen || slices.Contains(job.Finalizers, v1alpha1.NodeJobFinalizer)
}

// create creates the NodeJob.
func (o *options) create(ctx context.Context, job *v1alpha1.NodeJob) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	err := o.client.Create(ctx, job)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return cmdutil.Failf(cmdutil.ExitNoAnswer, "creating the NodeJob: %w. It is not known whether it was created. Check with: kubectl everynode list -n %s", cmdutil.Explain(err), o.namespace)
	}
	return fmt.Errorf("creating the NodeJob: %w", cmdutil.Explain(err))
}

// suspend prevents further attempts from starting.
func (j *ownJob) suspend(ctx context.Context) {
	if j.stopErr = j.patchSpec(ctx, map[string]any{"suspend": true}); j.stopErr == nil {
		j.suspended = true
	}
}

// patchSpec changes fields of the spec.
func (j *ownJob) patchSpec(ctx context.Context, fields map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, j.patience)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": j.job.UID}, "spec": fields})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	changed := j.job.DeepCopy()
	if err := j.client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return cmdutil.Explain(err)
	}
	j.setJob(changed)
	return nil
}

// excludeGone removes the names of deleted nodes from the NodeJob, which selects nodes by name: otherwise a machine that
// registers with the name would run the command.
func (j *ownJob) excludeGone(ctx context.Context) {
	if !j.toExclude {
		return
	}
	names := slices.DeleteFunc(slices.Clone(j.job.Spec.Nodes.Names), func(name string) bool { return j.gone[name] })
	switch {
	case len(names) == len(j.job.Spec.Nodes.Names):
	case len(names) == 0: // without names, the NodeJob would select all nodes
		j.suspend(ctx)
		j.excludeErr = j.stopErr
	default:
		j.excludeErr = j.patchSpec(ctx, map[string]any{"nodes": map[string]any{"names": names}})
	}
	j.toExclude = j.excludeErr != nil
}

// endRun suspends the NodeJob after the result is known, because the nodes are selected by name, and a machine that registers
// later may have one of these names. It returns an error if this is not possible. A NodeJob that was deleted starts nothing.
func (j *ownJob) endRun(ctx context.Context) error {
	if j.job.Spec.Suspend {
		return nil
	}
	j.suspend(ctx)
	if j.stopErr == nil || !j.exists(ctx) {
		return nil
	}
	return j.stopErr
}

// exists reports whether the NodeJob may still exist. One that has its name, but not its UID, is another one.
func (j *ownJob) exists(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, j.patience)
	defer cancel()
	var live v1alpha1.NodeJob
	err := j.client.Get(ctx, client.ObjectKeyFromObject(j.job), &live)
	return !apierrors.IsNotFound(err) && (err != nil || live.UID == j.job.UID)
}

// deleteJob deletes the NodeJob. It is not an error if the NodeJob is already deleted.
func (j *ownJob) deleteJob(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, j.patience)
	defer cancel()
	err := j.client.Delete(ctx, j.job, client.Preconditions{UID: &j.job.UID})
	if apierrors.IsConflict(err) {
		return nil // the NodeJob with this name is another one
	}
	return client.IgnoreNotFound(err)
}

// withdraw deletes a NodeJob that has started nothing, as far as its status says, after it was suspended. It returns false, and leaves the
// NodeJob suspended, if there is a pod, or if the NodeJob has changed meanwhile.
func (j *ownJob) withdraw(ctx context.Context) bool {
	if !j.job.Spec.Suspend {
		if j.suspend(ctx); j.stopErr != nil {
			return false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, j.patience)
	defer cancel()
	var pods corev1.PodList
	err := j.client.List(ctx, &pods, client.InNamespace(j.job.Namespace), client.MatchingLabels{v1alpha1.NodeJobLabel: j.job.Name}, client.Limit(1))
	if err != nil || len(pods.Items) > 0 || j.job.Status.Nodes.Running > 0 {
		return false
	}
	return j.client.Delete(ctx, j.job, client.Preconditions{UID: &j.job.UID, ResourceVersion: &j.job.ResourceVersion}) == nil
}

// notSuspended returns what may still start, and how to prevent it.
func (j *ownJob) notSuspended(err error) string {
	until := j.job.CreationTimestamp.Add(j.startingDeadline).UTC().Format("2006-01-02 15:04:05 UTC")
	return fmt.Sprintf("NodeJob %s could not be suspended: %s. Until %s, a machine that registers with the name of one of its nodes runs the command. To prevent this: kubectl everynode suspend %s",
		j.job.Name, strings.TrimSuffix(err.Error(), "."), until, j.where())
}

// where returns the NodeJob as command line arguments.
func (j *ownJob) where() string { return j.job.Name + " -n " + j.job.Namespace }

// unobserved returns what to do if no manager observes the NodeJob, and what happens otherwise.
func (j *ownJob) unobserved() string {
	return fmt.Sprintf("the manager has not observed the NodeJob yet; check that it is running: %s. When it runs again, the NodeJob starts, also if this "+
		"command has ended; to prevent this: kubectl delete nodejob %s", view.CheckManager, j.where())
}

// stopping returns the effect of the first Ctrl-C, and what a second one would do.
func (j *ownJob) stopping() string {
	switch {
	case !j.suspended && j.stopErr != nil:
		return "the NodeJob could not be suspended; retrying: " + j.stopErr.Error()
	case j.suspended && !j.seen:
		return "stopping: no manager has observed the NodeJob, so nothing was started"
	case j.remove:
		return "stopping: no new attempts start, and running attempts may finish. Ctrl-C again ends them and deletes the NodeJob"
	}
	return "stopping: no new attempts start, and running attempts may finish. Ctrl-C again ends this command only"
}
