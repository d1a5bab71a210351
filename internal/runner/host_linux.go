// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace is a namespace to enter.
type namespace struct {
	kind string
	flag int
	file *os.File
}

// The mount namespace comes last: after it, /proc is that of the node. The runner does not enter the cgroup namespace
// and never leaves its cgroup. So when the container ends, every process in it ends, regardless of the runner.
var namespaceKinds = []struct {
	kind string
	flag int
}{
	{"uts", unix.CLONE_NEWUTS},
	{"ipc", unix.CLONE_NEWIPC},
	{"net", unix.CLONE_NEWNET},
	{"pid", unix.CLONE_NEWPID},
	{"mnt", unix.CLONE_NEWNS},
}

// hostThread is one operating system thread in the namespaces of the target. It runs functions there: what they open,
// look up or start is on the node. All other goroutines stay in the container, which has the termination log and the
// /proc with our children.
//
// Why this is correct in Go:
//
//   - Namespaces, root and working directory belong to a thread, not to a process. A goroutine
//     that called LockOSThread runs on its thread alone and the thread runs nothing else.
//   - Entering a mount namespace needs a thread whose root and working directory are its own, hence
//     unshare(CLONE_FS); the other threads of the process share theirs from the start.
//   - syscall.ForkExec clones the calling thread. The child inherits the thread's namespaces, root
//     and working directory, and for the pid namespace the one that setns chose for children.
//   - The runtime starts new threads by cloning, too, but never from a locked thread: a template
//     thread, which LockOSThread itself starts, does it. So the node's namespaces do not spread, and
//     clone(CLONE_THREAD), which Linux forbids after setns(CLONE_NEWPID), is not tried.
//   - The thread is never unlocked, so it never runs other goroutines. If entering fails half-way
//     its goroutine returns locked, and the runtime destroys the thread.
//   - PR_SET_PDEATHSIG counts the death of the parent thread. This one blocks in its loop until the
//     process ends.
type hostThread struct {
	calls chan func()
	// target is the process whose namespaces the thread is in, 0 if it is in the runner's own.
	target int
	// otherPIDs is true if the target has a different PID namespace, which does not happen in pods of the controller.
	// The PIDs of our processes then have no meaning for a script.
	otherPIDs bool
}

// enterHost starts the thread. Target 0 means only our own namespaces.
func enterHost(target int) (*hostThread, error) {
	t := &hostThread{calls: make(chan func()), target: target}
	namespaces, err := openNamespaces(target)
	if err != nil {
		return nil, err
	}
	for _, n := range namespaces {
		t.otherPIDs = t.otherPIDs || n.kind == "pid"
	}
	entered := make(chan error)
	go onOwnThread(func() {
		err := enter(namespaces)
		entered <- err
		if err != nil {
			return
		}
		for call := range t.calls {
			call()
		}
	})
	return t, <-entered
}

// onOwnThread calls f on a thread that runs nothing else, and that is not the main thread. A process has the namespaces of its main
// thread for others: if that entered those of the node, what a container runtime executes in the container would be looked up on the
// node, and not be found, such as the readiness probe.
func onOwnThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	taken := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(taken)
		f()
	}()
	<-taken
	runtime.UnlockOSThread()
}

// do runs f on the thread and waits for it.
func (t *hostThread) do(f func()) {
	done := make(chan struct{})
	t.calls <- func() { defer close(done); f() }
	<-done
}

// openNamespaces opens the namespaces of the target that differ from ours.
func openNamespaces(target int) ([]namespace, error) {
	if target == 0 {
		return nil, nil
	}
	var open []namespace
	for _, k := range namespaceKinds {
		own, err := os.Stat("/proc/self/ns/" + k.kind)
		if err != nil {
			continue // a kernel without this kind: there is no difference
		}
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", target, k.kind))
		if err != nil {
			return nil, namespaceError(fmt.Errorf("opening the %s namespace of process %d: %w", k.kind, target, err))
		}
		theirs, err := f.Stat()
		if err != nil {
			return nil, namespaceError(fmt.Errorf("looking at the %s namespace of process %d: %w", k.kind, target, err))
		}
		if !os.SameFile(own, theirs) {
			open = append(open, namespace{k.kind, k.flag, f})
			continue
		}
		if k.kind == "mnt" { // without hostPID, process 1 is the runner; the script would run in its empty image
			return nil, namespaceError(fmt.Errorf("process %d is in the runner's own mount namespace", target))
		}
		_ = f.Close()
	}
	return open, nil
}

// enter moves the calling thread, which must be locked.
func enter(namespaces []namespace) error {
	if len(namespaces) == 0 {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return namespaceError(fmt.Errorf("unsharing root and working directory: %w", err))
	}
	for _, n := range namespaces {
		if err := unix.Setns(int(n.file.Fd()), n.flag); err != nil {
			return namespaceError(fmt.Errorf("entering the %s namespace: %w", n.kind, err))
		}
		_ = n.file.Close()
	}
	return nil
}

var errNamespaces = errors.New("the pod needs securityContext.privileged: true and hostPID: true")

func namespaceError(err error) error {
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w (%w; if it has both, look for a denial of SELinux or AppArmor in the node's audit log)", err, errNamespaces)
	}
	return fmt.Errorf("%w (%w)", err, errNamespaces)
}

// fdPath returns a path that opens f in every process on the node. The path contains the runner's PID and is valid as
// long as the runner lives, so that a process which closed its inherited descriptors can open it too. It reads our PID
// from the node's own /proc and checks whether the path works. If it does not (other PID namespace), inherited is the
// descriptor to pass on, and the path works in processes that keep it. It must run on the host thread.
func fdPath(f *os.File, inherited int) (path string, inherit bool) {
	fallback := fmt.Sprintf("/proc/self/fd/%d", inherited)
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return fallback, true
	}
	path = fmt.Sprintf("/proc/%s/fd/%d", self, f.Fd())
	want, err := f.Stat()
	if err != nil {
		return fallback, true
	}
	if got, err := os.Stat(path); err != nil || !os.SameFile(want, got) {
		return fallback, true
	}
	return path, false
}
