// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
)

// pollSeconds is how often the manager looks at what it does not watch: Secrets that NodeJobs name, and the admission
// policy of the gate.
const pollSeconds = 30

// wakeRoom is how many NodeJobs can wait to be looked at for what a poll has found.
const wakeRoom = 1024

// poll looks until the manager ends, a little more often than every PollInterval. It wakes a NodeJob only when something
// has changed.
func (r *Reconciler) poll(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, r.pollOnce, r.PollInterval*9/10, 0.1, true)
	return nil
}

func (r *Reconciler) pollOnce(ctx context.Context) {
	r.pollSecrets(ctx)
	if err := r.pollGates(ctx); err != nil {
		logf.FromContext(ctx).WithName("poll").Error(err, "looking at what taints nodes")
	}
}

func (r *Reconciler) pollGates(ctx context.Context) error {
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeJobs: %w", err)
	}
	var gated []client.ObjectKey
	for i := range jobs.Items {
		if jobs.Items[i].Spec.Gate != nil {
			gated = append(gated, client.ObjectKeyFromObject(&jobs.Items[i]))
		}
	}
	if len(gated) == 0 && r.gates.isKnown() {
		return nil
	}
	missing, bound, err := r.lookAtGates(ctx)
	if err != nil {
		return err
	}
	if r.gates.set(missing, bound) {
		for _, name := range gated {
			r.wakeUp(ctx, name)
		}
	}
	return nil
}

func (g *gates) isKnown() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known
}

// wakeUp has a NodeJob looked at.
func (r *Reconciler) wakeUp(ctx context.Context, name client.ObjectKey) {
	job := &v1alpha1.NodeJob{}
	job.Namespace, job.Name = name.Namespace, name.Name
	select {
	case r.wake <- event.GenericEvent{Object: job}:
	case <-ctx.Done():
	}
}
