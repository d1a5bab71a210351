// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/outcome"
)

const (
	// DefaultCheckTimeoutSeconds is release.check.timeoutSeconds when omitted.
	DefaultCheckTimeoutSeconds = 60
	// DefaultCheckPeriodSeconds is release.check.periodSeconds when omitted.
	DefaultCheckPeriodSeconds = 30

	// checkSlack is how long after its timeout an unfinished check is deleted. The kubelet should have ended it by
	// then.
	checkSlack = 60 * time.Second

	// leastFresh is the minimum time for which a successful check counts. Otherwise, with an interval of one second,
	// its result would expire before a pass sees it.
	leastFresh = 30 * time.Second

	// maxMessageBytes limits text from other sources in the status.
	maxMessageBytes = 512
)

// checkState is what the check of a node says about its release request.
type checkState int

const (
	checkMissing checkState = iota
	// checkTerminating : the pod of a node that does not end it keeps no other node from being checked.
	checkTerminating
	// checkOutdated : it was for an earlier release request.
	checkOutdated
	checkRunning
	// checkOverdue : it runs past its end. Like a failed check, it does not prevent the checks of other nodes for a while,
	// so a kubelet that never ends a check holds only its own node.
	checkOverdue
	checkSucceeded
	// checkSucceededEarlier : it succeeded too long ago for a release.
	checkSucceededEarlier
	checkFailed
	// checkExpired : it failed, or was overdue, and the interval to the next run has passed.
	checkExpired
)

func (o observed) checkState(n *nodePlan) checkState {
	switch pod := n.check; {
	case pod == nil:
		return checkMissing
	case pod.Terminating:
		return checkTerminating
	case pod.RequestedAt != token(n.requestedAt):
		return checkOutdated
	case pod.ended():
		return o.checkResult(pod)
	case o.in.Now.Before(o.latestEnd(pod)):
		return checkRunning
	case o.in.Now.Before(o.latestEnd(pod).Add(o.checkInterval())):
		return checkOverdue
	default:
		return checkExpired
	}
}

func (o observed) checkResult(pod *Pod) checkState {
	age := o.in.Now.Sub(o.endOf(pod))
	switch {
	case pod.Phase == corev1.PodSucceeded && age < max(o.checkInterval(), leastFresh):
		return checkSucceeded
	case pod.Phase == corev1.PodSucceeded:
		return checkSucceededEarlier
	case age < o.checkInterval():
		return checkFailed
	default:
		return checkExpired
	}
}

// latestEnd is the time by which a check has ended, unless its kubelet does not stop it.
func (o observed) latestEnd(pod *Pod) time.Time {
	return pod.Created.Add(o.checkTimeout() + checkSlack)
}

// endOf is when a check ended. It is limited to the maximum duration of a check, because the clock of a node can be
// wrong.
func (o observed) endOf(pod *Pod) time.Time {
	if latest := o.latestEnd(pod); pod.Ended.After(latest) {
		return latest
	}
	return pod.Ended
}

// isChecked reports whether a node with a release request has checks.
func (o observed) isChecked(n *nodePlan) bool {
	return n.awaitsRelease() && o.in.Guard.Spec.Release.Check != nil
}

// needsCheck reports whether only a successful check releases a node. A node that is not Ready needs no check: no pod can
// run there, and an unhealthy node may be repaired.
func (o observed) needsCheck(n *nodePlan) bool {
	return o.isChecked(n) && n.Ready && !o.pastReleaseDeadline(n)
}

// awaitsCheck reports whether a node needs a check, and none has succeeded for its release request.
func (o observed) awaitsCheck(n *nodePlan) bool {
	state := o.checkState(n)
	return o.needsCheck(n) && state != checkSucceeded && state != checkSucceededEarlier
}

// retainsTurn reports whether a node is being checked, or is released according to its check. The node then keeps its
// position, so that a node with an earlier request, whose check fails repeatedly, does not overtake it. A node that waits
// for another NodeGuard does not make other nodes wait: then recheckAt is when to ask again.
func (r *releaseRules) retainsTurn(n *nodePlan) (retains bool, recheckAt time.Time) {
	state := r.checkState(n)
	switch {
	case !r.isChecked(n):
		return false, time.Time{}
	case state == checkSucceeded:
		recheckAt = r.peerRecheckAt(n)
		return recheckAt.IsZero(), recheckAt
	default:
		return state == checkRunning, time.Time{}
	}
}

// checkRunningOrFailed holds a node while its check runs, or has failed recently.
func (r *releaseRules) checkRunningOrFailed(n *nodePlan) *holding {
	if !r.needsCheck(n) {
		return nil
	}
	var h *holding
	switch pod := n.check; r.checkState(n) {
	case checkRunning:
		h = r.orFailedBefore(n, checkRuns(pod))
		h.Until = r.latestEnd(pod)
	case checkOverdue:
		h = &holding{
			Why:     hold.Why{Reason: v1alpha1.ReasonCheckFailed, Message: fmt.Sprintf("release.check did not end within %s, and the kubelet has not stopped it", r.checkTimeout()), Until: r.latestEnd(pod).Add(r.checkInterval())},
			release: fmt.Sprintf("the check ends with exit code 0: it runs again after %s", r.checkInterval()),
		}
	case checkFailed:
		h = &holding{
			Why:     hold.Why{Reason: v1alpha1.ReasonCheckFailed, Message: fmt.Sprintf("release.check failed (exit code %d)%s", pod.ExitCode, said(pod.Message)), Until: r.endOf(pod).Add(r.checkInterval())},
			release: r.checkSucceeds(),
		}
	default:
		return nil
	}
	h.Until = earliest(h.Until, r.peerRecheckAt(n))
	return h
}

// checkNotStarted holds a node whose check has to start, or to start again.
func (r *releaseRules) checkNotStarted(n *nodePlan) *holding {
	if !r.needsCheck(n) {
		return nil
	}
	switch state, obstacle := r.checkState(n), r.in.CheckObstacles[n.Name]; {
	case state == checkSucceeded:
		return nil
	case state == checkMissing && obstacle != nil:
		return r.checkNotStarting(obstacle)
	default:
		h := r.orFailedBefore(n, checkRuns(nil))
		h.reserves = state != checkTerminating
		return h
	}
}

// checkNotStarting holds a node if the API server rejects the pod of its check. When one more may be tried, the node
// reserves a place: no event shows that the API server accepts the pod now.
func (o observed) checkNotStarting(obstacle *hold.Why) *holding {
	h := &holding{
		Why:      hold.Why{Reason: v1alpha1.ReasonCheckNotStarting, Message: "release.check cannot be started: " + obstacle.Message},
		release:  "the API server accepts the pod of the check",
		reserves: !o.in.Now.Before(obstacle.Until),
	}
	if !h.reserves {
		h.Until = obstacle.Until
	}
	return h
}

// checkRuns holds a node while its check runs; pod is nil if it has not been created yet.
func checkRuns(pod *Pod) *holding {
	h := &holding{Why: hold.Why{Reason: v1alpha1.ReasonCheckRunning, Message: "release.check runs on it"}, release: "the check ends with exit code 0"}
	if pod != nil && pod.Waiting != "" {
		h.Message = "release.check does not start: " + bounded(pod.Waiting)
	}
	return h
}

// orFailedBefore returns the message of the last failed check until the next one has ended, because users need that
// message. Only the status has it: the pod of the last check is deleted before the next one is created.
func (o observed) orFailedBefore(n *nodePlan, running *holding) *holding {
	for _, f := range o.in.Guard.Status.ControllerState.FailedChecks {
		if f.Node == n.Name && f.RequestedAt.Unix() == n.requestedAt.Unix() {
			return &holding{Why: hold.Why{Reason: v1alpha1.ReasonCheckFailed, Message: f.Message}, release: o.checkSucceeds()}
		}
	}
	return running
}

// checkSucceeds says what ends the hold of a failed check.
func (o observed) checkSucceeds() string {
	return fmt.Sprintf("the check ends with exit code 0: it runs every %s", o.checkInterval())
}

// earliest returns the earlier of two times, of which the zero time is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// reconcileChecks creates the pods of checks, and deletes those that are no longer needed.
func (p *planner) reconcileChecks() {
	for _, n := range p.nodes {
		switch state := p.checkState(n); {
		case state == checkMissing && n.reserved && n.isRequestStored():
			p.createCheck(n)
		case state == checkMissing, state == checkTerminating:
		case !p.isChecked(n), n.reserved && state != checkRunning && state != checkSucceeded: // its result no longer counts, and a new check replaces it
			p.plan.do(DeletePod{Pod: *n.check, Reason: v1alpha1.ReasonCheckFailed})
		}
	}
}

func (p *planner) createCheck(n *nodePlan) {
	if name := p.freeName(v1alpha1.GuardRoleCheck, n.Name); name != "" {
		p.plan.do(CreateCheck{Node: n.Name, Name: name, RequestedAt: token(n.requestedAt)})
	}
}

func (o observed) checkTimeout() time.Duration {
	return checkSeconds(o.in.Guard.Spec.Release.Check, func(c *v1alpha1.ReleaseCheck) *int32 { return c.TimeoutSeconds }, DefaultCheckTimeoutSeconds)
}

func (o observed) checkInterval() time.Duration {
	return checkSeconds(o.in.Guard.Spec.Release.Check, func(c *v1alpha1.ReleaseCheck) *int32 { return c.PeriodSeconds }, DefaultCheckPeriodSeconds)
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
