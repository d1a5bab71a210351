// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/task"
)

// failedWait is the least time between a companion and its successor, when the kubelet ended it: one that it refuses
// would be made again without end.
const failedWait = 30 * time.Second

// reconcileCompanions has exactly one companion on each guarded node, but on those that are going: what leaves must not come
// back. One that died on a node that is held comes back at once, since without it nothing holds the node.
func (s *planner) reconcileCompanions() {
	missing := 0
	var absent, outdated []*nodePlan
	for _, w := range s.nodes {
		s.deleteSurplus(w)
		if w.releasing || w.active() {
			continue
		}
		switch c := w.companion; {
		case c == nil:
			absent = append(absent, w)
		case s.isOutdated(w):
			outdated = append(outdated, w)
		case c.ended() && !c.Leaving:
			s.recreateEnded(c)
		}
		if w.Ready && !isReady(w.companion) { // where the node is not Ready, its companion cannot be
			missing++
		}
	}
	s.makeCompanions(absent)
	s.replace(outdated, missing)
}

// makeCompanions makes those that are missing. When the API server has refused one, it makes one at a time: that of the node
// that was refused the longest time ago, or never. So what is refused for one node keeps no other from having its own.
func (s *planner) makeCompanions(absent []*nodePlan) {
	absent = slices.DeleteFunc(absent, func(w *nodePlan) bool { return !s.canRunCompanion(w) })
	slices.SortStableFunc(absent, func(a, b *nodePlan) int { return s.in.RefusedAt[a.Name].Compare(s.in.RefusedAt[b.Name]) })
	may := s.mayMake()
	for _, w := range absent[:min(may, len(absent))] {
		if name := s.freeName(v1alpha1.GuardRoleCompanion, w.Name); name != "" {
			s.plan.do(MakeCompanion{Node: w.Name, Name: name})
		}
	}
}

// freeName is the first name of a pod that no pod of another owner has; "" before status.nameSalt is written: until
// then two managers can have different salts in mind, and make two pods.
func (s *planner) freeName(role, node string) string {
	g := s.in.Guard
	if g.Status.NameSalt == "" {
		return ""
	}
	for nth := 0; ; nth++ {
		name := PodName(g.Name, g.Status.NameSalt, role, node, nth)
		if _, taken := s.in.TakenNames[name]; !taken {
			return name
		}
	}
}

// deleteSurplus deletes all companions of a node but one. There are several only if a name that was taken became free again, while
// the cache did not show the companion with the other name. Only what the API server itself says is good enough for that.
func (s *planner) deleteSurplus(w *nodePlan) {
	for _, pod := range w.surplus {
		switch {
		case pod.Leaving:
		case !s.in.Live:
			s.plan.Confirm = true
		case !w.companion.Leaving:
			s.plan.do(DeletePod{*pod, v1alpha1.ReasonNameTaken})
		}
	}
}

// isOutdated is true for a companion that is to be replaced. Not on a node that asks to go: what holds it must not go
// away in that moment.
func (s *planner) isOutdated(w *nodePlan) bool {
	c := w.companion
	return c.Revision != s.in.Revision && !c.Leaving && !c.ended() && !w.requestsRelease() && (s.in.Obstacle == nil || !s.in.Now.Before(s.in.Obstacle.RetryAt))
}

// recreateEnded deletes a companion that the kubelet has ended, so that it is recreated.
func (s *planner) recreateEnded(c *Pod) {
	if again := c.Created.Add(failedWait); s.in.Now.Before(again) {
		s.plan.wake(again)
		return
	}
	s.plan.do(DeletePod{*c, v1alpha1.ReasonCompanionsNotReady})
}

// replace deletes companions that are out of date, so many at once: the next pass recreates them under the same name,
// so that there are never two on a node. Those that are not ready come first, and cost nothing.
func (s *planner) replace(outdated []*nodePlan, missing int) {
	slices.SortStableFunc(outdated, func(a, b *nodePlan) int {
		if ra, rb := isReady(a.companion), isReady(b.companion); ra != rb {
			if rb {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	limit := max(scaled(s.in.Guard.Spec.UpdateStrategy.MaxUnavailable, len(s.nodes)), 1)
	for _, w := range outdated {
		if isReady(w.companion) {
			if missing >= limit {
				return
			}
			missing++
		}
		s.plan.do(DeletePod{*w.companion, v1alpha1.ReasonRevisionStarted})
	}
}

// mayMake is how many pods may be made: one to try, where the API server has refused the last.
func (s *planner) mayMake() int {
	switch o := s.in.Obstacle; {
	case o == nil:
		return len(s.nodes)
	case s.in.Now.Before(o.RetryAt):
		s.plan.wake(o.RetryAt)
		return 0
	default:
		return 1
	}
}

// canRunCompanion is true for a node on which a companion can run: elsewhere it would be stuck Pending, or thrown off again. It waits
// for the companion of an earlier NodeGuard of the same name to leave.
func (s *planner) canRunCompanion(w *nodePlan) bool {
	return w.Ready && !w.Deleting && !w.succeeds && s.untoleratedTaint(w) == nil
}

// untoleratedTaint is the taint that would throw the companion off the node. Others mean nothing to a pod that no scheduler places.
func (s *planner) untoleratedTaint(w *nodePlan) *corev1.Taint {
	var taints []corev1.Taint
	for _, taint := range w.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			taints = append(taints, taint)
		}
	}
	return task.Untolerated(taints, s.in.Tolerations)
}
