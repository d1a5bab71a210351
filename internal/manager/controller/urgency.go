// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "github.com/everynode/everynode/internal/nodejob/plan"

// urgency orders the writes of a pass by who waits for them.
type urgency int

const (
	// forRecords: users, the workloads behind a gate, and the next step wait for the end of an attempt, and a node that waits for its
	// confirmation reverts without it.
	forRecords urgency = iota
	// forChanges: an attempt that has not started waits for the other changes of its node, and a deletion for what it
	// removes.
	forChanges
	// forStarts: a node waits for its task. The status is written after these, and evictions are last, because they can
	// take long.
	forStarts
	// forClaims: the seats of nodes are evicted, which can also take long.
	forClaims
	forEvictions
	// forReleases: pods whose outcome is on record are released in the background (see releases).
	forReleases
	urgencies
)

// urgencyOf is the only place that decides which write goes first.
func urgencyOf(action plan.Action) urgency {
	switch a := action.(type) {
	case plan.Record, plan.Confirm:
		return forRecords
	case plan.FinalizePod:
		if a.Awaited {
			return forChanges
		}
		return forReleases
	case plan.RetainPod:
		return forReleases
	case plan.Start:
		return forStarts
	case plan.Claim:
		return forClaims
	case plan.Evict:
		return forEvictions
	default:
		return forChanges
	}
}

// byUrgency groups the actions of a plan. Within a group, they stay in the order of the plan.
func byUrgency(actions []plan.Action) [urgencies][]plan.Action {
	var groups [urgencies][]plan.Action
	for _, action := range actions {
		u := urgencyOf(action)
		groups[u] = append(groups[u], action)
	}
	return groups
}
