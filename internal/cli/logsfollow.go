// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

const (
	// maxStreams bounds the logs that are followed at once.
	maxStreams = 64
	// lookInterval is how often pods are looked for that have come.
	lookInterval = 2 * time.Second
	// followTries is how often a log is opened again that says nothing new, with followPause in between: an API server or
	// a kubelet that starts again is back by then.
	followTries = 60
)

// stream follows the logs of all pods that run, and of those that come, until nothing runs any more.
func (o *logsOptions) stream(ctx context.Context, job *v1alpha1.NodeJob, pods []corev1.Pod) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxStreams)
	followed := map[types.UID]bool{}
	for {
		for i := range pods {
			o.followPod(ctx, group, &pods[i], followed)
		}
		over, err := o.over(ctx, job, followed)
		if over || err != nil {
			return cmp.Or(err, group.Wait())
		}
		select {
		case <-o.After(lookInterval):
		case <-ctx.Done():
			return group.Wait()
		}
		if pods, err = o.selected(ctx, job); err != nil && CodeOf(err) != ExitNoAnswer {
			return err
		}
	}
}

// followPod follows a pod that has something to say, unless there are too many already: then its turn comes.
func (o *logsOptions) followPod(ctx context.Context, group *errgroup.Group, pod *corev1.Pod, followed map[types.UID]bool) {
	if followed[pod.UID] || pod.Status.Phase == corev1.PodPending {
		return
	}
	f := follower{logsOptions: o, pod: pod, log: logTail{pods: o.pods, pod: pod.Name, container: containerOf(pod), lines: o.tail}}
	if group.TryGo(func() error { return f.follow(ctx) }) {
		followed[pod.UID] = true
	}
}

// over is true when nothing runs that is not followed, and nothing more will by itself.
func (o *logsOptions) over(ctx context.Context, job *v1alpha1.NodeJob, followed map[types.UID]bool) (bool, error) {
	now, err := GetJob(ctx, o.client, o.key)
	switch code := CodeOf(err); {
	case code == ExitNotFound:
		return true, nil
	case code == ExitNoAnswer:
		return false, nil
	case err != nil:
		return false, err
	case now.UID != job.UID:
		return true, nil
	case verdict(now) == goesOn:
		return false, nil
	}
	pods, err := o.selected(ctx, job)
	left := slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !followed[p.UID] })
	return err == nil && !left, nil
}

// selected are the pods whose logs are meant, the oldest first.
func (o *logsOptions) selected(ctx context.Context, job *v1alpha1.NodeJob) ([]corev1.Pod, error) {
	pods, err := o.wanted(ctx, job)
	if err != nil || !o.failed {
		return pods, err
	}
	records, err := o.records(ctx)
	if err != nil {
		return nil, err
	}
	return o.failedPods(pods, records), nil
}

// follower prints the log of a pod as it comes.
type follower struct {
	*logsOptions
	pod *corev1.Pod
	log logTail
}

// follow ends with the log. One that cannot be read is no reason to stop with the others.
func (f *follower) follow(ctx context.Context) error {
	for try := 1; ; try++ {
		ended := hasEnded(f.pod)
		printed, err := f.log.read(ctx, f.print)
		if printed {
			try = 1
		}
		switch {
		case ctx.Err() != nil, err == nil && ended:
			return f.finish(nil)
		case try >= followTries:
			return f.finish(cmp.Or(err, errEndsAgain))
		case isLasting(err):
			return f.finish(err)
		}
		select {
		case <-f.After(followPause):
		case <-ctx.Done():
			return nil
		}
		if f.gone(ctx) {
			return f.finish(err) // without one it had ended, and its pod was let go
		}
	}
}

// errEndsAgain is why a log is given up that ends in good order, and too soon, all the time.
var errEndsAgain = errors.New("it ends again and again while its container runs")

// isLasting is true for an error that another try would not change.
func isLasting(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// finish says what is missing of a log, if something is. That nobody answers, or that no logs may be read, ends all.
func (f *follower) finish(err error) error {
	f.log.flush(f.print)
	var answer apierrors.APIStatus
	switch code := CodeOf(Explain(err)); {
	case err == nil:
	case code == ExitForbidden, code == ExitNoAnswer && !errors.As(err, &answer):
		return Explain(err)
	default:
		f.tellUnread(f.pod, err)
	}
	return nil
}

// gone looks at the pod, and is true when there is none any more. What cannot be seen now stays as it was.
func (f *follower) gone(ctx context.Context) bool {
	var live corev1.Pod
	err := f.client.Get(ctx, client.ObjectKeyFromObject(f.pod), &live)
	if apierrors.IsNotFound(err) || (err == nil && live.UID != f.pod.UID) {
		return true
	}
	if err == nil {
		f.pod = &live
	}
	return false
}

// hasEnded is true when nothing more will be written to the log of a pod.
func hasEnded(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == containerOf(pod) && status.State.Terminated != nil {
			return true
		}
	}
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (f *follower) print(piece string, _ bool) {
	f.line(f.pod.Spec.NodeName, spaced(strings.TrimSuffix(piece, "\n")))
}
