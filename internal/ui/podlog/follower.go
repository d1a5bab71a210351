// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package podlog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Limits of Follow.
const (
	// Tries is the number of times that a log is opened without new content, with a pause between them. An API server or a kubelet
	// that restarts is available again by then.
	Tries = 60
	// reopenPause is the pause before a log is opened again.
	reopenPause = time.Second
)

// ErrEndsAgain is the reason to give up a log whose stream repeatedly ends too early without an error.
var ErrEndsAgain = errors.New("it ends again and again while its container runs")

// Follower reads a log until it has ended.
type Follower struct {
	Tail
	After func(time.Duration) <-chan time.Time
	// Ended reports whether the log had ended (Ended of its pod) before Follow is called.
	Ended bool
	// Look is called before the log is opened again. It reports whether the log has ended, and whether the pod is deleted.
	Look func(ctx context.Context) (ended, deleted bool)
	// SeenEnd is closed when the end of the log is observed, which ends the pause; nil if only Look observes it.
	SeenEnd <-chan struct{}
	// AnsweredTries is Tries for errors with which the API server responds, for example because it does not reach the kubelet; 0 for
	// the same number.
	AnsweredTries int

	// tries are the reads since the last content, and answered those of them that ended in a response of the API server.
	tries, answered int
}

// Follow passes on a log until it has ended, its pod is deleted, an error would occur again, or the context has ended. The error is
// that of the last stream. Without an error, the log is complete, unless its pod was deleted.
//
// A stream that ends without an error proves nothing: the API server also ends it so if it loses its connection to the kubelet
// (k8s.io/apiserver, responsewriters.StreamObject). So a log has ended when a read that began after the end of the container brings nothing
// new.
func (f *Follower) Follow(ctx context.Context, hand Handler) (deleted bool, err error) {
	ended, wasClean := f.Ended, false
	for {
		before := f.position()
		progress, err := f.Read(ctx, hand)
		enough := f.count(progress, err, ended)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case apierrors.IsNotFound(err) && wasClean:
			return true, nil
		case isLasting(err, ended), enough:
			return apierrors.IsNotFound(err), cmp.Or(err, ErrEndsAgain)
		}
		if wasClean = err == nil; wasClean && ended {
			if f.position() == before {
				return false, nil
			}
			continue // for what may be missing
		}
		if !f.pause(ctx, ended) {
			return false, ctx.Err()
		}
		if ended, deleted = f.Look(ctx); deleted {
			return true, err
		}
	}
}

// pause waits before the log is opened again, and reports whether the context has not ended.
func (f *Follower) pause(ctx context.Context, ended bool) bool {
	seen := f.SeenEnd
	if ended {
		seen = nil
	}
	select {
	case <-seen:
	case <-f.After(reopenPause):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// count adds a read, and reports whether there were enough. There never are when the log can be read to its end.
func (f *Follower) count(progress bool, err error, ended bool) (enough bool) {
	if progress {
		f.tries, f.answered = 0, 0
	}
	if err == nil && ended {
		return false
	}
	f.tries++
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		f.answered++
	}
	return f.tries >= Tries || f.answered >= cmp.Or(f.AnsweredTries, Tries)
}

// isLasting reports whether an error would occur again. A request for the log of a container that has not started is bad until it has.
func isLasting(err error, ended bool) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || (apierrors.IsBadRequest(err) && ended)
}

// Container returns the name of the container whose log is read: the container of the task. An admission webhook or policy may
// have added others before it.
func Container(pod *corev1.Pod) string {
	own := task.Containers(pod)
	if slices.Contains(own, task.ContainerName) {
		return task.ContainerName
	}
	if len(own) > 0 {
		return own[0]
	}
	return ""
}

// Ended reports whether nothing more will be written to the log of a task. The kubelet reports the end of a container
// about a second before the phase of its pod. A log is complete only if a read that began afterwards has reached its end: a
// stream also ends without an error when a kubelet restarts.
func Ended(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == Container(pod) && status.State.Terminated != nil {
			return true
		}
	}
	return kube.PodEnded(pod.Status.Phase)
}
