// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Require sets the admission policies without which nothing starts.
func (r *Reconciler) Require(c *policies.Checker) {
	r.Policies = c
	c.OnChange(r.wakeAll)
}

// observeAuthorized is observe, after it is known whether anything may start for the NodeGuard. Like a NodeJob, it is stored
// under the resource version of the NodeGuard before anything starts.
func (r *Reconciler) observeAuthorized(ctx context.Context, g *v1alpha1.NodeGuard, from origin) (*observation, error) {
	_, notAllowed, err := r.obstacle(ctx, g)
	if err != nil {
		return nil, err
	}
	answer := policies.Answer{Authorization: g.Status.ControllerState.Authorization}
	if notAllowed == nil && g.DeletionTimestamp.IsZero() {
		written := policies.Written{Generation: g.Generation, Retry: task.RetryTokenOf(g), Created: g.CreationTimestamp.Time}
		confirm := fmt.Sprintf("kubectl -n %s annotate nodeguard %s %s=\"$(date +%%s)\" --overwrite", g.Namespace, g.Name, v1alpha1.RetryAnnotation)
		if answer, err = r.Policies.Ask(ctx, g.Status.ControllerState.Authorization, written, confirm); err != nil {
			return nil, err
		}
	}
	if answer.Wait > 0 {
		return nil, policies.UndecidedError(answer.Wait)
	}
	if answer.Store {
		changed := g.DeepCopy()
		changed.Status.ControllerState.Authorization = answer.Authorization
		if err := r.storeStatus(ctx, changed); err != nil {
			return nil, err
		}
		g = changed
	}
	seen, err := r.observe(ctx, g, from)
	if err != nil {
		return nil, err
	}
	seen.authorization = answer.Authorization
	if seen.input.NotAllowed == nil {
		seen.input.NotAllowed = answer.Obstacle
	}
	return seen, nil
}

// wakeAll triggers a pass of all NodeGuards.
func (r *Reconciler) wakeAll(ctx context.Context) {
	all, err := r.listNodeGuards(ctx, r.Client)
	if err != nil {
		logf.FromContext(ctx).Error(err, "waking all NodeGuards")
		return
	}
	for _, g := range all {
		r.wake.guard(client.ObjectKeyFromObject(g))
	}
}
