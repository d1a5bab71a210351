// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
)

const (
	// keepFor is how long a delivered notification stays in a status that does not change, so that one write removes several.
	keepFor = 10 * time.Second
	// expireAfter is how long it is tried to deliver a notification.
	expireAfter = 24 * time.Hour
	// firstPause and longestPause limit the pause after a failure. It doubles with each failure in a row.
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	// longestRetryAfter limits the pause that the endpoint asks for.
	longestRetryAfter = time.Hour
)

// Notifier adds notifications to the status of NodeJobs, NodeGuards and NodeDisruptionBudgets, and sends those that are stored there. A nil Notifier
// does nothing.
type Notifier struct {
	// Now is the clock.
	Now func() time.Time
	// After returns a channel that has a value after a time.
	After func(time.Duration) <-chan time.Time
	// Random returns a number from 0 to 1.
	Random func() float64

	config  Config
	client  client
	queue   *queue
	metrics *metrics

	mu sync.Mutex
	// wakes trigger a pass for an object of a kind, after a notification need not be sent any more.
	wakes map[string]func(context.Context, types.NamespacedName)
}

// New returns a Notifier; nil if config has no URL.
func New(config Config, registry prometheus.Registerer) *Notifier {
	if !config.Enabled() {
		return nil
	}
	n := &Notifier{
		Now:    time.Now,   //nolint:forbidigo // the one clock of the notifier
		After:  time.After, //nolint:forbidigo // see above
		Random: rand.Float64,
		config: config, queue: newQueue(), wakes: map[string]func(context.Context, types.NamespacedName){},
	}
	n.client = client{config: &n.config, timeout: requestTimeout, now: func() time.Time { return n.Now() }}
	n.metrics = newMetrics(registry, n.queue.length)
	return n
}

// OnHandled sets how to trigger a pass of an object of a kind.
func (n *Notifier) OnHandled(kind string, wake func(context.Context, types.NamespacedName)) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wakes[kind] = wake
}

func jobObject(job *v1alpha1.NodeJob) Object {
	return Object{KindNodeJob, types.NamespacedName{Namespace: job.Namespace, Name: job.Name}, job.UID}
}

func guardObject(g *v1alpha1.NodeGuard) Object {
	return Object{KindNodeGuard, types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, g.UID}
}

func jobPending(state *v1alpha1.NodeJobNotifications) []v1alpha1.Notification {
	if state == nil {
		return nil
	}
	return bounded(state.Pending)
}

func guardPending(state *v1alpha1.NodeGuardNotifications) []v1alpha1.Notification {
	if state == nil {
		return nil
	}
	return bounded(state.Pending)
}

// NodeJob sets the notifications of a status that is to replace the one of the NodeJob. It returns after which time a pass is
// needed, which is next or earlier; zero for no pass.
func (n *Notifier) NodeJob(job *v1alpha1.NodeJob, after *v1alpha1.NodeJobStatus, next time.Duration) time.Duration {
	if n == nil {
		return next
	}
	pending := jobPending(job.Status.ControllerState.Notifications)
	after.ControllerState.Notifications = job.Status.ControllerState.Notifications
	if !served(after.Conditions) {
		if len(pending) > 0 {
			after.ControllerState.Notifications = job.Status.ControllerState.Notifications.DeepCopy()
			after.ControllerState.Notifications.Pending = nil
		}
		return next
	}
	unchanged := equality.Semantic.DeepEqual(&job.Status, after)
	state, made := nodeJob(job, after, n.Now())
	rest, wait := n.update(jobObject(job), pending, made, unchanged)
	if !unchanged || len(made) > 0 || len(rest) < len(pending) {
		state.Pending = rest
		after.ControllerState.Notifications = &state
	}
	return loop.Soonest(next, wait)
}

// NodeGuard does the same for a NodeGuard.
func (n *Notifier) NodeGuard(g *v1alpha1.NodeGuard, after *v1alpha1.NodeGuardStatus, next time.Duration) time.Duration {
	if n == nil {
		return next
	}
	now := n.Now()
	pending := guardPending(g.Status.ControllerState.Notifications)
	after.ControllerState.Notifications = g.Status.ControllerState.Notifications
	if !served(after.Conditions) {
		if len(pending) > 0 {
			after.ControllerState.Notifications = g.Status.ControllerState.Notifications.DeepCopy()
			after.ControllerState.Notifications.Pending = nil
		}
		return next
	}
	unchanged := equality.Semantic.DeepEqual(&g.Status, after)
	held, made, late := nodeGuard(g, after, n.config.DrainHeld, now)
	rest, wait := n.update(guardObject(g), pending, made, unchanged)
	if !unchanged || len(made) > 0 || len(rest) < len(pending) {
		after.ControllerState.Notifications = nil
		if len(held)+len(rest) > 0 {
			after.ControllerState.Notifications = &v1alpha1.NodeGuardNotifications{Held: held, Pending: rest}
		}
	}
	return loop.Soonest(loop.Soonest(next, late), wait)
}

// update returns the pending notifications without those that are handled, and with new ones, and when to check again. While
// nothing else changes, handled ones stay for a while.
func (n *Notifier) update(o Object, pending, made []v1alpha1.Notification, unchanged bool) (rest []v1alpha1.Notification, wait time.Duration) {
	handled, now := n.queue.handled(o), n.Now()
	oldest := time.Time{}
	for _, since := range handled {
		if oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	if due := oldest.Add(keepFor); !oldest.IsZero() && unchanged && len(made) == 0 && now.Before(due) {
		return pending, due.Sub(now)
	}
	rest = slices.DeleteFunc(slices.Clone(pending), func(p v1alpha1.Notification) bool {
		_, ok := handled[id(o, &p)]
		return ok
	})
	rest = append(rest, made...)
	return rest[max(0, len(rest)-maxPending):], 0
}

// OfferNodeJob sends the notifications in the stored status of a NodeJob.
func (n *Notifier) OfferNodeJob(job *v1alpha1.NodeJob) {
	if n != nil {
		n.offer(jobObject(job), jobPending(job.Status.ControllerState.Notifications), job.Status.Conditions)
	}
}

// OfferNodeGuard sends the notifications in the stored status of a NodeGuard.
func (n *Notifier) OfferNodeGuard(g *v1alpha1.NodeGuard) {
	if n != nil {
		n.offer(guardObject(g), guardPending(g.Status.ControllerState.Notifications), g.Status.Conditions)
	}
}

func (n *Notifier) offer(o Object, pending []v1alpha1.Notification, conditions []metav1.Condition) {
	if !served(conditions) {
		pending = nil
	}
	n.metrics.handled(outcomeOverflowed, n.queue.offer(o, pending, n.Now()))
}

// served reports whether the namespace of an object is allowed: nothing is sent for other ones.
func served(conditions []metav1.Condition) bool {
	stalled := meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled)
	return stalled == nil || stalled.Status != metav1.ConditionTrue || stalled.Reason != v1alpha1.ReasonNamespaceNotAllowed
}

// Deleted notes that an object is deleted. Its notifications are still sent, as long as this manager runs.
func (n *Notifier) Deleted(kind string, name types.NamespacedName) {
	if n == nil {
		return
	}
	n.metrics.handled(outcomeOverflowed, n.queue.orphan(kind, name))
}

// Start sends notifications, one at a time, until ctx ends. It runs on the leader.
func (n *Notifier) Start(ctx context.Context) error {
	ctx = logf.IntoContext(ctx, logf.FromContext(ctx).WithName("notifications"))
	if _, err := n.config.target(); err != nil {
		// The manager works without notifications.
		logf.FromContext(ctx).Error(err, "no notification can be sent now")
	}
	for failures := 0; ctx.Err() == nil; {
		o, next, wait := n.queue.next(n.Now())
		if next.id == "" {
			n.rest(ctx, wait)
			continue
		}
		answer := n.send(ctx, o, &next)
		if answer.delivered || answer.rejected || ctx.Err() != nil {
			failures = 0
			continue
		}
		failures++
		select {
		case <-ctx.Done():
		case <-n.After(n.pause(failures, answer.after)):
		}
	}
	return nil
}

// rest waits for a notification, or for a time; zero for no time.
func (n *Notifier) rest(ctx context.Context, wait time.Duration) {
	var due <-chan time.Time
	if wait > 0 {
		due = n.After(wait)
	}
	select {
	case <-ctx.Done():
	case <-n.queue.filled:
	case <-due:
	}
}

// pause is how long to wait after some failures in a row: up to half of it is random.
func (n *Notifier) pause(failures int, after time.Duration) time.Duration {
	pause := longestPause
	if doublings := failures - 1; doublings < 20 {
		pause = min(firstPause<<doublings, longestPause)
	}
	pause -= time.Duration(n.Random() * float64(pause) / 2)
	return max(pause, min(after, longestRetryAfter))
}

// send tries once to deliver a notification.
func (n *Notifier) send(ctx context.Context, o Object, next *letter) answer {
	body, contentType, err := Encode(n.config.Format, n.config.source(), o, &next.Notification)
	answer := answer{rejected: true}
	if err != nil {
		answer.problem = err.Error()
	} else {
		answer = n.client.post(ctx, body, contentType)
	}
	outcome := outcomeDelivered
	switch {
	case answer.delivered:
	case ctx.Err() != nil:
		return answer // it is not the endpoint that failed
	case answer.rejected:
		outcome = outcomeRejected
	case n.Now().Sub(next.Time.Time) > expireAfter:
		outcome = outcomeExpired
	default:
		outcome = ""
	}
	if !answer.delivered {
		logf.FromContext(ctx).Info("a notification is not delivered", "problem", answer.problem, "sentAgain", outcome == "", "id", next.id,
			"kind", o.Kind, "namespace", o.Namespace, "name", o.Name)
	}
	if outcome == "" {
		n.metrics.failures.Inc()
		n.queue.postpone(o)
		return answer
	}
	n.metrics.handled(outcome, 1)
	if answer.rejected {
		// What one object reports is no reason to pause the others.
		n.queue.rejected(o, n.Now(), func(failures int) time.Duration { return n.pause(failures, 0) })
	} else if answer.delivered {
		n.queue.accepted(o)
	}
	n.queue.handle(o, next.id, n.Now())
	n.wake(ctx, o)
	return answer
}

// wake triggers a pass of an object, which removes the notification from its status.
func (n *Notifier) wake(ctx context.Context, o Object) {
	n.mu.Lock()
	wake := n.wakes[o.Kind]
	n.mu.Unlock()
	if wake != nil {
		wake(ctx, o.NamespacedName)
	}
}
