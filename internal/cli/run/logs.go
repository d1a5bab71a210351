// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/ui/listwatch"
	"github.com/everynode/everynode/internal/ui/podlog"
)

// Logs are followed while the pods run, and read at once after they have ended: the pods are retained
// (retainPodsSeconds) until they are read. Both kinds have separate limits, so that long tasks do not delay the logs of
// the others. An API server allows a few hundred streams per connection, and watches and writes need some of these.
const (
	maxFollowed   = 64
	maxReadAtOnce = 16
	logChunk      = 16 << 10
	// unreadableTries is the number of times that a log is opened which the API server cannot read.
	unreadableTries = 5
)

// logPart is a piece of the output of a pod.
type logPart struct {
	pod  types.UID
	data []byte
	// end marks the last part. err is the reason why the log is incomplete, or nil if it is complete.
	end bool
	err error
}

// logs reads the logs of the pods of a NodeJob.
type logs struct {
	pods  corev1client.PodInterface
	parts chan<- logPart
	after func(time.Duration) <-chan time.Time

	follow, read chan struct{} // semaphores
	mu           sync.Mutex
	ended        map[types.UID]chan struct{} // closed when the end of the pod is observed
}

func newLogs(pods corev1client.PodInterface, parts chan<- logPart, after func(time.Duration) <-chan time.Time) *logs {
	return &logs{
		pods: pods, parts: parts, after: after,
		follow: make(chan struct{}, maxFollowed), read: make(chan struct{}, maxReadAtOnce),
		ended: map[types.UID]chan struct{}{},
	}
}

// see receives each observation of a pod, and starts to read its log when there is one.
func (l *logs) see(ctx context.Context, pod *corev1.Pod) {
	ended := podlog.Ended(pod)
	if !ended && !containerRuns(pod) {
		return
	}
	l.mu.Lock()
	over, known := l.ended[pod.UID]
	if !known {
		over = make(chan struct{})
		l.ended[pod.UID] = over
	}
	if ended && !isClosed(over) {
		close(over)
	}
	l.mu.Unlock()
	if known {
		return
	}
	name, uid := pod.Name, pod.UID
	go func() { l.send(ctx, logPart{pod: uid, end: true, err: l.readAll(ctx, name, uid, over)}) }()
}

// gone receives a pod that was deleted.
func (l *logs) gone(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over, known := l.ended[uid]; known && !isClosed(over) {
		close(over)
	}
}

// knows reports whether the log of a pod is or was being read.
func (l *logs) knows(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.ended[uid]
	return known
}

func containerRuns(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == task.ContainerName && s.State.Running != nil
	})
}

// take acquires a semaphore: that of running pods, or that of ended pods, also if a pod ends while it waits. The result
// releases it.
func (l *logs) take(ctx context.Context, over <-chan struct{}) (giveBack func(), err error) {
	if !isClosed(over) {
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

// readAll reads a log to its end, and reopens it as often as necessary. It does not send the same content twice.
func (l *logs) readAll(ctx context.Context, name string, uid types.UID, over <-chan struct{}) error {
	giveBack, err := l.take(ctx, over)
	if err != nil {
		return err
	}
	defer giveBack()
	log := podlog.Follower{
		Tail:  podlog.Tail{Pods: l.pods, Pod: name, Container: task.ContainerName, Lines: -1},
		After: l.after, Ended: isClosed(over), SeenEnd: over, AnsweredTries: unreadableTries,
		Look: func(context.Context) (ended, deleted bool) { return isClosed(over), false },
	}
	var ready []byte
	send := func() {
		if len(ready) > 0 {
			l.send(ctx, logPart{pod: uid, data: ready})
			ready = nil
		}
	}
	collect := func(piece string, more bool) {
		if ready = append(ready, piece...); !more || len(ready) >= logChunk {
			send()
		}
	}
	_, err = log.Follow(ctx, collect)
	log.Flush(collect)
	send()
	return err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// send returns without sending if the receiver has ended.
func (l *logs) send(ctx context.Context, part logPart) { listwatch.Send(ctx, l.parts, part) }
