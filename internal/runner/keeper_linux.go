// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// keeperReady is the line by which a keeper says that it is out of the container.
const keeperReady = "ready\n"

// startKeeper starts a keeper on the node and waits until it is out of the container. It must run on the host thread.
//
// With CLONE_PARENT, the parent of the keeper is that of the runner, the shim of containerd, and not the runner, which ends all its
// children.
func startKeeper(dir string, target int, limit time.Duration) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	_, err = syscall.ForkExec(
		filepath.Join(dir, programName),
		[]string{programName, "--" + contract.FlagKeep + "=" + dir, "--" + contract.FlagCgroupOf + "=" + strconv.Itoa(target)},
		&syscall.ProcAttr{
			Dir: "/", Files: []uintptr{null.Fd(), write.Fd(), null.Fd()},
			Sys: &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_PARENT},
		},
	)
	_ = write.Close()
	if err != nil {
		return fmt.Errorf("starting %s: %w", filepath.Join(dir, programName), err)
	}
	if err := read.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(read, outcome.MaxMessageBytes))
	switch {
	case string(said) == keeperReady && err == nil:
		return nil
	case err != nil:
		return fmt.Errorf("waiting for the process that reverts the node: %w", err)
	}
	return fmt.Errorf("the process that reverts the node has ended: %s", outcome.CleanLine(string(said)))
}

// KeepOptions are what Keep needs from main.
type KeepOptions struct {
	// Dir is the folder of the NodeJob.
	Dir string
	// CgroupOf is the process whose control group the keeper joins; 0 for none. What runs in the control group of a container ends with it.
	CgroupOf int
	// Stdout gets one line when the keeper waits, or why it cannot.
	Stdout io.WriteCloser
	// Stderr gets what the rollback prints and how it has ended.
	Stderr *os.File
	Limits Limits
}

// Keep waits until no runner has the lock of a folder. If there is no decision, it runs the rollback. Then it removes the folder. A
// rollback that fails is not repeated, because its NodeJob does that when the node is reachable again.
func Keep(o KeepOptions) (exitCode int) {
	// Signals at the shutdown of the node must not end it, because the runner may need the time until then. It ends right after the runner.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	k, err := openKept(o.Dir, false)
	if k == nil && err == nil {
		return 0 // an earlier process has decided
	}
	if err == nil && o.CgroupOf > 0 {
		err = joinCgroupsOf(o.CgroupOf)
	}
	if err != nil {
		_, _ = fmt.Fprintln(o.Stdout, err)
		return exitRunner
	}
	_, _ = io.WriteString(o.Stdout, keeperReady)
	_ = o.Stdout.Close()
	if err := k.wait(); err != nil {
		o.say("waiting for the runner: %v", err)
		return exitRunner
	}
	if !k.current() {
		return 0 // the runner has decided, and removed the folder
	}
	state, err := k.state()
	if err == nil && state != nil { // a state that cannot be read was not complete when the node stopped, so the task had not started
		exitCode = o.revert(k, state)
	}
	if err := k.decided(); err != nil {
		o.say("removing %s: %v", k.dir, err)
		return exitRunner
	}
	k.remove()
	return exitCode
}

// wait waits for the lock.
func (k *kept) wait() error {
	for {
		if err := unix.Flock(int(k.lock.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// revert runs the rollback on the node, where the keeper already is.
func (o KeepOptions) revert(k *kept, state *keptState) (exitCode int) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	a := &attempt{printed: func() int { return 0 }}
	a.Limits = o.Limits
	a.supervisor = supervisor{limits: o.Limits, children: children}
	null, err := os.Open(os.DevNull)
	if err == nil {
		err = a.prepare()
	}
	if err != nil {
		o.say("reverting NodeJob %s: %v", state.NodeJob, err)
		return exitRunner
	}
	back := a.rollback(stdio{null, o.Stderr, o.Stderr}, state.Rollback, state.Timeout, withResults(state.Environ, k.dir))
	o.say("NodeJob %s: an attempt ended before this node was confirmed, by a reboot or a kill; %s", state.NodeJob, strings.Join(a.notes, "; "))
	return back.code
}

// say writes a line to stderr, which is the journal in a unit of systemd, and outside of one to the log of the kernel.
func (o KeepOptions) say(format string, args ...any) {
	line := "everynode-runner: " + outcome.CleanLine(fmt.Sprintf(format, args...)) + "\n"
	_, _ = o.Stderr.WriteString(line)
	if o.CgroupOf == 0 {
		return
	}
	if log, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
		_, _ = log.WriteString(line)
		_ = log.Close()
	}
}

// cgroupRoot is where nodes have their control groups.
const cgroupRoot = "/sys/fs/cgroup"

// joinCgroupsOf moves this process into the control groups of another one, in all hierarchies that are mounted.
// Source: cgroups(7) and cgroup_namespaces(7).
func joinCgroupsOf(pid int) error {
	// The paths of /proc are relative to the namespace of the thread that reads them, and the kernel refuses to move a process out of it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	space, err := os.Open(fmt.Sprintf("/proc/%d/ns/cgroup", pid))
	if err == nil {
		err = errors.Join(unix.Setns(int(space.Fd()), unix.CLONE_NEWCGROUP), space.Close())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("entering the cgroup namespace of the node: %w", err)
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	joined := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		_, rest, _ := strings.Cut(lines.Text(), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		procs, found := cgroupProcs(controllers, path)
		if !found {
			continue
		}
		if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return fmt.Errorf("leaving the control group of the pod: %w", err)
		}
		joined++
	}
	if joined == 0 {
		return fmt.Errorf("leaving the control group of the pod: there is none in %s", cgroupRoot)
	}
	return nil
}

// cgroupProcs returns the file that takes processes into a control group. Version 1 has a folder for each set of controllers; version 2
// has no controllers, and is in a folder of its own beside version 1.
func cgroupProcs(controllers, path string) (file string, found bool) {
	roots := []string{strings.TrimPrefix(controllers, "name=")}
	if controllers == "" {
		roots = []string{"unified", ""}
	}
	for _, root := range roots {
		file := filepath.Join(cgroupRoot, root, path, "cgroup.procs")
		if exists(file) {
			return file, true
		}
	}
	return "", false
}
