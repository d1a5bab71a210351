// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
)

// A run writes only its own NodeJob, also when that was deleted and another one was created with the same name. Each
// request has a timeout, because the run does not react to anything during a request, not even to Ctrl-C.
const (
	requestTimeout = 10 * time.Second
	createTimeout  = 30 * time.Second
)

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
func (r *running) suspend(ctx context.Context) {
	if r.stopErr = r.patchSpec(ctx, map[string]any{"suspend": true}); r.stopErr == nil {
		r.suspended = true
		r.observed()
	}
}

// patchSpec changes fields of the spec.
func (r *running) patchSpec(ctx context.Context, fields map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.job.UID}, "spec": fields})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	changed := r.job.DeepCopy()
	if err := r.client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return cmdutil.Explain(err)
	}
	r.job = changed
	return nil
}

// excludeGone removes the names of deleted nodes from the NodeJob, which selects nodes by name: otherwise a machine that
// registers with the name would run the command.
func (r *running) excludeGone(ctx context.Context) {
	if !r.toExclude {
		return
	}
	names := slices.DeleteFunc(slices.Clone(r.job.Spec.Nodes.Names), func(name string) bool { return r.gone[name] })
	switch {
	case len(names) == len(r.job.Spec.Nodes.Names):
	case len(names) == 0: // without names, the NodeJob would select all nodes
		r.suspend(ctx)
		r.excludeErr = r.stopErr
	default:
		if r.excludeErr = r.patchSpec(ctx, map[string]any{"nodes": map[string]any{"names": names}}); r.excludeErr == nil {
			r.observed()
		}
	}
	r.toExclude = r.excludeErr != nil
}

// endRun suspends the NodeJob after the result is known, because the nodes are selected by name, and a machine that registers
// later may have one of these names. It returns an error if this is not possible. A NodeJob that was deleted starts nothing.
func (r *running) endRun(ctx context.Context) error {
	if r.job.Spec.Suspend {
		return nil
	}
	r.suspend(ctx)
	if r.stopErr == nil || !r.exists(ctx) {
		return nil
	}
	return r.stopErr
}

// exists reports whether the NodeJob may still exist. One that has its name, but not its UID, is another one.
func (r *running) exists(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	var live v1alpha1.NodeJob
	err := r.client.Get(ctx, client.ObjectKeyFromObject(r.job), &live)
	return !apierrors.IsNotFound(err) && (err != nil || live.UID == r.job.UID)
}

// deleteJob deletes the NodeJob. It is not an error if the NodeJob is already deleted.
func (r *running) deleteJob(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	err := r.client.Delete(ctx, r.job, client.Preconditions{UID: &r.job.UID})
	if apierrors.IsConflict(err) {
		return nil // the NodeJob with this name is another one
	}
	return client.IgnoreNotFound(err)
}
