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

// Limits are the durations for which the runner waits. Tests shorten them.
type Limits struct {
	// InterruptGrace is the time between a signal to stop and SIGKILL. Pods have 30 s by default, and the rest is for
	// the outcome.
	InterruptGrace time.Duration
	// KillAfter is the time between SIGTERM after a timeout and SIGKILL.
	KillAfter time.Duration
	// Linger is the time that a script's other processes have to exit on their own after it has ended, such as the tee
	// in "exec > >(tee log)".
	Linger time.Duration
	// GiveUp is how long the runner waits for killed processes. A process in uninterruptible sleep (for example,
	// because of an unavailable NFS server) cannot be killed.
	GiveUp time.Duration
	// Drain is how long the runner waits for output after all processes have ended, and for the reader of the container's
	// output to take the next piece.
	Drain time.Duration
	// Stall is how long the scripts are blocked if the container's output is not read, and how long the reader has for all
	// pieces after the end.
	Stall time.Duration
	// UploadAfterSignal is how long after a signal to stop the output may be uploaded. Pods have 30 s by default.
	UploadAfterSignal time.Duration
	// Probe is how long the kubelet may take to start the readiness probe of a pod with a confirmation.
	Probe time.Duration
	// Keeper is how long the process that reverts the node after the end of the runner may take to start.
	Keeper time.Duration
	// GoDown is the time that a node has to end its services after each request to reboot, if there is no timeout.
	GoDown time.Duration
	// AskAgain is the time between two requests to reboot if the first was refused.
	AskAgain time.Duration
}

// DefaultLimits returns the limits of the contract with users, docs/runner.md.
func DefaultLimits() Limits {
	return Limits{
		InterruptGrace:    25 * time.Second,
		KillAfter:         5 * time.Second,
		Linger:            500 * time.Millisecond,
		GiveUp:            10 * time.Second,
		Drain:             2 * time.Second,
		Stall:             10 * time.Second,
		UploadAfterSignal: 27 * time.Second,
		Probe:             time.Minute,
		Keeper:            10 * time.Second,
		GoDown:            10 * time.Minute,
		AskAgain:          10 * time.Second,
	}
}

const (
	resultsEvery = 200 * time.Millisecond // between two checks of the size of the results file
	sweepEvery   = 50 * time.Millisecond  // between two checks for processes left behind
)

// supervisor waits for one script after the other. It runs in one goroutine, which is the only one that reaps children:
// a child that is not reaped keeps its PID, so a signal never reaches an unrelated process.
type supervisor struct {
	limits   Limits
	signals  <-chan os.Signal // signals to pass on
	children <-chan os.Signal // SIGCHLD
	deadline <-chan time.Time // nil: none
	results  *os.File

	// The first reason to stop the attempt; zero values if there is none.
	interrupted syscall.Signal
	timedOut    bool
	// toldAt is when the first signal to stop was received; zero if there was none.
	toldAt time.Time
}

func (s *supervisor) stopped() bool { return s.interrupted != 0 || s.timedOut }

// poll records signals and timeouts that occurred while no script was running.
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

// interrupt stores a signal to stop, and reports whether it is the first reason to stop.
func (s *supervisor) interrupt(sig os.Signal) bool {
	if sig != unix.SIGTERM && sig != unix.SIGINT {
		return false
	}
	if s.toldAt.IsZero() {
		s.toldAt = time.Now()
	}
	if s.stopped() {
		return false
	}
	s.interrupted = sig.(syscall.Signal)
	return true
}

// wait waits for a script and stops it after a timeout or a signal. It returns false if the process could not be ended.
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
			_ = boundResultsFile(s.results) // not exact; the cgroup enforces the hard limit
		}
	}
}

// waitUntil waits for a process (0: none) until a time (zero: forever), or until something stops the attempt. It
// returns false if the process has not ended.
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

// sweep ends the processes that a script has left running: after Linger, it sends SIGKILL to all our children until
// there are none. The runner is their subreaper, so descendants whose parents have ended become our children, in
// any session or process group. So killing the children repeatedly reaches all descendants. Only children
// can be killed without the risk of hitting an unrelated process with a recycled PID. Processes that a service manager
// or daemon started for the script are not descendants.
//
// It returns how many processes were killed, and how many remain because SIGKILL did not end them.
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

// waitForNone waits until there are no children, for a limited time.
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

// reaped is the result of reap.
type reaped struct {
	statuses map[int]unix.WaitStatus
	none     bool // no children remain, running or not
}

func (r reaped) has(pid int) bool { _, ok := r.statuses[pid]; return ok }

// reap reaps all children that have ended.
func reap() reaped {
	r := reaped{statuses: map[int]unix.WaitStatus{}}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // the only other error is ECHILD
			r.none = true
			return r
		case pid == 0:
			return r
		default:
			r.statuses[pid] = status
		}
	}
}

// signalName returns the common name, such as SIGSEGV.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}
