// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/api/v1alpha1"
)

func asJob(o client.Object) *v1alpha1.NodeJob { return o.(*v1alpha1.NodeJob) }

// peerChanged wakes the NodeJobs to which the change of another one matters. An editor of one NodeJob can cause as many
// changes as the API server accepts, so they are gathered as those of nodes are. before is nil for a NodeJob that is new,
// and after for one that is gone.
func (r *Reconciler) peerChanged(ctx context.Context, before, after *v1alpha1.NodeJob, q queue) {
	change := comparePeers(before, after)
	if change == nil {
		return
	}
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return // only a cache that is not started answers with an error
	}
	wait := r.looks.gather(r.Now())
	for i := range jobs.Items {
		if job := &jobs.Items[i]; change.matters(job) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)}, wait)
		}
	}
}

// peerChange is what of a NodeJob's change the plans of others would read.
type peerChange struct {
	// is has the versions that there are: before, after, or both.
	is []*v1alpha1.NodeJob
	// keyChanged is true when its gate has another key than before, or there is or was none. The keys of all gates are
	// tolerated by all tasks, so this matters to every NodeJob.
	keyChanged bool
}

// comparePeers returns nil for a change that matters to no other NodeJob.
func comparePeers(before, after *v1alpha1.NodeJob) *peerChange {
	switch {
	case before == nil:
		return &peerChange{is: []*v1alpha1.NodeJob{after}, keyChanged: gateKeyOf(after) != ""}
	case after == nil:
		return &peerChange{is: []*v1alpha1.NodeJob{before}, keyChanged: gateKeyOf(before) != ""}
	case before.UID == after.UID && before.Generation == after.Generation && before.Status.Revision == after.Status.Revision &&
		before.Status.ObservedGeneration == after.Status.ObservedGeneration && before.DeletionTimestamp.IsZero() == after.DeletionTimestamp.IsZero():
		return nil
	}
	return &peerChange{is: []*v1alpha1.NodeJob{before, after}, keyChanged: gateKeyOf(before) != gateKeyOf(after)}
}

// gateKeyOf returns the key of a NodeJob's gate; "" when it has none.
func gateKeyOf(job *v1alpha1.NodeJob) string {
	if job.Spec.Gate == nil {
		return ""
	}
	return v1alpha1.GateKey(job)
}

// matters reports whether another NodeJob depends on the changed one, may be in a circle with it, or shares its gate.
func (c *peerChange) matters(job *v1alpha1.NodeJob) bool {
	return slices.ContainsFunc(c.is, func(changed *v1alpha1.NodeJob) bool {
		switch {
		case changed.UID == job.UID:
			return false
		case c.keyChanged, gateKeyOf(changed) != "" && gateKeyOf(changed) == gateKeyOf(job):
			return true
		case changed.Namespace != job.Namespace:
			return false
		}
		return slices.Contains(job.Spec.DependsOn, changed.Name) || (len(job.Spec.DependsOn) > 0 && len(changed.Spec.DependsOn) > 0)
	})
}
