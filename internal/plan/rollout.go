// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/task"
)

// defaultMaxConcurrent is rollout.maxConcurrent when omitted, as in the CRD.
var defaultMaxConcurrent = intstr.FromString("25%")

// startWithinLimit starts what may start while slots are free: rollbacks first, then the nodes by step and name, so
// that the same cluster always rolls out in the same order. A node that joined after the revision became stable takes
// no slot.
func (s *planner) startWithinLimit() {
	matched, taken := s.slotsTaken()
	s.slots = maxConcurrent(s.in.Job.Spec.Rollout, matched)
	s.countUnavailable()
	candidates := s.candidates()
	for _, i := range candidates {
		w := &s.work[i]
		free := taken < s.slots || s.joinedAfterStable(w.node)
		if s.obstacleFor(w.start.Phase) != nil && *s.startsLike(w.start.Phase) > 0 {
			// One start shows whether the obstacle still exists.
			free = false
		}
		if !free {
			w.Message = fmt.Sprintf("it waits for one of %d slots (rollout.maxConcurrent)", s.slots)
			w.start = nil
			continue
		}
		if reason, message := s.mustNotDisrupt(w); reason != "" {
			if w.start.Phase == task.Task {
				w.set(Waiting, reason, message)
			} else {
				w.Reason, w.Message = reason, message
			}
			w.start = nil
			continue
		}
		if !s.joinedAfterStable(w.node) {
			taken++
		}
		s.take(w)
		if s.prepare(i) {
			s.begin(i)
		}
	}
}

// take counts a node that gets a slot as unavailable.
func (s *planner) take(w *nodePlan) {
	if s.disrupts() && !w.Unavailable {
		w.Unavailable = true
		s.unavailableNodes++
	}
}

// slotsTaken counts the nodes of the rollout, and how many of them take a slot.
func (s *planner) slotsTaken() (matched, taken int) {
	for i := range s.work {
		if s.work[i].State != Excluded || s.work[i].slot {
			matched++
		}
		if !s.work[i].slot {
			continue
		}
		s.busy++
		if !s.joinedAfterStable(s.work[i].node) {
			taken++
		}
	}
	return matched, taken
}

// candidates are the nodes on which an attempt may start, in start order.
func (s *planner) candidates() []int {
	var candidates []int
	for i := range s.work {
		if s.work[i].start != nil {
			candidates = append(candidates, i)
		}
	}
	slices.SortFunc(candidates, func(a, b int) int {
		return cmp.Or(s.lastTurn(a).Compare(s.lastTurn(b)), cmp.Compare(s.rank(a), s.rank(b)), cmp.Compare(s.work[a].step, s.work[b].step), cmp.Compare(s.work[a].Name, s.work[b].Name))
	})
	return candidates
}

// lastTurn is when a node last got a slot; zero if it never did. Nodes with a failed operation that only the manager
// knows of, and nodes that rerun the task, come after all others and take turns, because there may always be more of
// them than slots.
func (s *planner) lastTurn(i int) time.Time {
	w := &s.work[i]
	tried, rec := s.in.NodeProblems[w.node.UID].RetryAt, w.node.On.Record
	if !tried.IsZero() || !w.rerun || rec == nil || s.inPreparation(w) {
		return tried
	}
	return rec.EndedAt()
}

// begin starts the attempt of a node.
func (s *planner) begin(i int) {
	w := &s.work[i]
	s.starts++
	*s.startsLike(w.start.Phase)++
	s.busy++
	w.slot = true
	w.start.Gates = s.gate.gateKeys(w.node)
	s.do(Start{Attempt: *w.start})
	if w.start.Phase == task.Rollback {
		w.set(Failed, v1alpha1.ReasonRollingBack, "")
		return
	}
	w.ranRevision = true
	w.set(Running, v1alpha1.ReasonStarting, "")
}

// rank orders the candidates: what must be fixed comes before what is new, and what has started before what has not.
// The node of the manager comes last if its workloads would be disrupted.
func (s *planner) rank(i int) int {
	w := &s.work[i]
	switch {
	case w.start.Phase == task.Rollback:
		return 0
	case s.inPreparation(w):
		return 1
	case w.progressDeadlineExceeded:
		return 4 // its time has passed
	case s.disrupts() && w.node.Name == s.in.OwnNode:
		return 3
	}
	return 2
}

// maxConcurrent is how many of the matching nodes may run at the same time: at least one, or the task would never run.
func maxConcurrent(r v1alpha1.RolloutSpec, matched int) int {
	value := r.MaxConcurrent
	if value == nil {
		value = &defaultMaxConcurrent
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, matched, false)
	if err != nil {
		// The CRD validation rejects such values.
		return 1
	}
	return max(n, 1)
}
