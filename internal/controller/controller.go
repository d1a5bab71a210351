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
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/archive"
	"github.com/everynode/everynode/internal/loop"
	"github.com/everynode/everynode/internal/notify"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/policies"
	"github.com/everynode/everynode/internal/task"
)

// +kubebuilder:rbac:groups=everynode.dev,resources=nodejobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=everynode.dev,resources=nodejobs/status,verbs=update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies,verbs=get
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicybindings,verbs=list

// Reconciler reconciles NodeJobs.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Reader reads from the API server.
	Reader client.Reader
	// Recorder writes events.
	Recorder events.EventRecorder
	// Metrics are the metrics of the manager.
	Metrics *Metrics
	// Options are the settings of the installation for the tasks' pods.
	Options task.Options
	// Archive is where the outputs of NodeJobs with task.output.archive are stored.
	Archive archive.Config
	// Own is where the manager itself runs.
	Own Own
	// Now is the clock.
	Now func() time.Time
	// Notifier reports to the URL of the flag --notifications-url; nil without one. It is set before SetupWithManager.
	Notifier *notify.Notifier
	// RequireNamespaceLabel is true if only NodeJobs in namespaces with the label v1alpha1.EnabledLabel are served.
	RequireNamespaceLabel bool
	// Policies knows whether the admission policies are in force; nil if they do not matter. It is set before SetupWithManager.
	Policies *policies.Checker
	// PollInterval is how often the manager checks what it does not watch.
	PollInterval time.Duration

	// listNodes and listPods list objects of the cache without copying them, so they must not be modified.
	listNodes func(ctx context.Context) ([]*corev1.Node, error)
	listPods  func(ctx context.Context, nodeJob client.ObjectKey) ([]*corev1.Pod, error)

	written *writtenObjects
	// refusals are those of the task's pods. runnerRefusals are those of reboots, checks and rollbacks if the task is a
	// template.
	refusals, runnerRefusals *loop.Refusals
	problems                 nodeProblems
	scripts                  scripts
	records                  records
	nodeViews                nodeViews
	podViews                 podViews
	pace                     loop.Pace
	looks                    looks
	releases                 *releases
	drains                   drains
	contents                 contents
	gates                    gates
	uncachedNodes            uncachedNodes
	// wake triggers passes of NodeJobs for changes that no watch reports.
	wake chan event.GenericEvent

	primed sync.Mutex
	isWarm atomic.Bool
}

// refusalWords are the words of messages about a rejected pod.
var refusalWords = loop.Words{
	Kind:       "NodeJob",
	Made:       "the task's pod",
	Privileged: "A task is root on its node: keep NodeJobs in a namespace of their own and allow it there with",
	Template: func(o client.Object) string {
		if job, is := o.(*v1alpha1.NodeJob); is && job.Spec.Task.Template != nil {
			return "spec.task.template"
		}
		return ""
	},
	Field: "spec.task",
}

// runnerRefusalWords are those for pods that run scripts if the task is a template.
var runnerRefusalWords = loop.Words{
	Kind:       "NodeJob",
	Made:       "the pods of reboots and rollbacks",
	Privileged: "Their scripts run as root on the node: allow them with",
	Field:      "spec.rollback",
}

// Own is where the manager itself runs: its drains do not evict its own pod, and its node comes last.
type Own struct {
	// Pod of the manager, and its node; empty outside of a cluster.
	Pod  client.ObjectKey
	Node string
}

// New returns a Reconciler that is ready to be set up with a manager.
func New(c client.Client, reader client.Reader, recorder events.EventRecorder, metrics *Metrics, opts task.Options) *Reconciler {
	return &Reconciler{
		listNodes:    nodesOf(c),
		listPods:     podsByLabel(c),
		Client:       c,
		Reader:       reader,
		Recorder:     recorder,
		Metrics:      metrics,
		Options:      opts,
		Now:          time.Now, //nolint:forbidigo // the one clock of the manager
		PollInterval: pollSeconds * time.Second,
		written:      newWrittenObjects(),
		refusals:     loop.NewRefusals(refusalWords),

		runnerRefusals: loop.NewRefusals(runnerRefusalWords),
		problems:       newNodeProblems(),
		scripts:        newScripts(),
		records:        newRecords(),
		nodeViews:      newNodeViews(),
		podViews:       newPodViews(),
		drains:         newDrains(),
		releases:       newReleases(metrics.releases),
		contents:       newContents(),
		wake:           make(chan event.GenericEvent, wakeRoom),
	}
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
	if job, err = r.whole(ctx, job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if held, err := r.ensureFinalizer(ctx, job); err != nil || !held {
		return ctrl.Result{}, err
	}
	return r.pass(ctx, job)
}

// newest returns the newest known version of a NodeJob; nil if it does not exist. Directly after this manager becomes
// the leader, the cache may not contain a remembered NodeJob yet. Its pods must not be treated as those of a deleted
// one.
func (r *Reconciler) newest(ctx context.Context, name client.ObjectKey) (*v1alpha1.NodeJob, error) {
	job := &v1alpha1.NodeJob{}
	err := r.Client.Get(ctx, name, job)
	if apierrors.IsNotFound(err) && r.written.knowsJob(name) {
		err = r.Reader.Get(ctx, name, job)
		strip(r.Options.Key, job)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting NodeJob: %w", err)
	}
	return r.written.job(job), nil
}

// pass runs one pass: it observes, plans, applies and reports.
func (r *Reconciler) pass(ctx context.Context, job *v1alpha1.NodeJob) (ctrl.Result, error) {
	began := r.Now()
	seen, err := r.observe(ctx, job)
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
		if seen, err = r.observe(ctx, job); err != nil {
			return ctrl.Result{}, errors.Join(applyErr, err)
		}
		p = plan.Next(seen.input)
		// The rejection may be what allows the NodeJob to be deleted: no event shows that.
		again = again || len(p.Actions) > 0
	}
	wait, err := r.report(ctx, seen, p)
	if applyErr != nil {
		return ctrl.Result{}, applyErr
	}
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

// patchFinalizer adds our finalizer to a NodeJob or removes it. It uses the resource version, because the list of
// finalizers has other writers.
func (r *Reconciler) patchFinalizer(ctx context.Context, job *v1alpha1.NodeJob, change func(client.Object, string) bool) error {
	changed := job.DeepCopy()
	change(changed, v1alpha1.NodeJobFinalizer)
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	err := r.Metrics.writes.Do(verbPatch, resourceNodeJobs, func() error { return r.Client.Patch(ctx, changed, patch) })
	if err == nil {
		r.written.rememberJob(strip(r.Options.Key, changed).(*v1alpha1.NodeJob))
	}
	return err
}

// cleanUpDeleted releases what remains of a NodeJob that was deleted without us, for example because a user removed its
// finalizer.
func (r *Reconciler) cleanUpDeleted(ctx context.Context, name client.ObjectKey) error {
	r.written.forgetJob(name)
	r.Metrics.forget(name)
	r.Metrics.notServed.Remove(name)
	r.Notifier.Deleted(notify.KindNodeJob, name)
	r.pace.Forget(name)
	r.looks.forget(name)
	r.refusals.Clear(name)
	r.runnerRefusals.Clear(name)
	r.problems.forget(name)
	r.scripts.forget(name)
	r.contents.forget(name)
	r.drains.forget(name)
	r.podViews.forget(name)
	r.records.forget(v1alpha1.RecordKey(name.Namespace, name.Name))
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
