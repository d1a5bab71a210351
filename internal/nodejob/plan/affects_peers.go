// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/everynode/everynode/api/v1alpha1"
)

// PeerChange is what differs between two versions of a NodeJob, as far as the plans of others read it.
type PeerChange struct {
	// is contains the existing versions: before, after, or both; none if no other NodeJob is affected.
	is []*v1alpha1.NodeJob
	// keyChanged is true if its gate has another key than before, or was added or removed. All tasks tolerate the keys
	// of all gates, so this affects every NodeJob.
	keyChanged bool
}

// ComparePeers compares two versions of a NodeJob. before is nil for a new NodeJob, and after is nil for a deleted one.
func ComparePeers(before, after *v1alpha1.NodeJob) PeerChange {
	switch {
	case before == nil:
		return PeerChange{is: []*v1alpha1.NodeJob{after}, keyChanged: gateKeyOf(after) != ""}
	case after == nil:
		return PeerChange{is: []*v1alpha1.NodeJob{before}, keyChanged: gateKeyOf(before) != ""}
	case before.UID == after.UID && before.Generation == after.Generation && before.Status.Revision == after.Status.Revision &&
		before.Status.ObservedGeneration == after.Status.ObservedGeneration && before.DeletionTimestamp.IsZero() == after.DeletionTimestamp.IsZero():
		return PeerChange{}
	}
	return PeerChange{is: []*v1alpha1.NodeJob{before, after}, keyChanged: gateKeyOf(before) != gateKeyOf(after)}
}

// IsEmpty reports whether the change affects no other NodeJob.
func (c PeerChange) IsEmpty() bool { return len(c.is) == 0 }

// Affects reports whether another NodeJob depends on the changed one, may be in a cycle with it, or shares its gate.
func (c PeerChange) Affects(job *v1alpha1.NodeJob) bool {
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

// gateKeyOf returns the key of a NodeJob's gate; "" if it has none.
func gateKeyOf(job *v1alpha1.NodeJob) string {
	if job.Spec.Gate == nil {
		return ""
	}
	return v1alpha1.GateKey(job)
}
