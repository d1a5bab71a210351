// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller is the shell around the plan: it watches, asks plan.Next what to do, does it, and reports. It
// makes no decisions.
//
//	watches ──► observe ──► plan.Next ──► apply ──► report
//	(cache)     (memory)     (pure)       (writes)  (status, events, metrics)
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// +kubebuilder:rbac:groups=everynode.dev,resources=nodejobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=everynode.dev,resources=nodejobs/status,verbs=update
// +kubebuilder:rbac:groups=everynode.dev,resources=nodedisruptionbudgets,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies,verbs=get
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicybindings,verbs=list

// Reconciler reconciles NodeJobs. Its parts share one shell. Each has the methods for one purpose, and can only use those of the
// parts that it embeds.
type Reconciler struct {
	*shell
	writer
	observer
	starter
	releaser
	watcher
}

// New returns a Reconciler that is ready to be set up with a manager. Its settings are fields of its shell.
func New(c client.Client, reader client.Reader, recorder events.EventRecorder, metrics *Metrics, opts task.Options) *Reconciler {
	s := newShell(c, reader, recorder, metrics, opts)
	w := writer{announcer{s}}
	return &Reconciler{shell: s, writer: w, observer: observer{w}, starter: starter{w}, releaser: releaser{w}, watcher: watcher{s}}
}

// Reconcile runs one pass for a NodeJob.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.warmUp(ctx); err != nil {
		return ctrl.Result{}, err
	}
	job, err := r.newest(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if job == nil {
		return ctrl.Result{}, r.cleanUpDeleted(ctx, req.NamespacedName)
	}
	switch why, err := r.idleObstacle(ctx, job); {
	case err != nil:
		return ctrl.Result{}, err
	case why != nil:
		return r.idle(ctx, job, why)
	}
	r.Metrics.notServed.Remove(req.NamespacedName)
	noRoom := r.noRoom(job)
	if job, err = r.whole(ctx, job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if held, err := r.ensureFinalizer(ctx, job); err != nil || !held {
		return ctrl.Result{}, err
	}
	return r.pass(ctx, job, noRoom)
}

// pass runs one pass: it observes, plans, applies and reports. noRoom is why nothing starts, if it is known before.
func (r *Reconciler) pass(ctx context.Context, job *v1alpha1.NodeJob, noRoom *hold.Why) (ctrl.Result, error) {
	began := r.Now()
	seen, err := r.observe(ctx, job, noRoom)
	if err != nil {
		return undecided(err)
	}
	job = seen.job
	p := plan.Next(seen.input)
	ended := r.Now()
	r.looks.looked(client.ObjectKeyFromObject(job), ended, ended.Sub(began))
	r.drains.ask(client.ObjectKeyFromObject(job), p.DrainPodRequests)
	did, applyErr := r.apply(ctx, seen, p)
	applyErr = errors.Join(applyErr, r.finalizeForeignPods(ctx, seen.foreignPods))
	r.writeFailed(job, applyErr)
	again := did.again
	if did.refused {
		// The pods that were rejected do not run: the status must not count them.
		if seen, err = r.observe(ctx, job, noRoom); err != nil {
			return ctrl.Result{}, errors.Join(applyErr, err)
		}
		p = plan.Next(seen.input)
		// The rejection may be what allows the NodeJob to be deleted: no event shows that.
		again = again || len(p.Actions) > 0
	}
	next := r.tellBudgets(&seen, &p, did.claimed)
	wait, err := r.report(ctx, seen, p)
	if applyErr != nil {
		return ctrl.Result{}, applyErr
	}
	wait = loop.Soonest(wait, next)
	if again {
		wait = loop.Soonest(wait, loop.Soon)
	}
	if seen.archiveMissing {
		wait = loop.Soonest(wait, r.PollInterval) // files have no events
	}
	if did.more {
		wait = atOnce
	}
	return ctrl.Result{RequeueAfter: wait}, err
}

// atOnce is the shortest wait for the next pass.
const atOnce = time.Millisecond

// ensureFinalizer adds our finalizer to a NodeJob before anything is written to a node for it. It returns false if
// there is nothing to do: the NodeJob is being deleted and we have already removed the finalizer.
func (r *Reconciler) ensureFinalizer(ctx context.Context, job *v1alpha1.NodeJob) (bool, error) {
	if controllerutil.ContainsFinalizer(job, v1alpha1.NodeJobFinalizer) {
		return true, nil
	}
	if !job.DeletionTimestamp.IsZero() {
		return false, nil
	}
	if err := r.patchFinalizer(ctx, job, controllerutil.AddFinalizer); err != nil {
		return false, fmt.Errorf("adding the finalizer: %w", err)
	}
	// The write triggers another pass, with the finalizer in the cache.
	return false, nil
}

// cleanUpDeleted releases what remains of a NodeJob that was deleted without us, for example because a user removed its
// finalizer.
func (r *Reconciler) cleanUpDeleted(ctx context.Context, name client.ObjectKey) error {
	r.forgetBudgets(name)
	r.forgetJob(name)
	r.Metrics.forget(name)
	r.Metrics.notServed.Remove(name)
	r.Notifier.Deleted(notify.KindNodeJob, name)
	r.Room.Forget(name)
	_, foreignPods, err := r.podsOf(ctx, name, "")
	if err != nil {
		return err
	}
	return r.finalizeForeignPods(ctx, foreignPods)
}

// finalizeForeignPods releases pods whose NodeJob no longer exists, even if there is a new one of the same name. Our
// finalizer would keep them in the API forever.
func (r *Reconciler) finalizeForeignPods(ctx context.Context, foreignPods []*corev1.Pod) error {
	var errs []error
	for _, pod := range foreignPods {
		if controllerutil.ContainsFinalizer(pod, v1alpha1.PodFinalizer) {
			errs = append(errs, r.finalizePod(ctx, pod.Namespace, viewPod(seenPod{Pod: pod})))
		}
	}
	return errors.Join(errs...)
}
