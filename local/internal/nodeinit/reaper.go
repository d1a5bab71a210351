// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodeinit

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reaper starts every child and collects every dead one. As process 1 the node's init gets orphans
// of all its daemons (containerd's shims among them), so os/exec, which waits for its own children
// one by one, would race with the collection; here one loop collects all and hands results out.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

func newReaper() *reaper {
	r := &reaper{waiting: map[int]chan syscall.WaitStatus{}}
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	go func() {
		for {
			r.collect()
			<-died
		}
	}()
	return r
}

func (r *reaper) collect() {
	for {
		var status syscall.WaitStatus
		r.mu.Lock()
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if done, ours := r.waiting[pid]; ours && err == nil && pid > 0 {
			done <- status
			delete(r.waiting, pid)
		}
		r.mu.Unlock()
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}

// start runs a program in a session of its own; its end arrives on the channel.
func (r *reaper) start(path string, argv, env []string, files [3]*os.File) (int, <-chan syscall.WaitStatus, error) {
	attr := &syscall.ProcAttr{
		Dir: "/", Env: env,
		Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	done := make(chan syscall.WaitStatus, 1)
	// Held across the fork, so that a child that ends at once is not collected as a stranger.
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, nil, err
	}
	r.waiting[pid] = done
	return pid, done, nil
}
