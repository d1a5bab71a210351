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
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/podlog"
)

const (
	// maxStreams limits the number of logs that are followed at once.
	maxStreams = 64
	// listInterval is the interval at which the command lists pods to find new ones.
	listInterval = 2 * time.Second
)

// stream follows the logs of all running pods, including new ones, until none is running.
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
		case <-o.After(listInterval):
		case <-ctx.Done():
			return group.Wait()
		}
		if pods, err = o.selected(ctx, job); err != nil && cmdutil.CodeOf(err) != cmdutil.ExitNoAnswer {
			return err
		}
	}
}

// followPod follows a pod whose container has started. If maxStreams is reached, a later call follows it.
func (o *logsOptions) followPod(ctx context.Context, group *errgroup.Group, pod *corev1.Pod, followed map[types.UID]bool) {
	if followed[pod.UID] || pod.Status.Phase == corev1.PodPending {
		return
	}
	if group.TryGo(func() error { return o.followLog(ctx, pod) }) {
		followed[pod.UID] = true
	}
}

// over reports whether no unfollowed pod is running and no further pod will start automatically.
func (o *logsOptions) over(ctx context.Context, job *v1alpha1.NodeJob, followed map[types.UID]bool) (bool, error) {
	now, err := cmdutil.GetJob(ctx, o.client, o.key)
	switch code := cmdutil.CodeOf(err); {
	case code == cmdutil.ExitNotFound:
		return true, nil
	case code == cmdutil.ExitNoAnswer:
		return false, nil
	case err != nil:
		return false, err
	case now.UID != job.UID:
		return true, nil
	case verdict(now) == inProgress:
		return false, nil
	}
	pods, err := o.selected(ctx, job)
	left := slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !followed[p.UID] })
	return err == nil && !left, nil
}

// selected returns the pods whose logs are printed, the oldest first.
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

// followLog prints the log of a pod until it ends. An error of one log does not end the others. An API server that does not respond,
// or a missing permission to read logs, ends the command.
func (o *logsOptions) followLog(ctx context.Context, pod *corev1.Pod) error {
	log := podlog.Follower{
		Tail:  podlog.Tail{Pods: o.pods, Pod: pod.Name, Container: podlog.Container(pod), Lines: o.tail},
		After: o.After, Ended: podlog.Ended(pod),
		Look: func(ctx context.Context) (ended, deleted bool) { return o.look(ctx, pod) },
	}
	hand := func(piece string, _ bool) { o.line(pod.Spec.NodeName, spaced(strings.TrimSuffix(piece, "\n"))) }
	_, err := log.Follow(ctx, hand)
	log.Flush(hand)
	if err == nil || errors.Is(err, ctx.Err()) { // if the pod was deleted after its log has ended, its attempt has ended
		return nil
	}
	return o.unread(pod, err)
}

// unread tells that a log could not be read. An API server that does not respond, or a missing permission, ends the command.
func (o *logsOptions) unread(pod *corev1.Pod, err error) error {
	explained := cmdutil.Explain(err)
	var answer apierrors.APIStatus
	if code := cmdutil.CodeOf(explained); code == cmdutil.ExitForbidden || code == cmdutil.ExitNoAnswer && !errors.As(err, &answer) {
		return explained
	}
	o.tellUnread(pod, err)
	return nil
}

// look reads the pod. If that fails, its previous state is assumed.
func (o *logsOptions) look(ctx context.Context, pod *corev1.Pod) (ended, deleted bool) {
	var live corev1.Pod
	switch err := o.client.Get(ctx, client.ObjectKeyFromObject(pod), &live); {
	case apierrors.IsNotFound(err), err == nil && live.UID != pod.UID:
		return false, true
	case err == nil:
		pod.Status = live.Status
	}
	return podlog.Ended(pod), false
}
