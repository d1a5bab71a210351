// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

func asJob(o client.Object) *v1alpha1.NodeJob { return o.(*v1alpha1.NodeJob) }

// peerChanged triggers passes of the NodeJobs that are affected by the change of another one. An editor of one NodeJob
// can cause as many changes as the API server accepts, so they are collected like those of nodes. before is nil for a
// new NodeJob, and after is nil for a deleted one.
func (r *Reconciler) peerChanged(ctx context.Context, before, after *v1alpha1.NodeJob, q queue) {
	change := comparePeers(before, after)
	if change == nil {
		return
	}
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return // only a cache that is not started returns an error
	}
	for i := range jobs.Items {
		if job := &jobs.Items[i]; change.matters(job) {
			r.gather(client.ObjectKeyFromObject(job), q)
		}
	}
}

// peerChange is the part of a NodeJob's change that the plans of others read.
type peerChange struct {
	// is contains the existing versions: before, after, or both.
	is []*v1alpha1.NodeJob
	// keyChanged is true if its gate has another key than before, or was added or removed. All tasks tolerate the keys
	// of all gates, so this affects every NodeJob.
	keyChanged bool
}

// comparePeers returns nil for a change that affects no other NodeJob.
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

// gateKeyOf returns the key of a NodeJob's gate; "" if it has none.
func gateKeyOf(job *v1alpha1.NodeJob) string {
	if job.Spec.Gate == nil {
		return ""
	}
	return v1alpha1.GateKey(job)
}

// matters reports whether another NodeJob depends on the changed one, may be in a cycle with it, or shares its gate.
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
