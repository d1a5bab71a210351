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

// pollSeconds is how often the manager reads what it does not watch: Secrets that NodeJobs list, and the admission
// policies of gates.
const pollSeconds = 30

// wakeRoom is how many NodeJobs can wait for a pass after a poll.
const wakeRoom = 1024

// poll runs until the manager ends, at intervals slightly shorter than PollInterval. It only triggers a pass of a
// NodeJob if something has changed.
func (r watcher) poll(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, r.pollOnce, r.PollInterval*9/10, 0.1, true)
	return nil
}

func (r watcher) pollOnce(ctx context.Context) {
	r.pollSecrets(ctx)
	if err := r.pollGates(ctx); err != nil {
		logf.FromContext(ctx).WithName("poll").Error(err, "looking at what taints nodes")
	}
}

func (r watcher) pollGates(ctx context.Context) error {
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

// wakeUp triggers a pass of a NodeJob.
func (r *shell) wakeUp(ctx context.Context, name client.ObjectKey) {
	job := &v1alpha1.NodeJob{}
	job.Namespace, job.Name = name.Namespace, name.Name
	select {
	case r.wake <- event.GenericEvent{Object: job}:
	case <-ctx.Done():
	}
}
