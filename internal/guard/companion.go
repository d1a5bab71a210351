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

// keepCompanions has exactly one companion on each guarded node, but on those that are going: what leaves must not come
// back. One that died on a node that is held comes back at once, since without it nothing holds the node.
func (s *survey) keepCompanions() {
	budget := s.mayMake()
	missing := 0
	var outdated []*work
	for _, w := range s.nodes {
		if w.letNow || w.active() {
			continue
		}
		switch c := w.companion; {
		case c == nil:
			budget -= s.makeCompanion(w, budget)
		case s.isOutdated(w):
			outdated = append(outdated, w)
		case c.ended() && !c.Leaving:
			s.bury(c)
		}
		if w.Ready && !isReady(w.companion) { // where the node is not Ready, its companion cannot be
			missing++
		}
	}
	s.replace(outdated, missing)
}

// makeCompanion returns how many it made, of so many that it may.
func (s *survey) makeCompanion(w *work, budget int) int {
	if budget <= 0 || !s.canHave(w) {
		return 0
	}
	s.plan.do(MakeCompanion{w.Name})
	return 1
}

// isOutdated is true for a companion that is to be replaced. Not on a node that asks to go: what holds it must not go
// away in that moment.
func (s *survey) isOutdated(w *work) bool {
	c := w.companion
	return c.Revision != s.in.Revision && !c.Leaving && !c.ended() && !w.asks() && (s.in.Obstacle == nil || !s.in.Now.Before(s.in.Obstacle.RetryAt))
}

// bury deletes a companion that the kubelet has ended, so that it is made anew.
func (s *survey) bury(c *Pod) {
	if again := c.Created.Add(failedWait); s.in.Now.Before(again) {
		s.plan.wake(again)
		return
	}
	s.plan.do(DeletePod{*c, v1alpha1.ReasonCompanionsNotReady})
}

// replace deletes companions that are out of date, so many at once: the next pass makes them anew, under the same name,
// so that there are never two on a node. Those that are not ready come first, and cost nothing.
func (s *survey) replace(outdated []*work, missing int) {
	slices.SortStableFunc(outdated, func(a, b *work) int {
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
func (s *survey) mayMake() int {
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

// canHave is true for a node on which a companion can run: elsewhere it would be stuck Pending, or thrown off again.
func (s *survey) canHave(w *work) bool {
	return w.Ready && !w.Deleting && s.repels(w) == nil
}

// repels is the taint that would throw the companion off the node. Others mean nothing to a pod that no scheduler places.
func (s *survey) repels(w *work) *corev1.Taint {
	var taints []corev1.Taint
	for _, taint := range w.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			taints = append(taints, taint)
		}
	}
	return task.Untolerated(taints, s.in.Tolerations)
}
