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
)

// exitRebootFailed is the exit code when the node did not go down.
const exitRebootFailed = 1

// syncLimit bounds the wait for disks before reboot(2): that of a dead NFS server has no end.
const syncLimit = 30 * time.Second

// power is how a node is rebooted. Tests have one of their own, so that no mistake of theirs, or of
// the code they test, reboots the machine they run on.
type power struct {
	bootID  string // the file with the boot ID, on the node
	systemd string // the folder that is there when systemd runs the node (sd_booted(3))
	path    string // where programs are looked for besides the PATH
	// allowed is nil when the runner is where a reboot hits the node and nothing else.
	allowed func(*hostThread) error
	// restart does not return unless it failed.
	restart func(*hostThread) error
}

func nodePower() *power {
	return &power{
		bootID:  "/proc/sys/kernel/random/boot_id",
		systemd: "/run/systemd/system",
		path:    "/run/current-system/sw/bin", // NixOS has nothing in the PATH of others
		allowed: (*hostThread).mayReboot,
		restart: (*hostThread).restart,
	}
}

// mayReboot refuses everywhere but in a node's pod. reboot(2) acts on the pid namespace of who calls
// it, and no setns changes that: so the runner's own has to be the node's, whose process 1 is the
// target. What runs by hand or in a test, with no target or another one, would reboot the machine of
// whoever tries it.
func (t *hostThread) mayReboot() error {
	switch {
	case t.target != 1:
		return namespaceError(fmt.Errorf("only the node of process 1 can be rebooted, and the target is process %d", t.target))
	case t.otherPIDs:
		return namespaceError(errors.New("process 1 is in another pid namespace, so a reboot would hit the runner's"))
	}
	return nil // in another mount namespace than the container's, or enterHost had refused
}

// restart is the last resort: nothing on the node is told to end.
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

// rebootedAlready returns the outcome when there is nothing to do: no second container, or pod, for
// one reboot may cause another. It comes before acquireRunLock, which would call it interrupted.
func (a *attempt) rebootedAlready() (*outcome.Outcome, error) {
	if a.Reboot != RebootNow {
		return nil, nil
	}
	if a.power == nil {
		a.power = nodePower()
	}
	if err := a.power.allowed(a.host); err != nil {
		return nil, err
	}
	var content []byte
	var err error
	a.host.do(func() { content, err = os.ReadFile(a.power.bootID) })
	id := string(bytes.TrimSpace(content))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the node's boot ID: %w", err)
	case id == "":
		return nil, fmt.Errorf("reading the node's boot ID: %s is empty", a.power.bootID)
	case id == a.BootID:
		return nil, nil
	}
	return &outcome.Outcome{Message: fmt.Sprintf("the node has rebooted already: its boot ID is %s, the one to leave was %s", id, a.BootID)}, nil
}

// rebootCommand asks the node to reboot itself.
type rebootCommand struct {
	argv []string
	// again: asked again if it is refused, as a lock that somebody holds (systemd-inhibit) may go.
	again bool
}

func (c rebootCommand) String() string { return strings.Join(c.argv, " ") }

// rebootCommands are what the node has to end its services in order, the most orderly first. With
// --force systemd kills what runs, and still writes and unmounts the disks, which reboot(2) does not.
func (a *attempt) rebootCommands() []rebootCommand {
	var systemd, usable bool
	a.host.do(func() {
		info, err := os.Stat(a.power.systemd)
		systemd = err == nil && info.IsDir()
		usable = usableReboot(lookup(a.rebootEnviron(), "PATH"))
	})
	switch {
	case systemd:
		return []rebootCommand{{argv: []string{"systemctl", "reboot"}, again: true}, {argv: []string{"systemctl", "reboot", "--force"}}}
	case usable:
		return []rebootCommand{{argv: []string{"reboot"}}}
	}
	return nil
}

// usableReboot says whether the node has a reboot program of its own. A link to systemctl is none:
// without systemd it can only fail. It must run on the host thread.
func usableReboot(path string) bool {
	program, found := lookPath("reboot", path)
	if !found {
		return false
	}
	program, err := filepath.EvalSymlinks(program)
	return err == nil && filepath.Base(program) != "systemctl"
}

// rebootEnviron is for the commands. Where a new root file system is prepared, systemctl would
// exchange that alone and leave the kernel running, in the same boot.
func (a *attempt) rebootEnviron() []string {
	environ := with(a.Config.Environ, "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT", "1")
	return with(environ, "PATH", lookup(environ, "PATH")+":"+a.power.path)
}

// rebootNode tries one way after the other, and returns only when the node did not go down or the
// runner was told to stop.
func (a *attempt) rebootNode(io stdio) (ending, error) {
	accepted := false
	for _, command := range a.rebootCommands() {
		accepted = a.ask(command, io) || accepted
	}
	if a.supervisor.poll(); a.supervisor.stopped() {
		return a.stillUp(), nil
	}
	a.say(io, "rebooting the node by reboot(2)")
	if err := a.power.restart(a.host); err != nil {
		a.say(io, "reboot(2): %v", err)
	} else {
		accepted = true
	}
	if accepted {
		a.supervisor.waitUntil(0, time.Time{})
	}
	return a.stillUp(), nil
}

// ask gives one command its share of the time: until it is accepted, and then for the node to go
// down. It returns when that is over, nothing can be hoped for, or the attempt is stopped.
func (a *attempt) ask(c rebootCommand, io stdio) (accepted bool) {
	until := a.share()
	for a.supervisor.poll(); !a.supervisor.stopped(); {
		a.say(io, "asking the node to reboot: %s", c)
		refused, err := a.command(c, io, until)
		if err == nil {
			a.supervisor.waitUntil(0, until)
			return true
		}
		a.say(io, "%s: %v", c, err)
		again := time.Now().Add(a.Limits.AskAgain)
		if !c.again || !refused || again.After(until) {
			return false
		}
		a.supervisor.waitUntil(0, again)
	}
	return false
}

// share is half of the time that is left, so that what comes after has some, and the node for its
// boot.
func (a *attempt) share() time.Time {
	if a.Timeout == 0 {
		return time.Now().Add(a.Limits.GoDown)
	}
	return time.Now().Add(time.Until(a.Started.Add(a.Timeout)) / 2)
}

// command runs a command on the node. Refused says that it ran and said no.
func (a *attempt) command(c rebootCommand, io stdio, until time.Time) (refused bool, err error) {
	pid, err := a.host.startProgram(c.argv, a.rebootEnviron(), io)
	if err != nil {
		return false, err
	}
	status, ended := a.supervisor.waitUntil(pid, until)
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

// say writes a line among the output of the commands, at once: when the node goes down there is no
// time for notes.
func (a *attempt) say(io stdio, format string, args ...any) {
	fmt.Fprintf(io.err, "everynode-runner: "+format+"\n", args...)
}

// stillUp is the ending of a reboot that was not one.
func (a *attempt) stillUp() ending {
	switch {
	case a.supervisor.interrupted != 0: // a kubelet that ends its pods because the node goes down does that
		a.note("the runner received %s before the node went down", signalName(a.supervisor.interrupted))
		return ending{128 + int(a.supervisor.interrupted), outcome.ReasonDisrupted}
	case a.supervisor.timedOut:
		a.note("the node did not go down within %v", a.Timeout)
	default:
		a.note("the node did not go down")
	}
	return ending{exitRebootFailed, outcome.ReasonRebootFailed}
}
