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

// failedWait is the minimum age of a companion that the kubelet ended before it is replaced. Without it, a companion
// that the kubelet rejects would be recreated in an endless loop.
const failedWait = 30 * time.Second

// reconcileCompanions ensures that each guarded node has exactly one companion, except released nodes: an evicted
// companion must not be recreated there. On a held node, a companion that ended is recreated at once, because the node
// is not protected without it.
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
		case c.ended() && !c.Terminating:
			s.recreateEnded(c)
		}
		if w.Ready && !isReady(w.companion) { // on a node that is not Ready, the companion cannot be ready
			missing++
		}
	}
	s.createCompanions(absent)
	s.replace(outdated, missing)
}

// createCompanions creates the missing companions. After the API server has rejected one, it creates one at a time: for
// the node that was rejected the longest time ago, or never. So a rejection for one node does not prevent companions on
// other nodes.
func (s *planner) createCompanions(absent []*nodePlan) {
	absent = slices.DeleteFunc(absent, func(w *nodePlan) bool { return !s.canRunCompanion(w) })
	slices.SortStableFunc(absent, func(a, b *nodePlan) int { return s.in.RefusedAt[a.Name].Compare(s.in.RefusedAt[b.Name]) })
	may := s.mayCreate()
	for _, w := range absent[:min(may, len(absent))] {
		if name := s.freeName(v1alpha1.GuardRoleCompanion, w.Name); name != "" {
			s.plan.do(CreateCompanion{Node: w.Name, Name: name})
		}
	}
}

// freeName returns the first pod name that no pod of another owner has. It returns "" until status.nameSalt is written:
// before that, two managers can have different salts and would create two pods.
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

// deleteSurplus deletes all companions of a node except one. There are several only if a taken name became free again
// while the cache did not show the companion with the other name. It requires a live read of the API server.
func (s *planner) deleteSurplus(w *nodePlan) {
	for _, pod := range w.surplus {
		switch {
		case pod.Terminating:
		case !s.in.Live:
			s.plan.Confirm = true
		case !w.companion.Terminating:
			s.plan.do(DeletePod{*pod, v1alpha1.ReasonNameTaken})
		}
	}
}

// isOutdated reports whether a companion has to be replaced. On a node that requests release it is not replaced,
// because without a companion nothing holds the node at that moment.
func (s *planner) isOutdated(w *nodePlan) bool {
	c := w.companion
	return c.Revision != s.in.Revision && !c.Terminating && !c.ended() && !w.requestsRelease() && (s.in.Obstacle == nil || !s.in.Now.Before(s.in.Obstacle.RetryAt))
}

// recreateEnded deletes a companion that the kubelet has ended, so that it is recreated.
func (s *planner) recreateEnded(c *Pod) {
	if again := c.Created.Add(failedWait); s.in.Now.Before(again) {
		s.plan.wake(again)
		return
	}
	s.plan.do(DeletePod{*c, v1alpha1.ReasonCompanionsNotReady})
}

// replace deletes outdated companions, as many as the update strategy allows. The next pass recreates them under the
// same name, so that a node never has two. Companions that are not ready are replaced first, and do not count.
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

// mayCreate returns how many pods may be created: only one, as a test, if the API server rejected the last one.
func (s *planner) mayCreate() int {
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

// canRunCompanion reports whether a companion can run on a node: elsewhere it would remain Pending or be evicted. It
// waits until the companion of an earlier NodeGuard of the same name has terminated.
func (s *planner) canRunCompanion(w *nodePlan) bool {
	return w.Ready && !w.Deleting && !w.succeeds && s.untoleratedTaint(w) == nil
}

// untoleratedTaint returns the taint that would evict the companion from the node. Other taints do not affect a pod
// that is not scheduled.
func (s *planner) untoleratedTaint(w *nodePlan) *corev1.Taint {
	var taints []corev1.Taint
	for _, taint := range w.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			taints = append(taints, taint)
		}
	}
	return task.Untolerated(taints, s.in.Tolerations)
}
