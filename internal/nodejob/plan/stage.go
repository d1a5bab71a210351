// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodecondition"
)

// stage is how far the disruption of a node is that the NodeJob holds. It is for display: no decision is made from it. A node that
// is quarantined after a failure is drained at most, because its maintenance has ended.
func (p *planner) stage(w *nodePlan) (s nodecondition.Stage) {
	s.InProgress = w.slot && !w.preparing || w.taskTerminating || p.continuesRun(w)
	s.Planned = !s.InProgress && (w.State == Waiting || w.State == Running)
	s.Draining = w.isDrained()
	s.Drained = !s.Draining && w.node.Unschedulable && (w.wasDrained() || s.InProgress && w.State != Done && p.in.Job.Spec.Maintenance.Drain != nil)
	return s
}

// isDrained reports whether a drain of the node continues, before the task or after a failure.
func (w *nodePlan) isDrained() bool {
	rec := w.node.On.Record
	return w.found != nil && w.found.drain != nil || rec != nil && drains(rec)
}

// wasDrained reports whether the node was drained after a failure.
func (w *nodePlan) wasDrained() bool {
	rec := w.node.On.Record
	return rec != nil && rec.Drain != nil && rec.Drain.Outcome == v1alpha1.ReasonDrained
}
