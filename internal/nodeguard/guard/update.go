// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
)

// updatedAtOnce is how many percent of the companions are missing or not ready at the same time while they are replaced, at least one.
const updatedAtOnce = 10

// isOutdated reports whether a companion has to be replaced. On a node that requests release it is not replaced,
// because without a companion nothing holds the node at that moment.
func (o observed) isOutdated(n *nodePlan) bool {
	c := n.companion
	return o.in.NotAllowed == nil && c.Revision != o.in.Revision && !c.Terminating && !c.ended() && !n.requestsRelease() && (o.in.Obstacle == nil || !o.in.Now.Before(o.in.Obstacle.Until))
}

// replace deletes outdated companions, at most updatedAtOnce of them. The next pass recreates them under the
// same name, so that a node never has two. Companions that are not ready are replaced first, and do not count.
func (p *planner) replace(outdated []*nodePlan, missing int) {
	slices.SortStableFunc(outdated, func(a, b *nodePlan) int {
		if ra, rb := isReady(a.companion), isReady(b.companion); ra != rb {
			if rb {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	limit := max(len(p.nodes)*updatedAtOnce/100, 1)
	for _, n := range outdated {
		if isReady(n.companion) {
			if missing >= limit {
				return
			}
			missing++
		}
		p.plan.do(DeletePod{Pod: *n.companion, Reason: v1alpha1.ReasonRevisionStarted})
	}
}
