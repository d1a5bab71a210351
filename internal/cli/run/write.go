// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
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
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	changed := r.job.DeepCopy()
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"suspend":true}}`, r.job.UID)
	if err := r.client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch)); err != nil {
		r.stopErr = cmdutil.Explain(err)
		return
	}
	r.suspended = true
	r.job = changed
	r.observed()
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
