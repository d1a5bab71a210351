// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/outcome"
)

// maxPending limits the notifications in a status. The API has the same limit.
const maxPending = 32

// jobChange is a NodeJob, the status that replaces its own, and the notifications of the change.
type jobChange struct {
	job   *v1alpha1.NodeJob
	after *v1alpha1.NodeJobStatus
	now   time.Time
	// state is what was reported before, and then with the change.
	state v1alpha1.NodeJobNotifications
	made  []v1alpha1.Notification
}

// nodeJob returns what is reported of a NodeJob whose status becomes after, without the pending notifications, and the new
// notifications.
func nodeJob(job *v1alpha1.NodeJob, after *v1alpha1.NodeJobStatus, now time.Time) (v1alpha1.NodeJobNotifications, []v1alpha1.Notification) {
	c := jobChange{job: job, after: after, now: now, state: reported(&job.Status, job.Generation)}
	c.revision()
	c.steps()
	c.rollback()
	c.rollout()
	return c.state, c.made
}

// reported returns what was reported of a NodeJob. What happened before the manager had a URL counts as reported.
func reported(status *v1alpha1.NodeJobStatus, generation int64) v1alpha1.NodeJobNotifications {
	if before := status.ControllerState.Notifications; before != nil {
		state := *before.DeepCopy()
		state.Pending = nil
		return state
	}
	state := v1alpha1.NodeJobNotifications{Revision: status.Revision, CompletedSteps: completedSteps(status)}
	if is := rolloutState(status, generation); is != nil {
		state.Last = &is.NotifiedState
	}
	return state
}

// revision reports a new revision.
func (c *jobChange) revision() {
	if c.after.Revision == "" || c.after.Revision == c.state.Revision {
		return
	}
	c.state = v1alpha1.NodeJobNotifications{Revision: c.after.Revision}
	c.add(v1alpha1.NotificationStarted, v1alpha1.ReasonRevisionStarted, plan.RevisionStarted(c.job, c.after))
}

// steps reports the steps that have passed. The last one is not reported if the NodeJob is Complete.
func (c *jobChange) steps() {
	if c.after.Revision == "" || c.after.Rollout == nil {
		return
	}
	steps, completed := c.after.Rollout.Steps, completedSteps(c.after)
	for i := c.state.CompletedSteps; i < completed; i++ {
		if int(i) == len(steps)-1 && meta.IsStatusConditionTrue(c.after.Conditions, v1alpha1.ConditionComplete) {
			continue
		}
		c.add(v1alpha1.NotificationStepCompleted, v1alpha1.ReasonStepCompleted, plan.StepCompleted(c.after, &steps[i]))
		c.made[len(c.made)-1].Step = steps[i].Name
	}
	c.state.CompletedSteps = max(c.state.CompletedSteps, completed)
}

// completedSteps is how many steps have passed. The step at which the rollout waits for promotion has passed too.
func completedSteps(status *v1alpha1.NodeJobStatus) int32 {
	if status.Rollout == nil {
		return 0
	}
	steps := status.Rollout.Steps
	current := slices.IndexFunc(steps, func(s v1alpha1.StepStatus) bool { return s.Name == status.Rollout.Step })
	complete := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionComplete)
	switch {
	case !status.Rollout.StableAt.IsZero():
		return int32(len(steps))
	case complete != nil && complete.Reason == v1alpha1.ReasonAwaitingPromotion:
		return int32(current + 1)
	}
	return int32(max(current, 0))
}

// rollback reports that a rollback has failed.
func (c *jobChange) rollback() {
	is := meta.FindStatusCondition(c.after.Conditions, v1alpha1.ConditionRollbackFailed)
	if is != nil && is.Status == metav1.ConditionTrue && !meta.IsStatusConditionTrue(c.job.Status.Conditions, is.Type) {
		c.add(v1alpha1.NotificationRollbackFailed, is.Reason, is.Message)
	}
}

// rollout reports that the rollout waits, has stopped or is complete. A rollout that continues and returns to the reported
// state, such as after a node has joined or a re-run, is not reported again.
func (c *jobChange) rollout() {
	is, last := rolloutState(c.after, c.job.Generation), c.state.Last
	switch {
	case is == nil:
		if last != nil && c.continues(last) {
			c.state.Last = nil
		}
	case last == nil || !is.same(last):
		c.state.Last = &is.NotifiedState
		c.add(is.Type, is.Reason, is.message)
	}
}

// continues reports whether a rollout that is not stopped any more continues because a user has changed something. If it
// stops again, this is reported.
func (c *jobChange) continues(last *v1alpha1.NotifiedState) bool {
	return last.Type == v1alpha1.NotificationStopped &&
		(last.Reason == v1alpha1.ReasonMaxFailuresExceeded || last.Generation != c.job.Generation || c.after.Nodes.Failed < last.Failed)
}

// state is a state of a rollout that is reported.
type state struct {
	v1alpha1.NotifiedState
	message string
}

// same reports whether a rollout has returned to the reported state.
func (s *state) same(last *v1alpha1.NotifiedState) bool {
	return s.Type == last.Type && s.Reason == last.Reason && (s.Type != v1alpha1.NotificationAwaitingPromotion || s.Step == last.Step)
}

// rolloutState returns what is to be reported of a status; nil if the rollout continues by itself.
func rolloutState(status *v1alpha1.NodeJobStatus, generation int64) *state {
	complete := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionComplete)
	stalled := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionStalled)
	s := &state{NotifiedState: v1alpha1.NotifiedState{Failed: status.Nodes.Failed, Generation: generation}}
	if status.Rollout != nil {
		s.Step = status.Rollout.Step
	}
	is := complete
	switch {
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		s.Type, is = v1alpha1.NotificationStopped, stalled
	case complete == nil:
		return nil
	case complete.Status == metav1.ConditionTrue:
		s.Type = v1alpha1.NotificationComplete
	case complete.Reason == v1alpha1.ReasonAwaitingPromotion:
		s.Type = v1alpha1.NotificationAwaitingPromotion
	default:
		return nil
	}
	s.Reason, s.message = is.Reason, is.Message
	return s
}

// add adds a notification.
func (c *jobChange) add(kind v1alpha1.NotificationType, reason, message string) {
	n := v1alpha1.Notification{
		Type: kind, Time: metav1.NewTime(c.now.Truncate(time.Second)), Generation: c.job.Generation, Revision: c.after.Revision,
		Reason: reason, Message: outcome.CleanHead(message, maxMessageBytes),
		Nodes: c.after.Nodes.DeepCopy(), ChangedBy: plan.Author(c.job, c.after.UnattributedGeneration),
	}
	if c.after.Rollout != nil {
		n.Step = c.after.Rollout.Step
	}
	c.made = append(c.made, n)
}
