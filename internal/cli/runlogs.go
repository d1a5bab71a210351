// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/everynode/everynode/internal/task"
)

// Logs are followed while the pods run, and read at once where they have ended: pods that are kept (retainPodsSeconds)
// wait for us. Both have places of their own, so that tasks that take long keep none of the others waiting. An API
// server allows some hundred streams on a connection, of which watches and writes need some.
const (
	maxFollowed   = 64
	maxReadAtOnce = 16
	logChunk      = 16 << 10
	// logTries and logPause are how often and when a log is opened again that ended in an error.
	logTries = 5
	logPause = 500 * time.Millisecond
	// logAwayTries is the same where nobody answers: an API server that starts again is back by then.
	logAwayTries = 120
	// logEndSeen is how long the end of a container may take to be seen after that of its log.
	logEndSeen = 5 * time.Second
)

// logPart is a piece of what a pod printed.
type logPart struct {
	pod  types.UID
	data []byte
	// end is true for the last part, and err why there is no more; nil when that was all.
	end bool
	err error
}

// logs reads the logs of a NodeJob's pods.
type logs struct {
	pods  corev1client.PodInterface
	parts chan<- logPart
	after func(time.Duration) <-chan time.Time

	follow, read chan struct{} // places
	mu           sync.Mutex
	ended        map[types.UID]chan struct{} // closed when the pod is seen to have ended
}

func newLogs(pods corev1client.PodInterface, parts chan<- logPart, after func(time.Duration) <-chan time.Time) *logs {
	return &logs{
		pods: pods, parts: parts, after: after,
		follow: make(chan struct{}, maxFollowed), read: make(chan struct{}, maxReadAtOnce),
		ended: map[types.UID]chan struct{}{},
	}
}

// see is told of a pod as often as it is seen, and begins to read when there is something.
func (l *logs) see(ctx context.Context, pod *corev1.Pod) {
	started, ended := containerStarted(pod)
	if !started && !ended {
		return
	}
	l.mu.Lock()
	over, known := l.ended[pod.UID]
	if !known {
		over = make(chan struct{})
		l.ended[pod.UID] = over
	}
	if ended {
		select {
		case <-over:
		default:
			close(over)
		}
	}
	l.mu.Unlock()
	if known {
		return
	}
	name, uid := pod.Name, pod.UID
	go func() { l.send(ctx, logPart{pod: uid, end: true, err: l.readAll(ctx, name, uid, over)}) }()
}

// gone is told of a pod that is not there any more.
func (l *logs) gone(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over, known := l.ended[uid]; known {
		select {
		case <-over:
		default:
			close(over)
		}
	}
}

// knows is true for a pod whose log is being read, or was.
func (l *logs) knows(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.ended[uid]
	return known
}

func containerStarted(pod *corev1.Pod) (started, ended bool) {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == task.ContainerName {
			started = status.State.Running != nil || status.State.Terminated != nil
		}
	}
	return started, pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// take takes a place: of those for pods that run, or of those for pods that have ended, also when one does so while it
// waits. The result gives it back.
func (l *logs) take(ctx context.Context, over <-chan struct{}) (giveBack func(), err error) {
	select {
	case <-over:
	default:
		select {
		case l.follow <- struct{}{}:
			return func() { <-l.follow }, nil
		case <-over:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case l.read <- struct{}{}:
		return func() { <-l.read }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readAll reads a log to its end, however often it has to be opened for that. What was read is not sent again.
func (l *logs) readAll(ctx context.Context, name string, uid types.UID, over <-chan struct{}) error {
	giveBack, err := l.take(ctx, over)
	if err != nil {
		return err
	}
	defer giveBack()
	log := logTail{pods: l.pods, pod: name, container: task.ContainerName, lines: -1}
	defer log.flush(func(piece string, _ bool) { l.send(ctx, logPart{pod: uid, data: []byte(piece)}) })
	var tries logAttempts
	for {
		progress, err := l.readOnce(ctx, &log, uid)
		if progress {
			tries = logAttempts{}
		}
		if tries.count(err); ctx.Err() != nil || tries.isFinal(err) {
			return err
		}
		pause, done := logPause, (<-chan struct{})(nil)
		if err == nil {
			// It ends with its container, whose end is seen soon. If it is not, the stream was cut in good order.
			pause, done = logEndSeen, over
		}
		select {
		case <-done:
			return nil
		case <-l.after(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// logAttempts counts how often in a row a log could not be read: by the answer of the API server, or without one.
type logAttempts struct{ answered, away int }

func (a *logAttempts) count(err error) {
	var answer apierrors.APIStatus
	switch {
	case err == nil:
	case errors.As(err, &answer):
		a.answered++
	default:
		a.away++
	}
}

// isFinal is true for an error that another try would not change.
func (a *logAttempts) isFinal(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || (err != nil && (a.answered >= logTries || a.away >= logAwayTries))
}

// readOnce sends what a log has that was not sent, many lines at once where there are many.
func (l *logs) readOnce(ctx context.Context, log *logTail, uid types.UID) (progress bool, err error) {
	var ready []byte
	send := func() {
		if len(ready) > 0 {
			l.send(ctx, logPart{pod: uid, data: ready})
			ready = nil
		}
	}
	defer send()
	return log.read(ctx, func(piece string, more bool) {
		if ready = append(ready, piece...); !more || len(ready) >= logChunk {
			send()
		}
	})
}

// send is in vain when nobody wants it any more.
func (l *logs) send(ctx context.Context, part logPart) {
	select {
	case l.parts <- part:
	case <-ctx.Done():
	}
}
