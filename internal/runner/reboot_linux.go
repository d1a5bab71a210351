// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// exitRebootFailed is the exit code if the node did not go down.
const exitRebootFailed = 1

// syncLimit limits the wait for disks before reboot(2), because a wait for an unavailable NFS server does not end.
const syncLimit = 30 * time.Second

// power is how a node is rebooted. Tests use their own, so that no bug of a test, or of the tested code, reboots the
// machine on which the tests run.
type power struct {
	bootID  string // the file with the boot ID, on the node
	systemd string // the directory that exists if systemd runs the node (sd_booted(3))
	path    string // where programs are searched in addition to the PATH
	// allowed returns nil if a reboot by the runner affects only the node.
	allowed func(*hostThread) error
	// restart does not return unless it failed.
	restart func(*hostThread) error
}

func nodePower() *power {
	return &power{
		bootID:  "/proc/sys/kernel/random/boot_id",
		systemd: "/run/systemd/system",
		path:    "/run/current-system/sw/bin", // NixOS has no programs in the usual PATH
		allowed: (*hostThread).mayReboot,
		restart: (*hostThread).restart,
	}
}

// mayReboot refuses a reboot outside of a pod on a node. reboot(2) acts on the PID namespace of its caller, and setns
// does not change that. So the runner's own PID namespace must be that of the node, in which process 1 is the target.
// If the runner is started manually or by a test, with no target or another one, it would reboot the machine on which
// it runs.
func (t *hostThread) mayReboot() error {
	switch {
	case t.target != 1:
		return namespaceError(fmt.Errorf("only the node of process 1 can be rebooted, and the target is process %d", t.target))
	case t.otherPIDs:
		return namespaceError(errors.New("process 1 is in another pid namespace, so a reboot would hit the runner's"))
	}
	return nil // in a mount namespace other than the container's, or enterHost would have failed
}

// restart is the last resort: it ends no process on the node in an orderly way.
func (t *hostThread) restart() (err error) {
	if err := t.mayReboot(); err != nil {
		return err
	}
	synced := make(chan struct{})
	go func() { defer close(synced); unix.Sync() }()
	select {
	case <-synced:
	case <-time.After(syncLimit):
	}
	t.do(func() { err = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) })
	return err
}

// rebooter reboots the node in an attempt.
type rebooter struct {
	*attempt
}

// alreadyDone returns the outcome if there is nothing to do: a second container, or pod, for the same reboot must
// not reboot again. It runs before acquireRunLock, which would report an interruption.
func (r *rebooter) alreadyDone() (*outcome.Outcome, error) {
	if r.Reboot != contract.RebootNow {
		return nil, nil
	}
	if r.power == nil {
		r.power = nodePower()
	}
	if err := r.power.allowed(r.host); err != nil {
		return nil, err
	}
	var content []byte
	var err error
	r.host.do(func() { content, err = os.ReadFile(r.power.bootID) })
	id := string(bytes.TrimSpace(content))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the node's boot ID: %w", err)
	case id == "":
		return nil, fmt.Errorf("reading the node's boot ID: %s is empty", r.power.bootID)
	case id == r.BootID:
		return nil, nil
	}
	return &outcome.Outcome{Message: fmt.Sprintf("the node has rebooted already: its boot ID is %s, the one to leave was %s", id, r.BootID)}, nil
}

// rebootCommand requests a reboot from the node.
type rebootCommand struct {
	argv []string
	// again is true if a refused command is repeated, because a lock (systemd-inhibit) may be released.
	again bool
}

func (c rebootCommand) String() string { return strings.Join(c.argv, " ") }

// commands returns the node's commands for an orderly end of its services, the most orderly first. With --force,
// systemd kills the processes, but still writes and unmounts the disks, which reboot(2) does not do.
func (r *rebooter) commands() []rebootCommand {
	var systemd, usable bool
	r.host.do(func() {
		info, err := os.Stat(r.power.systemd)
		systemd = err == nil && info.IsDir()
		usable = usableReboot(lookup(r.environ(), "PATH"))
	})
	switch {
	case systemd:
		return []rebootCommand{{argv: []string{"systemctl", "reboot"}, again: true}, {argv: []string{"systemctl", "reboot", "--force"}}}
	case usable:
		return []rebootCommand{{argv: []string{"reboot"}}}
	}
	return nil
}

// usableReboot reports whether the node has its own reboot program. A link to systemctl does not count: without systemd
// it can only fail. It must run on the host thread.
func usableReboot(path string) bool {
	program, found := lookPath("reboot", path)
	if !found {
		return false
	}
	program, err := filepath.EvalSymlinks(program)
	return err == nil && filepath.Base(program) != "systemctl"
}

// environ returns the environment of the commands. If a new root file system is prepared, systemctl would only
// switch to that and continue with the same kernel, in the same boot.
func (r *rebooter) environ() []string {
	environ := with(r.Config.Environ, "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT", "1")
	return with(environ, "PATH", lookup(environ, "PATH")+":"+r.power.path)
}

// reboot tries the commands in turn, and returns only if the node did not go down or the runner was told to stop.
func (r *rebooter) reboot(io stdio) (ending, error) {
	accepted := false
	for _, command := range r.commands() {
		accepted = r.ask(command, io) || accepted
	}
	if r.supervisor.poll(); r.supervisor.stopped() {
		return r.stillUp(), nil
	}
	r.say(io, "rebooting the node by reboot(2)")
	if err := r.power.restart(r.host); err != nil {
		r.say(io, "reboot(2): %v", err)
	} else {
		accepted = true
	}
	if accepted {
		r.supervisor.waitUntil(0, time.Time{})
	}
	return r.stillUp(), nil
}

// ask gives one command its share of the time: to be accepted, and then for the node to go down. It returns when the
// time has passed, the command cannot succeed, or the attempt is stopped.
func (r *rebooter) ask(c rebootCommand, io stdio) (accepted bool) {
	until := r.share()
	for r.supervisor.poll(); !r.supervisor.stopped(); {
		r.say(io, "asking the node to reboot: %s", c)
		refused, err := r.command(c, io, until)
		if err == nil {
			r.supervisor.waitUntil(0, until)
			return true
		}
		r.say(io, "%s: %v", c, err)
		again := time.Now().Add(r.Limits.AskAgain)
		if !c.again || !refused || again.After(until) {
			return false
		}
		r.supervisor.waitUntil(0, again)
	}
	return false
}

// share returns half of the remaining time, so that time is left for the next command and for the boot of the node.
func (r *rebooter) share() time.Time {
	if r.Timeout == 0 {
		return time.Now().Add(r.Limits.GoDown)
	}
	return time.Now().Add(time.Until(r.Started.Add(r.Timeout)) / 2)
}

// command runs a command on the node. refused is true if it ran and returned an error.
func (r *rebooter) command(c rebootCommand, io stdio, until time.Time) (refused bool, err error) {
	pid, err := r.host.startProgram(c.argv, r.environ(), io)
	if err != nil {
		return false, err
	}
	status, ended := r.supervisor.waitUntil(pid, until)
	switch {
	case !ended:
		_ = unix.Kill(-pid, unix.SIGKILL) // not reaped, so the number is still its own
		return false, errors.New("it did not answer")
	case status.Signaled():
		return true, fmt.Errorf("it was killed by %s", signalName(status.Signal()))
	case status.ExitStatus() != 0:
		return true, fmt.Errorf("it ended with exit code %d", status.ExitStatus())
	}
	return false, nil
}

// say writes a line to the output of the commands immediately: there is no time for notes when the node goes down.
func (r *rebooter) say(io stdio, format string, args ...any) {
	fmt.Fprintf(io.err, "everynode-runner: "+format+"\n", args...)
}

// stillUp returns the ending of a reboot that did not happen.
func (r *rebooter) stillUp() ending {
	switch {
	case r.supervisor.interrupted != 0: // r kubelet that ends its pods because the node goes down does that
		r.note("the runner received %s before the node went down", signalName(r.supervisor.interrupted))
		return ending{128 + int(r.supervisor.interrupted), outcome.ReasonDisrupted}
	case r.supervisor.timedOut:
		r.note("the node did not go down within %v", r.Timeout)
	default:
		r.note("the node did not go down")
	}
	return ending{exitRebootFailed, outcome.ReasonRebootFailed}
}
