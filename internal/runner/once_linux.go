// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
)

// A kubelet may start a container twice in one pod with restartPolicy Never: if containerd is restarted while it starts
// the container, the kubelet treats the start as failed and creates another container, although the first one runs. A
// task that restarts containerd in its first milliseconds causes this. So a directory that all containers of the pod
// share stores that the task has started and how it ended. The task runs once, and a second container reports the
// result of the first one.
//
//	lock      held by the container that runs the task, for as long as it lives
//	started   there when the task has begun
//	outcome   there when the task has ended
type runLock struct {
	dir  string
	lock *os.File
}

const (
	lockName    = "lock"
	startedName = "started"
	outcomeName = "outcome"

	turnPoll = 50 * time.Millisecond
)

// acquireRunLock waits until no other container of the pod runs the task. The outcome is not nil if this container must
// not run the task. Without a run directory, every container runs it.
func acquireRunLock(dir string, signals <-chan os.Signal, deadline <-chan time.Time) (*runLock, *outcome.Outcome, error) {
	if dir == "" {
		return &runLock{}, nil, nil
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return &runLock{}, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("opening the run directory: %w", err)
	}
	t := &runLock{dir: dir, lock: lock}
	ended, err := t.waitForLock(signals, deadline)
	if err != nil || ended != nil {
		return t, ended, err
	}
	ended, err = t.begin()
	return t, ended, err
}

func (t *runLock) waitForLock(signals <-chan os.Signal, deadline <-chan time.Time) (*outcome.Outcome, error) {
	poll := time.NewTicker(turnPoll)
	defer poll.Stop()
	for {
		err := unix.Flock(int(t.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("locking the run directory: %w", err)
		}
		select {
		case <-poll.C:
		case <-deadline:
			return &outcome.Outcome{ExitCode: exitTimedOut, Reason: outcome.ReasonTimedOut,
				Message: "the task runs on in an earlier container of this pod, past its time limit"}, nil
		case s := <-signals:
			if s == syscall.SIGTERM || s == syscall.SIGINT {
				return interruptedEarlier("this container was told to stop while the task ran in an earlier one"), nil
			}
		}
	}
}

// begin records that the task starts, unless it has started before.
func (t *runLock) begin() (*outcome.Outcome, error) {
	content, err := os.ReadFile(filepath.Join(t.dir, outcomeName))
	if err == nil {
		if o, ok := outcome.Decode(string(content)); ok {
			return &o, nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the outcome of an earlier container: %w", err)
	}
	started, err := os.OpenFile(filepath.Join(t.dir, startedName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return interruptedEarlier("an earlier container of this pod began the task and was ended before the task was"), nil
	}
	if err != nil {
		return nil, fmt.Errorf("noting the start of the task: %w", err)
	}
	return nil, started.Close()
}

// hasNotStarted reports whether no container of the pod has started the task. Without a run directory, that is not known.
func hasNotStarted(dir string) bool { return exists(dir) && !exists(filepath.Join(dir, startedName)) }

func interruptedEarlier(message string) *outcome.Outcome {
	return &outcome.Outcome{ExitCode: 128 + int(syscall.SIGTERM), Reason: outcome.ReasonDisrupted, Message: message}
}

// end stores the outcome for a container that may be started later.
func (t *runLock) end(o outcome.Outcome) error {
	if t.dir == "" {
		return nil
	}
	path := filepath.Join(t.dir, outcomeName)
	if err := os.WriteFile(path+".new", o.Encode(), 0o600); err != nil {
		return fmt.Errorf("keeping the outcome: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("keeping the outcome: %w", err)
	}
	return nil
}
