// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
)

const (
	// DefaultCheckTimeoutSeconds is release.check.timeoutSeconds when omitted.
	DefaultCheckTimeoutSeconds = 60
	// DefaultCheckIntervalSeconds is release.check.intervalSeconds when omitted.
	DefaultCheckIntervalSeconds = 30

	// checkSlack is how long after its time limit a check that has not ended is taken away: the kubelet should have.
	checkSlack = 60 * time.Second

	// leastFresh is how long a check that said yes counts at least: with an interval of a second, it would be over
	// before a pass sees it.
	leastFresh = 30 * time.Second

	// maxMessageBytes bounds what others say, in the status.
	maxMessageBytes = 512
)

// deadlinePassed is in the message of a node that is held past its deadline.
const deadlinePassed = "; its deadline has passed"

// unchecked holds a node until its check has said yes, not long ago. On a node that is not Ready no check can run, and
// an unhealthy node may be repaired: there is none.
func (s *planner) unchecked(w *nodePlan) *hold {
	if !w.Ready {
		return nil
	}
	w.reserved = s.checking(w)
	switch pod := w.check; {
	case pod == nil && s.in.CheckObstacles[w.Name] != nil:
		return s.unstarted(w, s.in.CheckObstacles[w.Name])
	case pod == nil:
		w.reserved = true
		return s.saidBefore(w)
	case pod.Leaving:
		return s.saidBefore(w) // a node that does not end its pod keeps no other from being checked
	default:
		return s.answer(w, pod)
	}
}

// unstarted holds a node whose check the API server refuses.
func (s *planner) unstarted(w *nodePlan, o *Obstacle) *hold {
	w.reserved = !s.in.Now.Before(o.RetryAt) // one more may be tried: nothing else tells that the API server accepts it now
	if !w.reserved {
		s.plan.wake(o.RetryAt)
	}
	return &hold{reason: v1alpha1.ReasonCheckNotStarting, message: "release.check cannot be started: " + o.Message, release: "the API server accepts the pod of the check"}
}

// answer is what the check of a node says, or that it has said nothing yet; nil when it says yes.
func (s *planner) answer(w *nodePlan, pod *Pod) *hold {
	switch {
	case w.reserved && pod.ended():
		return nil
	case w.reserved:
		s.plan.wake(s.latestEnd(pod))
		if pod.Waiting != "" {
			running := checkRunning()
			running.message = "release.check does not start: " + bounded(pod.Waiting)
			return s.orBefore(w, running)
		}
	case s.overdue(w):
		s.plan.wake(s.latestEnd(pod).Add(s.checkInterval()))
		return &hold{reason: v1alpha1.ReasonCheckFailed, message: fmt.Sprintf("release.check did not end within %s, and the kubelet has not stopped it", s.checkTimeout()),
			release: fmt.Sprintf("the check ends with exit code 0: it runs again after %s", s.checkInterval())}
	case s.refusing(w):
		s.plan.wake(s.endOf(pod).Add(s.checkInterval()))
		return &hold{reason: v1alpha1.ReasonCheckFailed, message: fmt.Sprintf("release.check failed (exit code %d)%s", pod.ExitCode, said(pod.Message)),
			release: fmt.Sprintf("the check ends with exit code 0: it runs every %s", s.checkInterval())}
	}
	w.reserved = true
	return s.saidBefore(w)
}

func checkRunning() *hold {
	return &hold{reason: v1alpha1.ReasonCheckRunning, message: "release.check runs on it", release: "the check ends with exit code 0"}
}

// saidBefore keeps what the last check said until the next has ended: that is what people wait for.
func (s *planner) saidBefore(w *nodePlan) *hold { return s.orBefore(w, checkRunning()) }

func (s *planner) orBefore(w *nodePlan, running *hold) *hold {
	for i := range s.in.Guard.Status.Held {
		before := &s.in.Guard.Status.Held[i]
		if before.Node == w.Name && before.Reason == v1alpha1.ReasonCheckFailed && before.RequestedAt.Unix() == w.requestedAt.Unix() {
			message, _, _ := strings.Cut(before.Message, deadlinePassed)
			return &hold{reason: before.Reason, message: message, release: before.ReleasedWhen}
		}
	}
	return running
}

// checking is true while the check of a node runs, or has said yes not long ago. It keeps its place then, so that one that
// asked before, whose check says no again and again, does not come between.
func (s *planner) checking(w *nodePlan) bool {
	pod := w.check
	switch {
	case s.in.Guard.Spec.Release.When != v1alpha1.ReleaseWhenCheck, pod == nil, pod.Leaving, pod.RequestedAt != token(w.requestedAt), w.active():
		return false // a check for an earlier release request says nothing about this one
	case pod.ended():
		return pod.Phase == corev1.PodSucceeded && s.in.Now.Before(s.endOf(pod).Add(max(s.checkInterval(), leastFresh)))
	default:
		return s.in.Now.Before(s.latestEnd(pod))
	}
}

// latestEnd is when a check has ended, unless its kubelet does not stop it.
func (s *planner) latestEnd(pod *Pod) time.Time {
	return pod.Created.Add(s.checkTimeout() + checkSlack)
}

// overdue reports whether a check runs past its end. As one that says no, it does not keep others from being checked for a
// while: a kubelet that never ends a check holds its own node only.
func (s *planner) overdue(w *nodePlan) bool {
	pod := w.check
	return pod != nil && !pod.Leaving && !pod.ended() && pod.RequestedAt == token(w.requestedAt) &&
		!s.in.Now.Before(s.latestEnd(pod)) && s.in.Now.Before(s.latestEnd(pod).Add(s.checkInterval()))
}

// retainsTurn is true for a node that is being checked, or goes by what its check has said. One that waits for another
// NodeGuard keeps no other waiting.
func (s *planner) retainsTurn(w *nodePlan) bool {
	return s.checking(w) && (!w.check.ended() || s.heldByPeer(w) == nil)
}

// isAnswering is true while the check of a node runs, or has said no not long ago: that is what holds the node, also when
// another NodeGuard does.
func (s *planner) isAnswering(w *nodePlan) bool {
	return s.refusing(w) || s.overdue(w) || (s.checking(w) && !w.check.ended())
}

// endOf is when a check ended: not later than it may have run, whatever a node's clock says.
func (s *planner) endOf(pod *Pod) time.Time {
	if latest := s.latestEnd(pod); pod.Ended.After(latest) {
		return latest
	}
	return pod.Ended
}

// refusing is true while the check of a node has said no not long ago.
func (s *planner) refusing(w *nodePlan) bool {
	pod := w.check
	return pod != nil && !pod.Leaving && pod.RequestedAt == token(w.requestedAt) && pod.Phase == corev1.PodFailed &&
		s.in.Now.Before(s.endOf(pod).Add(s.checkInterval()))
}

// reconcileChecks makes the pods of checks that are to run, and takes away those that are over.
func (s *planner) reconcileChecks() {
	for _, w := range s.nodes {
		wanted := s.isChecked(w)
		switch pod := w.check; {
		case pod == nil:
			if wanted && w.reserved && w.noted() {
				s.makeCheck(w)
			}
		case pod.Leaving || w.releasing:
		case !wanted, w.reserved && !s.checking(w): // it counts no more, and another is to run in its place
			s.plan.do(DeletePod{*pod, v1alpha1.ReasonCheckFailed})
		}
	}
}

func (s *planner) makeCheck(w *nodePlan) {
	if name := s.freeName(v1alpha1.GuardRoleCheck, w.Name); name != "" {
		s.plan.do(MakeCheck{Node: w.Name, Name: name, RequestedAt: token(w.requestedAt)})
	}
}

func (s *planner) isChecked(w *nodePlan) bool {
	return w.requestsRelease() && !w.active() && s.in.Guard.Spec.Release.When == v1alpha1.ReleaseWhenCheck
}

// noted reports whether the release request is recorded on the budget: a check is for that request.
func (w *nodePlan) noted() bool { return w.budget != nil && w.budget.RequestedAt.Equal(w.requestedAt) }

func (s *planner) checkTimeout() time.Duration {
	return checkSeconds(s.in.Guard.Spec.Release.Check, func(c *v1alpha1.ReleaseCheck) *int32 { return c.TimeoutSeconds }, DefaultCheckTimeoutSeconds)
}

func (s *planner) checkInterval() time.Duration {
	return checkSeconds(s.in.Guard.Spec.Release.Check, func(c *v1alpha1.ReleaseCheck) *int32 { return c.IntervalSeconds }, DefaultCheckIntervalSeconds)
}

func checkSeconds(check *v1alpha1.ReleaseCheck, of func(*v1alpha1.ReleaseCheck) *int32, otherwise int32) time.Duration {
	seconds := otherwise
	if check != nil {
		if set := of(check); set != nil {
			seconds = *set
		}
	}
	return time.Duration(seconds) * time.Second
}

// token is a time as an annotation has it.
func token(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func said(message string) string {
	if message == "" {
		return ""
	}
	return ": " + bounded(message)
}

// bounded cleans and shortens text from other sources so that it can be shown.
func bounded(text string) string { return outcome.Clean(text, maxMessageBytes) }
