// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// report writes the status if it changed, and reports changes by events and metrics. It returns when to check again;
// zero means only after an event.
func (r *Reconciler) report(ctx context.Context, seen observation, p plan.Plan) (time.Duration, error) {
	name := client.ObjectKeyFromObject(seen.job)
	now := r.Now()
	next := loop.Until(p.WakeAt, now)
	r.Notifier.OfferNodeJob(seen.job)
	if seen.unseen {
		// If the cache never shows the pod, no event triggers a pass that looks for it.
		next = loop.Soonest(next, doubtAfter+time.Second)
	}
	if finishes(p) {
		return next, nil
	}
	p.Status.ControllerState.Authorization = seen.authorization
	r.Metrics.status(name, &p)
	next = r.Notifier.NodeJob(seen.job, &p.Status, next)
	p.Status.ControllerState.Seal = seen.job.Status.ControllerState.Seal
	if equality.Semantic.DeepEqual(seen.job.Status, p.Status) && !r.written.statusMayDiffer(seen.job.UID) {
		return next, nil
	}
	if wait := r.pace.Wait(name, now); wait > 0 {
		return loop.Soonest(next, wait), nil
	}
	changed, err := r.writeStatus(ctx, seen.job, p.Status)
	switch {
	case apierrors.IsConflict(err):
		// The NodeJob has changed meanwhile. While its watch is interrupted, the cache does not show how.
		return loop.Soonest(next, loop.Soon), r.reread(ctx, name)
	case err != nil:
		r.written.doubtStatus(seen.job)
		return 0, client.IgnoreNotFound(fmt.Errorf("writing the status: %w", err))
	}
	r.pace.Wrote(name, now)
	r.Notifier.OfferNodeJob(changed)
	r.announce(ctx, seen.job, p.Status)
	r.announceDrains(seen, &p.Status)
	return next, nil
}

// writeStatus seals and writes the whole status under the resource version of the NodeJob: a patch based on a stale cached status
// would omit what only seems unchanged.
func (r writer) writeStatus(ctx context.Context, job *v1alpha1.NodeJob, status v1alpha1.NodeJobStatus) (*v1alpha1.NodeJob, error) {
	changed := job.DeepCopy()
	changed.Status = status
	changed.Status.ControllerState.Seal = r.Options.Key.NodeJob(changed)
	err := r.Metrics.writes.Do(verbUpdate, resourceNodeJobsStatus, func() error { return r.Client.Status().Update(ctx, changed) })
	if err == nil {
		r.written.rememberStatus(changed)
	}
	return changed, err
}

// finishes reports whether our finalizer was removed from the NodeJob: then it no longer has a status.
func finishes(p plan.Plan) bool {
	return slices.ContainsFunc(p.Actions, func(a plan.Action) bool { _, ok := a.(plan.RemoveFinalizer); return ok })
}

// announce sends an event for each condition that changed its status, for a new revision and for each step of it.
// Failed rollbacks already have an event on their nodes.
func (r announcer) announce(ctx context.Context, job *v1alpha1.NodeJob, status v1alpha1.NodeJobStatus) {
	log := logf.FromContext(ctx)
	if status.Revision != "" && status.Revision != job.Status.Revision {
		r.event(job, nil, corev1.EventTypeNormal, v1alpha1.ReasonRevisionStarted, "Rollout",
			plan.RevisionStarted(job, &status))
		log.Info("revision started", "revision", status.Revision, "nodes", status.Nodes.Total)
	}
	if stepStarted(&job.Status, &status) {
		r.event(job, nil, corev1.EventTypeNormal, v1alpha1.ReasonStepStarted, "Rollout", plan.StepStarted(&status))
		log.Info("step started", "revision", status.Revision, "step", status.Rollout.Step)
	}
	r.announceConditions(ctx, job, status)
}

// announceConditions sends events without the commands of the conditions: kubectl describe shows both.
func (r announcer) announceConditions(ctx context.Context, job *v1alpha1.NodeJob, status v1alpha1.NodeJobStatus) {
	is := *job // only read
	is.Status = status
	for _, c := range status.Conditions {
		before := meta.FindStatusCondition(job.Status.Conditions, c.Type)
		if c.Status != metav1.ConditionTrue || (before != nil && before.Status == c.Status && before.Reason == c.Reason) {
			continue
		}
		note, remedies := plan.CutRemedies(&is, c.Message)
		if len(remedies.All) > 0 {
			note += " The condition " + c.Type + " says what to do"
		}
		if kind := eventTypeOf(&c); kind != "" {
			r.event(job, nil, kind, c.Reason, "Rollout", note)
			logf.FromContext(ctx).Info("condition changed", "condition", c.Type, "reason", c.Reason, "message", c.Message)
		}
	}
}

// eventTypeOf returns the type of the event for a condition that is True now; "" if it has none.
func eventTypeOf(c *metav1.Condition) string {
	switch {
	case c.Reason == v1alpha1.ReasonNonCompliant, c.Type == v1alpha1.ConditionStalled,
		c.Reason == v1alpha1.ReasonPodNotStarting: // which looks like progress, and may need a user
		return corev1.EventTypeWarning
	case c.Type == v1alpha1.ConditionComplete:
		return corev1.EventTypeNormal
	}
	return ""
}

// announceDrains sends one event for each drain that has become blocked.
func (r announcer) announceDrains(seen observation, status *v1alpha1.NodeJobStatus) {
	blocked := plan.DrainBlocked(&seen.job.Status, status)
	if len(blocked) == 0 {
		return
	}
	for i := range seen.input.Nodes {
		node := &seen.input.Nodes[i]
		if message := blocked[node.Name]; message != "" {
			r.tell(seen.job, node.Name, node.UID, corev1.EventTypeWarning, v1alpha1.ReasonDrainBlocked, actionDrain, message)
		}
	}
}

// stepStarted reports whether a step has started since the revision started.
func stepStarted(before, after *v1alpha1.NodeJobStatus) bool {
	return before.Revision == after.Revision && before.Rollout != nil && after.Rollout != nil && before.Rollout.Step != after.Rollout.Step
}

// writeFailed sends an event about a write that needs attention, such as one that a webhook denies. The pass is
// retried; equal events are counted, not repeated.
func (r announcer) writeFailed(job *v1alpha1.NodeJob, err error) {
	if err != nil && !apierrors.IsConflict(err) {
		r.event(job, nil, corev1.EventTypeWarning, v1alpha1.ReasonWriteFailed, "Write", err.Error())
	}
}

func (r announcer) event(regarding, related runtime.Object, kind, reason, action, note string) {
	loop.Event(r.Recorder, regarding, related, kind, reason, action, note)
}
