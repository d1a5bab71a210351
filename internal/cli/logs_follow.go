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
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/podlog"
)

const (
	// maxStreams limits the number of logs that are followed at once.
	maxStreams = 64
	// listInterval is the interval at which the command lists pods to find new ones.
	listInterval = 2 * time.Second
	// followTries is the number of times that a log is reopened without new content, with a pause of reopenPause. An API
	// server or a kubelet that restarts is available again by then.
	followTries = 60
	// reopenPause is the pause before a log is reopened.
	reopenPause = time.Second
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
	f := follower{logsOptions: o, pod: pod, log: podlog.Tail{Pods: o.pods, Pod: pod.Name, Container: cmdutil.TaskContainer(pod), Lines: o.tail}}
	if group.TryGo(func() error { return f.follow(ctx) }) {
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

// follower prints the log of one pod while the pod runs.
type follower struct {
	*logsOptions
	pod *corev1.Pod
	log podlog.Tail
}

// follow returns when the log ends. An error of one log does not end the others.
func (f *follower) follow(ctx context.Context) error {
	for try := 1; ; try++ {
		ended := cmdutil.LogEnded(f.pod)
		printed, err := f.log.Read(ctx, f.print)
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
		case <-f.After(reopenPause):
		case <-ctx.Done():
			return nil
		}
		if f.gone(ctx) {
			return f.finish(err) // without an error, the attempt has ended and its pod was released
		}
	}
}

// errEndsAgain is the reason to give up a log whose stream repeatedly ends too early without an error.
var errEndsAgain = errors.New("it ends again and again while its container runs")

// isLasting reports whether an error would occur again on a retry.
func isLasting(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// finish prints what is missing from a log, if anything. An API server that does not respond, or a missing permission
// to read logs, ends the command.
func (f *follower) finish(err error) error {
	f.log.Flush(f.print)
	var answer apierrors.APIStatus
	switch code := cmdutil.CodeOf(cmdutil.Explain(err)); {
	case err == nil:
	case code == cmdutil.ExitForbidden, code == cmdutil.ExitNoAnswer && !errors.As(err, &answer):
		return cmdutil.Explain(err)
	default:
		f.tellUnread(f.pod, err)
	}
	return nil
}

// gone reads the pod, and reports whether it is deleted. If the read fails, the previous state is assumed.
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

func (f *follower) print(piece string, _ bool) {
	f.line(f.pod.Spec.NodeName, spaced(strings.TrimSuffix(piece, "\n")))
}
