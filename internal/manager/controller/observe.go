// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/manager/archive"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
)

// observer reads what passes need, from the cache, the memory and the API server.
type observer struct{ writer }

// observation is what one pass observes.
type observation struct {
	job    *v1alpha1.NodeJob
	source task.Source
	input  plan.Input
	// authorization belongs in the status.
	authorization *v1alpha1.Authorization
	// store is the archive for outputs; nil for none. archiveMissing is true if the NodeJob needs one.
	store          *archive.Store
	archiveMissing bool
	// unseen is true if a pod is remembered that the cache does not show.
	unseen bool
	// foreignPods are pods with the NodeJob's name in their label that have another owner.
	foreignPods []*corev1.Pod
	// asked are the UIDs of the nodes whose pods this pass has listed, or tried to list.
	asked map[types.UID]bool
	// stancesAt identifies the stances of the budgets that this pass has read.
	stancesAt int
	// joining are the nodes that were created after the NodeJob and are not done yet, for the metric.
	joining map[string]joiningNode
}

type joiningNode struct {
	created    time.Time
	readySince time.Time // zero while it is not Ready
}

// observe collects everything that the plan reads. It does not copy objects of the cache, and does not modify them.
func (r observer) observe(ctx context.Context, job *v1alpha1.NodeJob, noRoom *hold.Why) (observation, error) {
	now := r.Now()
	seen := observation{job: job, joining: map[string]joiningNode{}}
	source, obstacle, err := r.source(ctx, job)
	if err != nil {
		return seen, err
	}
	obstacle = cmp.Or(obstacle, noRoom)
	seen.source = source
	seen.input = plan.Input{Job: job, Now: now, Obstacle: obstacle, Revision: job.Status.Revision, Digest: job.Status.RevisionDigest}
	if err := r.authorize(ctx, &seen); err != nil {
		return seen, err
	}
	job = seen.job
	if err := r.observeNodes(ctx, &seen); err != nil {
		return seen, err
	}
	if obstacle == nil {
		seen.input.Obstacle = r.refusals.Of(job)
		r.observeArchive(&seen)
		r.observeConditions(&seen)
		if job.DeletionTimestamp.IsZero() {
			seen.input.Revision, seen.input.Digest = observe.Revision(job, source, seen.input.Nodes)
		}
	}
	if err := errors.Join(r.observePeers(ctx, &seen), r.observeBudgets(ctx, &seen)); err != nil {
		return seen, err
	}
	seen.input.OwnNode = r.Own.Node
	seen.input.Drains, seen.asked = r.observeDrains(ctx, job, seen.input)
	pods, foreignPods, err := r.podsOf(ctx, client.ObjectKeyFromObject(job), job.UID)
	if err != nil {
		return seen, err
	}
	seen.input.Pods = r.podViews.read(client.ObjectKeyFromObject(job), pods)
	for i, pod := range pods {
		seen.unseen = seen.unseen || pod.unseen
		view := &seen.input.Pods[i]
		view.Waiting = r.written.waiting(view.UID, view.Waiting, now)
	}
	if job.Spec.Task.Template != nil {
		seen.input.RunnerRefused = r.runnerRefusals.Of(job)
	}
	seen.input.NodeProblems = r.problems.on(client.ObjectKeyFromObject(job), task.RetryToken(job), seen.input.Nodes)
	seen.foreignPods = foreignPods
	seen.input.BusyNodes = observe.BusyNodes(job, foreignPods)
	return seen, nil
}

func (r observer) observeNodes(ctx context.Context, seen *observation) error {
	cached, err := r.listNodes(ctx)
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	all := make([]*corev1.Node, 0, len(cached))
	for _, node := range cached {
		all = append(all, r.written.node(node))
	}
	unseen, err := r.unseenNodes(ctx, cached, seen.input.Now)
	if err != nil {
		return err
	}
	key := v1alpha1.RecordKey(seen.job.Namespace, seen.job.Name)
	seen.input.Nodes = make([]plan.Node, 0, len(all)+len(unseen))
	for _, node := range append(all, unseen...) {
		view := r.nodeViews.read(node)
		view.Published = r.records.published(node)
		view.On = r.records.read(node.Name, node.Labels, node.Annotations, key)
		seen.input.Nodes = append(seen.input.Nodes, view)
		if !view.Created.Before(seen.job.CreationTimestamp.Time) && !view.On.WasDone() {
			seen.joining[node.Name] = joiningNode{created: node.CreationTimestamp.Time, readySince: view.ReadySince}
		}
	}
	return nil
}

// podsOf returns the pods that the NodeJob with that UID owns, including those that the cache does not show yet, and
// the foreign pods, which have its name in their label and another owner.
func (r observer) podsOf(ctx context.Context, name client.ObjectKey, owner types.UID) (own []seenPod, foreignPods []*corev1.Pod, err error) {
	all, err := r.listPods(ctx, name)
	if err != nil {
		return nil, nil, fmt.Errorf("listing pods: %w", err)
	}
	cached := make([]*corev1.Pod, 0, len(all))
	for _, pod := range all {
		if ownedBy(pod, owner) {
			cached = append(cached, pod)
		} else {
			foreignPods = append(foreignPods, pod)
		}
	}
	own, doubtful := r.written.podsOf(owner, cached, r.Now())
	for _, pod := range doubtful {
		if err := r.lookAgain(ctx, pod); err != nil {
			return nil, nil, err
		}
	}
	if len(doubtful) > 0 {
		own, _ = r.written.podsOf(owner, cached, r.Now())
	}
	return own, foreignPods, nil
}

// lookAgain asks the API server for a pod that the cache should show and does not.
func (r observer) lookAgain(ctx context.Context, pod *corev1.Pod) error {
	var live corev1.Pod
	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(pod), &live)
	switch {
	case apierrors.IsNotFound(err), err == nil && live.UID != pod.UID:
		r.podGone(ctx, pod)
		return nil
	case err != nil:
		return fmt.Errorf("getting pod %s: %w", pod.Name, err)
	}
	r.written.rememberPod(stripPod(r.Options.Key, &live), r.Now())
	return nil
}

// newest returns the newest known version of a NodeJob; nil if it does not exist. Directly after this manager becomes
// the leader, the cache may not contain a remembered NodeJob yet. Its pods must not be treated as those of a deleted
// one.
func (r observer) newest(ctx context.Context, name client.ObjectKey) (*v1alpha1.NodeJob, error) {
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

// reread reads a NodeJob from the API server, and remembers it until the cache shows it.
func (r observer) reread(ctx context.Context, name client.ObjectKey) error {
	live, err := r.liveJob(ctx, name)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.written.rememberJob(live)
	return nil
}

// warmUp starts leadership with a consistent list. The cache of a standby may be behind the writes of the last leader.
func (r observer) warmUp(ctx context.Context) error {
	r.primed.Lock()
	defer r.primed.Unlock()
	if r.isWarm.Load() {
		return nil
	}
	var jobs v1alpha1.NodeJobList
	err := r.eachPage(ctx, &jobs, func() {
		for i := range jobs.Items {
			job := strip(r.Options.Key, jobs.Items[i].DeepCopy()).(*v1alpha1.NodeJob)
			if _, allowed := r.namespaces().Allowed(ctx, job.Namespace); job.Status.Revision == "" && (!allowed || r.Room.LacksRoom(job)) {
				continue // nothing was written for it
			}
			r.written.rememberJob(job)
		}
	}, client.Limit(jobPageSize))
	if err != nil {
		return fmt.Errorf("listing NodeJobs: %w", err)
	}
	var pods corev1.PodList
	err = r.eachPage(ctx, &pods, func() {
		for i := range pods.Items {
			if fromNodeJob(r.Options.Key, &pods.Items[i]) {
				r.written.rememberPod(stripPod(r.Options.Key, pods.Items[i].DeepCopy()), r.Now())
			}
		}
	}, client.HasLabels{v1alpha1.NodeJobLabel})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	// After the pods: the last leader may still write a record, and then release the pod.
	if err := r.warmUpNodes(ctx); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	r.isWarm.Store(true)
	return nil
}

// eachPage lists in pages, because whole nodes with their images are large, and only little of them is kept.
func (r *shell) eachPage(ctx context.Context, list client.ObjectList, do func(), opts ...client.ListOption) error {
	opts = append([]client.ListOption{client.Limit(pageSize)}, opts...)
	for next := ""; ; {
		if err := r.Reader.List(ctx, list, append(opts, client.Continue(next))...); err != nil {
			return err
		}
		do()
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// pageSize limits what is in memory at once: a node with records of a hundred NodeJobs has 50 kB, and can have 256 kB.
const pageSize = 200

// jobPageSize is that of NodeJobs, which can have 1.5 MB.
const jobPageSize = 10
