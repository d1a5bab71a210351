// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/outcome"
)

// starter creates the pods of attempts.
type starter struct{ writer }

// errSkipped is for a pod that was not tried, because another of the same kind was rejected. errPostponed is for a pod
// that the next pass creates.
var errSkipped, errPostponed = errors.New("not tried"), errors.New("postponed")

// isRunner reports whether a pod runs a script although the task is a template. The API server may accept one kind of
// pod and reject the other.
func isRunner(job *v1alpha1.NodeJob, start *plan.Start) bool {
	return job.Spec.Task.Template != nil && start.Attempt.Phase != task.Task
}

func asStarts(actions []plan.Action) []plan.Start {
	starts := make([]plan.Start, 0, len(actions))
	for _, action := range actions {
		if a, ok := action.(plan.Start); ok {
			starts = append(starts, a)
		}
	}
	return starts
}

// startAll creates pods. If one is rejected, others of its kind would be rejected too. So the first pod of each kind is
// created alone, and the others after it. After a while, the rest is left to the next pass: it records first what has
// ended meanwhile. The results must not be read before the group has ended.
func (r starter) startAll(ctx context.Context, seen observation, starts []plan.Start, group *errgroup.Group) []error {
	results := make([]error, len(starts))
	tried, stopped := map[bool]bool{}, map[bool]bool{}
	until := r.Now().Add(r.looks.startsFor(client.ObjectKeyFromObject(seen.job)))
	nodes := nodesOfStarts(seen.input.Nodes, starts)
	for i := range starts {
		sort := isRunner(seen.job, &starts[i])
		switch {
		case stopped[sort]:
			results[i] = errSkipped
		case tried[sort] && r.Now().After(until):
			results[i] = errPostponed
		case tried[sort]:
			group.Go(func() error { results[i] = r.start(ctx, seen, starts[i], nodes); return nil })
		default:
			tried[sort] = true
			results[i] = r.start(ctx, seen, starts[i], nodes)
			stopped[sort] = results[i] != nil
		}
	}
	return results
}

// nodesOfStarts returns the nodes by UID; nil if nothing starts.
func nodesOfStarts(nodes []plan.Node, starts []plan.Start) map[types.UID]*plan.Node {
	if len(starts) == 0 {
		return nil
	}
	byUID := make(map[types.UID]*plan.Node, len(nodes))
	for i := range nodes {
		byUID[nodes[i].UID] = &nodes[i]
	}
	return byUID
}

// probed are the pods for which a dry run was made before their nodes are cordoned or drained.
type probed struct {
	mu      sync.Mutex
	starts  []plan.Start
	results []error
}

// with adds the rejected pods to the starts of a pass. An accepted dry run does not guarantee that the creation
// succeeds.
func (p *probed) with(starts []plan.Start, results []error) ([]plan.Start, []error) {
	return append(starts, p.starts...), append(results, p.results...)
}

// mayPrepare reports whether an action may run: it is not the cordon or drain for an attempt, or the API server would
// accept the pods of that attempt and of its reboot.
func (r starter) mayPrepare(ctx context.Context, seen observation, action plan.Action, p *probed) bool {
	mark, ok := action.(plan.PatchNode)
	if !ok || mark.Before == nil {
		return true
	}
	reboot := *mark.Before
	reboot.Phase = task.Reboot
	return r.probe(ctx, seen, mark.Before, p) && (task.RebootPolicy(seen.job) == v1alpha1.RebootNever || r.probe(ctx, seen, &reboot, p))
}

// probe reports whether the API server would accept the pod of an attempt, before a node is cordoned or drained for it.
func (r starter) probe(ctx context.Context, seen observation, attempt *task.Attempt, p *probed) bool {
	pod, err := r.podOf(ctx, seen, *attempt)
	if err != nil {
		return true // the error occurs again when the pod is created
	}
	if err = r.keepsImages(ctx, pod); err == nil {
		err = r.Client.Create(ctx, pod, client.DryRunAll)
	}
	switch rejected := r.asRejection(seen.job, err); {
	case apierrors.IsAlreadyExists(err):
		ours, err := r.adopt(ctx, seen.job, pod, attempt.NodeUID)
		return ours && err == nil
	case rejected != nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.starts, p.results = append(p.starts, plan.Start{Attempt: *attempt}), append(p.results, rejected)
		return false
	}
	return true // any other error occurs again when the pod is created
}

// judgeStarts records what was rejected, by kind and by node, and returns all other errors.
func (r starter) judgeStarts(seen observation, starts []plan.Start, results []error) (refused bool, err error) {
	name, now := client.ObjectKeyFromObject(seen.job), r.Now()
	for _, sort := range []bool{false, true} {
		var errs []error
		for i := range starts {
			tried := !errors.Is(results[i], errSkipped) && !errors.Is(results[i], errPostponed)
			if isRunner(seen.job, &starts[i]) == sort && tried {
				errs = append(errs, results[i])
			}
		}
		refusedOne, other := r.judgeSort(seen.job, r.refusalsFor(sort), errs)
		refused, err = refused || refusedOne, errors.Join(err, other)
	}
	for i := range starts {
		if _, is := errors.AsType[*loop.RefusedError](results[i]); is {
			why := r.refusalOf(seen.job, &starts[i])
			r.problems.note(name, starts[i].Attempt.NodeUID, why.Reason, why.Message, now, firstTroubleWait, longestTroubleWait)
		}
	}
	return refused, err
}

// judgeSort records the results for the pods of one kind, and when the API server starts or stops rejecting them.
func (r starter) judgeSort(job *v1alpha1.NodeJob, refusals *loop.Refusals, errs []error) (refused bool, err error) {
	name, now, was := client.ObjectKeyFromObject(job), r.Now(), refusals.Of(job)
	refused, err = refusals.Judge(job, errs, now)
	switch is := refusals.Of(job); {
	case was == nil && is != nil:
		r.problems.refusing(name, now)
	case was != nil && is == nil:
		r.problems.accepting(name, now)
	}
	return refused, err
}

// refusalOf returns why pods of that kind are rejected.
func (r starter) refusalOf(job *v1alpha1.NodeJob, start *plan.Start) hold.Why {
	if o := r.refusalsFor(isRunner(job, start)).Of(job); o != nil {
		return *o
	}
	return hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "the API server refuses the pod"}
}

// start creates the pod of an attempt. If it already exists and is ours, that is a success: the name identifies the
// attempt.
func (r starter) start(ctx context.Context, seen observation, start plan.Start, nodes map[types.UID]*plan.Node) error {
	pod, err := r.podOf(ctx, seen, start.Attempt)
	if err != nil {
		return err
	}
	if err = r.keepsImages(ctx, pod); err == nil {
		err = r.Metrics.writes.Do(verbCreate, resourcePods, func() error { return r.Client.Create(ctx, pod) })
	}
	switch {
	case err == nil:
		r.written.rememberPod(stripPod(r.Options.Key, pod), r.Now())
		r.started(client.ObjectKeyFromObject(seen.job), start, nodes[start.Attempt.NodeUID])
		return nil
	case apierrors.IsAlreadyExists(err):
		_, err := r.adopt(ctx, seen.job, pod, start.Attempt.NodeUID)
		return err
	}
	if rejected := r.asRejection(seen.job, err); rejected != nil {
		return rejected
	}
	return fmt.Errorf("creating pod %s for node %s: %w", pod.Name, start.Attempt.NodeName, err)
}

// keepsImages returns loop.ErrImageVolumes if the API server would create a pod without its image volumes, which it does silently if it
// does not support them, and nil for a pod without any. It makes a dry run without a type, because the answer of a request with a type
// is decoded into the pod, and would not remove what it lacks.
// Source: kubernetes/pkg/api/pod (dropImageVolumes).
func (r starter) keepsImages(ctx context.Context, pod *corev1.Pod) error {
	wanted := imageVolumes(pod)
	if wanted == 0 {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return fmt.Errorf("encoding pod %s: %w", pod.Name, err)
	}
	probe := &unstructured.Unstructured{Object: content}
	probe.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := r.Client.Create(ctx, probe, client.DryRunAll); err != nil {
		return err // that of the creation
	}
	var answer corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(probe.Object, &answer); err != nil {
		return fmt.Errorf("decoding pod %s: %w", pod.Name, err)
	}
	if imageVolumes(&answer) < wanted {
		return loop.ErrImageVolumes
	}
	return nil
}

func imageVolumes(pod *corev1.Pod) (n int) {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Image != nil {
			n++
		}
	}
	return n
}

// newNamespaceGrace is how long a namespace may lack the service account "default" without a problem in the status. A
// controller of Kubernetes creates it shortly after the namespace, and a NodeJob may be applied together with its
// namespace.
const newNamespaceGrace = 30 * time.Second

// asRejection returns the error for a response that rejects a pod, and nil for any other. It is a RefusedError, unless
// the pod will be accepted soon, because the namespace of a new NodeJob is not complete: then it is an ordinary error,
// which is retried like a failed request.
func (r starter) asRejection(job *v1alpha1.NodeJob, err error) error {
	if loop.LacksDefaultAccount(err) && r.Now().Sub(job.CreationTimestamp.Time) < newNamespaceGrace {
		return fmt.Errorf("the namespace is new: %w", err)
	}
	return loop.AsRefusal(err)
}

// refusalReasons are the reasons of pods that the API server rejects.
var refusalReasons = []string{
	v1alpha1.ReasonPodForbidden, v1alpha1.ReasonServiceAccountNotFound, v1alpha1.ReasonPodInvalid, v1alpha1.ReasonPodNotCreated,
	v1alpha1.ReasonNamespaceTerminating, v1alpha1.ReasonImageVolumesNotSupported,
}

// podTroubles are the problems that end when a pod could be created.
var podTroubles = append([]string{v1alpha1.ReasonPodNameTaken}, refusalReasons...)

// started records that a pod could be created on a node; nil if the pass has not read the node.
func (r starter) started(job client.ObjectKey, start plan.Start, node *plan.Node) {
	attempt := &start.Attempt
	r.problems.clear(job, attempt.NodeUID, podTroubles...)
	if node != nil && (attempt.Phase == task.Task || attempt.Phase == task.CheckBefore) && attempt.Number == 1 && lacksEnd(node.On, attempt.Revision) {
		r.problems.begins(job, attempt.NodeUID, attempt.Revision, attempt.Retry, r.Now())
	}
}

// lacksEnd reports whether the recorded end of a run of the revision, if any, is missing on the node: the record was
// removed, or the label of its success.
func lacksEnd(on record.NodeRecord, revision string) bool {
	if on.Label == revision {
		return false
	}
	return on.Record == nil || on.Record.Revision != revision || on.Record.Outcome.Done()
}

// adopt remembers an existing pod that the cache does not show yet. A pod that is not ours is a problem of its node
// only: other nodes continue.
func (r starter) adopt(ctx context.Context, job *v1alpha1.NodeJob, pod *corev1.Pod, node types.UID) (ours bool, err error) {
	var live corev1.Pod
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(pod), &live); err != nil {
		// Not found: it was deleted in between, and the next pass creates it.
		return false, fmt.Errorf("getting pod %s, which existed already: %w", pod.Name, err)
	}
	owned, made := ownedBy(&live, job.UID), fromNodeJob(r.Options.Key, &live)
	if owned && !made {
		// Only a client that may write pods of the NodeJob can have made it, or changed it.
		if err := r.finalizePod(ctx, live.Namespace, viewPod(seenPod{Pod: live.DeepCopy()})); err != nil {
			return false, err
		}
	}
	if !owned || !made {
		r.problems.note(client.ObjectKeyFromObject(job), node, v1alpha1.ReasonPodNameTaken, fmt.Sprintf(
			"pod %s/%s on node %s has the name of the next attempt's pod, and the manager has not created it, or another client has changed it. Find out who writes it, and delete it if it stays: kubectl -n %s delete pod %s",
			live.Namespace, live.Name, outcome.CleanHead(live.Spec.NodeName, 253), live.Namespace, live.Name), r.Now(), firstTroubleWait, longestTroubleWait)
		return false, nil
	}
	r.written.rememberPod(stripPod(r.Options.Key, &live), r.Now())
	return true, nil
}

// podGone forgets a pod that no longer exists. A pod that was removed before its end was recorded is a problem: an
// attempt with an unknown outcome must not be repeated without a wait.
func (r *shell) podGone(ctx context.Context, pod *corev1.Pod) {
	released := r.written.wasFinalized(pod.UID) || r.written.wasRetained(pod.UID)
	r.written.forgetPod(pod.UID)
	view := observe.Pod(pod)
	name := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Labels[v1alpha1.NodeJobLabel]}
	var node corev1.Node
	if released || !r.isWarm.Load() || r.Client.Get(ctx, client.ObjectKey{Name: view.NodeName}, &node) != nil || node.UID != view.NodeUID {
		return
	}
	on := r.records.read(node.Name, node.Labels, node.Annotations, v1alpha1.RecordKey(name.Namespace, name.Name))
	if !isRecorded(on.Record, &view, node.Status.NodeInfo.BootID) {
		r.podForceDeleted(name, view.NodeUID, pod.Name, r.Now())
	}
}

// isRecorded reports whether the end of a pod is recorded, maybe by another manager. The success of a pod that reboots its
// node is not recorded: then the node is in another boot.
func isRecorded(rec *record.Record, pod *plan.Pod, bootID string) bool {
	rebooted := rec != nil && rec.Reboot != nil && rec.Reboot.FromBootID != record.BoundID(bootID)
	return rec.HasEndOf(pod.UID) || (pod.Runs == task.Reboot && rebooted)
}
