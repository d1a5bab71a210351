// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits are the times the runner waits. Tests shorten them.
type Limits struct {
	// InterruptGrace passes between a signal to stop and SIGKILL. Pods have 30 s by default, and
	// the rest is for the outcome.
	InterruptGrace time.Duration
	// KillAfter passes between SIGTERM at the time limit and SIGKILL.
	KillAfter time.Duration
	// Linger is what a script's other processes have to end by themselves once it has ended, such
	// as the tee in "exec > >(tee log)".
	Linger time.Duration
	// GiveUp is how long killed processes are waited for. One in uninterruptible sleep (a dead NFS
	// server) cannot be ended by anybody.
	GiveUp time.Duration
	// Drain is how long output is waited for when all processes are gone.
	Drain time.Duration
	// Stall is how long the scripts are held up when nobody reads the container's output.
	Stall time.Duration
	// GoDown is what a node has to end its services after each request to reboot, where no time
	// limit says how long that may take.
	GoDown time.Duration
	// AskAgain passes between two requests to reboot when the first was refused.
	AskAgain time.Duration
}

// DefaultLimits are those of the contract with users, docs/runner.md.
func DefaultLimits() Limits {
	return Limits{
		InterruptGrace: 25 * time.Second,
		KillAfter:      5 * time.Second,
		Linger:         500 * time.Millisecond,
		GiveUp:         10 * time.Second,
		Drain:          2 * time.Second,
		Stall:          10 * time.Second,
		GoDown:         10 * time.Minute,
		AskAgain:       10 * time.Second,
	}
}

const (
	resultsEvery = 200 * time.Millisecond // between two looks at the size of the results file
	sweepEvery   = 50 * time.Millisecond  // between two looks for processes left behind
)

// supervisor waits for one script after the other. All of it runs in one goroutine, and only it
// reaps: a child that it has not reaped keeps its pid, so a signal never reaches a stranger.
type supervisor struct {
	limits   Limits
	signals  <-chan os.Signal // those to pass on
	children <-chan os.Signal // SIGCHLD
	deadline <-chan time.Time // nil: none
	results  *os.File

	// What stopped the attempt, first come first kept; zero values for nothing.
	interrupted syscall.Signal
	timedOut    bool
}

func (s *supervisor) stopped() bool { return s.interrupted != 0 || s.timedOut }

// poll takes note of what has happened while no script ran.
func (s *supervisor) poll() {
	for !s.stopped() {
		select {
		case sig := <-s.signals:
			s.interrupt(sig)
		case <-s.deadline:
			s.timedOut = true
		default:
			return
		}
	}
}

// interrupt remembers a signal that means stop, and reports whether it is the first reason to.
func (s *supervisor) interrupt(sig os.Signal) bool {
	if (sig != unix.SIGTERM && sig != unix.SIGINT) || s.stopped() {
		return false
	}
	s.interrupted = sig.(syscall.Signal)
	return true
}

// wait waits for a script and stops it when the time limit or a signal says so. It is false when
// the process could not be ended.
func (s *supervisor) wait(pid int) (status unix.WaitStatus, ended bool) {
	look := time.NewTicker(resultsEvery)
	defer look.Stop()
	var kill, giveUp <-chan time.Time
	for {
		if reaped := reap(); reaped.has(pid) {
			return reaped.statuses[pid], true
		}
		select {
		case <-s.children:
		case sig := <-s.signals:
			_ = unix.Kill(-pid, sig.(syscall.Signal)) // ESRCH: about to be reaped
			if s.interrupt(sig) {
				kill = time.After(s.limits.InterruptGrace)
			}
		case <-s.deadline:
			if !s.stopped() {
				s.timedOut = true
				_ = unix.Kill(-pid, unix.SIGTERM)
				kill = time.After(s.limits.KillAfter)
			}
		case <-kill:
			_ = unix.Kill(-pid, unix.SIGKILL)
			giveUp = time.After(s.limits.GiveUp)
		case <-giveUp:
			return 0, false
		case <-look.C:
			_ = boundResultsFile(s.results) // a loose bound; the cgroup's is the hard one
		}
	}
}

// waitUntil waits for a process, or with 0 for none, until a time, or with the zero one for ever, and
// no longer than until something stops the attempt. It is false when the process has not ended.
func (s *supervisor) waitUntil(pid int, until time.Time) (status unix.WaitStatus, ended bool) {
	var over <-chan time.Time
	if !until.IsZero() {
		over = time.After(time.Until(until))
	}
	for !s.stopped() {
		if reaped := reap(); reaped.has(pid) {
			return reaped.statuses[pid], true
		}
		select {
		case <-s.children:
		case sig := <-s.signals:
			s.interrupt(sig)
		case <-s.deadline:
			s.timedOut = true
		case <-over:
			return 0, false
		}
	}
	return 0, false
}

// sweep ends what a script has left running: after Linger, SIGKILL to every child of ours until
// there is none. As the runner is their subreaper, descendants whose parents are gone become
// children of ours, whatever session or process group they are in; so killing children, round by
// round, reaches all of them, and children are the only processes that can be killed without the
// risk of meeting a stranger with a recycled pid. What a service manager or daemon started on the
// script's request is no descendant.
//
// It returns how many processes were killed, and how many remain because not even that ended them.
func (s *supervisor) sweep() (killed, left int, err error) {
	if s.waitForNone(s.limits.Linger) {
		return 0, 0, nil
	}
	seen := map[int]bool{}
	for giveUp := time.Now().Add(s.limits.GiveUp); ; {
		pids, err := children(os.Getpid())
		if err != nil {
			return len(seen), 0, err
		}
		for _, pid := range pids {
			seen[pid] = true
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if s.waitForNone(sweepEvery) {
			return len(seen), 0, nil
		}
		if time.Now().After(giveUp) {
			return len(seen), len(pids), nil
		}
	}
}

// waitForNone waits until there are no children, at most for a while.
func (s *supervisor) waitForNone(while time.Duration) bool {
	timer := time.NewTimer(while)
	defer timer.Stop()
	for {
		if reap().none {
			return true
		}
		select {
		case <-s.children:
		case <-timer.C:
			return false
		}
	}
}

// reaped is what reap has seen.
type reaped struct {
	statuses map[int]unix.WaitStatus
	none     bool // no children are left, running or not
}

func (r reaped) has(pid int) bool { _, ok := r.statuses[pid]; return ok }

// reap takes every child that has ended.
func reap() reaped {
	r := reaped{statuses: map[int]unix.WaitStatus{}}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD is the only other error it has
			r.none = true
			return r
		case pid == 0:
			return r
		default:
			r.statuses[pid] = status
		}
	}
}

// signalName is the name people know, such as SIGSEGV.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}
