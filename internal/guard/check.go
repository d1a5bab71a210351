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

	// checkSlack is how long after its timeout an unfinished check is deleted. The kubelet should have ended it by
	// then.
	checkSlack = 60 * time.Second

	// leastFresh is the minimum time for which a successful check counts. Otherwise, with an interval of one second,
	// its result would expire before a pass sees it.
	leastFresh = 30 * time.Second

	// maxMessageBytes limits text from other sources in the status.
	maxMessageBytes = 512
)

// deadlinePassed is part of the message for a node that is held past its deadline.
const deadlinePassed = "; its deadline has passed"

// unchecked holds a node until its check has succeeded recently. A node that is not Ready needs no check: no pod can
// run there, and an unhealthy node may be repaired.
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
	case pod.Terminating:
		return s.saidBefore(w) // a node that does not end its pod keeps no other from being checked
	default:
		return s.answer(w, pod)
	}
}

// unstarted holds a node if the API server rejects the pod of its check.
func (s *planner) unstarted(w *nodePlan, o *Obstacle) *hold {
	w.reserved = !s.in.Now.Before(o.RetryAt) // one more may be tried: nothing else tells that the API server accepts it now
	if !w.reserved {
		s.plan.wake(o.RetryAt)
	}
	return &hold{reason: v1alpha1.ReasonCheckNotStarting, message: "release.check cannot be started: " + o.Message, release: "the API server accepts the pod of the check"}
}

// answer returns why the check holds a node: it failed or has not ended. It returns nil if the check succeeded.
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

// saidBefore keeps the message of the last check until the next one has ended, because users need that message.
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

// checking reports whether the check of a node is running or has succeeded recently. The node then keeps its position,
// so that a node with an earlier request, whose check fails repeatedly, does not overtake it.
func (s *planner) checking(w *nodePlan) bool {
	pod := w.check
	switch {
	case s.in.Guard.Spec.Release.When != v1alpha1.ReleaseWhenCheck, pod == nil, pod.Terminating, pod.RequestedAt != token(w.requestedAt), w.active():
		return false // a check for an earlier release request says nothing about this one
	case pod.ended():
		return pod.Phase == corev1.PodSucceeded && s.in.Now.Before(s.endOf(pod).Add(max(s.checkInterval(), leastFresh)))
	default:
		return s.in.Now.Before(s.latestEnd(pod))
	}
}

// latestEnd is the time by which a check has ended, unless its kubelet does not stop it.
func (s *planner) latestEnd(pod *Pod) time.Time {
	return pod.Created.Add(s.checkTimeout() + checkSlack)
}

// overdue reports whether a check runs past its end. Like a failed check, it does not prevent the checks of other nodes
// for a while, so a kubelet that never ends a check holds only its own node.
func (s *planner) overdue(w *nodePlan) bool {
	pod := w.check
	return pod != nil && !pod.Terminating && !pod.ended() && pod.RequestedAt == token(w.requestedAt) &&
		!s.in.Now.Before(s.latestEnd(pod)) && s.in.Now.Before(s.latestEnd(pod).Add(s.checkInterval()))
}

// retainsTurn reports whether a node is being checked, or is released according to its check. A node that waits for
// another NodeGuard does not make other nodes wait.
func (s *planner) retainsTurn(w *nodePlan) bool {
	return s.checking(w) && (!w.check.ended() || s.heldByPeer(w) == nil)
}

// isAnswering reports whether the check of a node is running or has failed recently. That is then the reason that the
// node is held, even if another NodeGuard holds it too.
func (s *planner) isAnswering(w *nodePlan) bool {
	return s.refusing(w) || s.overdue(w) || (s.checking(w) && !w.check.ended())
}

// endOf is when a check ended. It is limited to the maximum duration of a check, because the clock of a node can be
// wrong.
func (s *planner) endOf(pod *Pod) time.Time {
	if latest := s.latestEnd(pod); pod.Ended.After(latest) {
		return latest
	}
	return pod.Ended
}

// refusing reports whether the check of a node has failed recently.
func (s *planner) refusing(w *nodePlan) bool {
	pod := w.check
	return pod != nil && !pod.Terminating && pod.RequestedAt == token(w.requestedAt) && pod.Phase == corev1.PodFailed &&
		s.in.Now.Before(s.endOf(pod).Add(s.checkInterval()))
}

// reconcileChecks creates the pods of checks, and deletes those that are no longer needed.
func (s *planner) reconcileChecks() {
	for _, w := range s.nodes {
		wanted := s.isChecked(w)
		switch pod := w.check; {
		case pod == nil:
			if wanted && w.reserved && w.noted() {
				s.createCheck(w)
			}
		case pod.Terminating || w.releasing:
		case !wanted, w.reserved && !s.checking(w): // its result no longer counts, and a new check replaces it
			s.plan.do(DeletePod{*pod, v1alpha1.ReasonCheckFailed})
		}
	}
}

func (s *planner) createCheck(w *nodePlan) {
	if name := s.freeName(v1alpha1.GuardRoleCheck, w.Name); name != "" {
		s.plan.do(CreateCheck{Node: w.Name, Name: name, RequestedAt: token(w.requestedAt)})
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

// token is the format of a time in an annotation.
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
